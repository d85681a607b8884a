"""The packages of the docker runtime, which only `linkflap[docker]` installs: whether they are
installed, and how to import them.

A project may have its own folder `docker`, which its tests import. Within `importable` that name
means the installed package; afterwards it means the project's folder again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from linkflap.harness.model.errors import SetupError

FIX: Final = "pip install 'linkflap[docker]'"
_PACKAGES: Final = ("docker", "testcontainers")
_ABSENT: Final = object()

_swapping = threading.RLock()
_installed: dict[str, ModuleType] = {}
"""Modules of the installed packages, while others of the same name are in `sys.modules`."""


def lacking() -> str:
    """The first one that is not installed, or empty. A folder of that name is none."""
    return next((name for name in _PACKAGES if not _is_installed(name)), "")


def check() -> None:
    """Raises SetupError when one is not installed."""
    if name := lacking():
        raise SetupError(
            f"the docker runtime needs the package {name}, which is not installed: {FIX}; --runtime"
            " process needs none"
        )


@contextmanager
def importable() -> Iterator[None]:
    """In the block, `import docker` gives the installed package. Functions that import it
    themselves do so in such a block.

    The lock keeps two threads from taking each other's modules for the project's.
    """
    with _swapping:
        folder = _hidden()
        if not folder:
            yield
            return
        theirs = _take()
        sys.modules.update(_installed)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            _installed.update(_take())
            sys.modules.update(theirs)


def _is_installed(name: str) -> bool:
    if sys.modules.get(name, _ABSENT) is None:  # Python's own way to forbid an import
        return False
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _hidden() -> str:
    """The folder with the installed packages, where something else with the name of one is imported
    in its stead; or empty."""
    for name in _PACKAGES:
        if _is_installed(name):
            folder = Path(str(distribution(name).locate_file("")))
            if (folder / name / "__init__.py").exists() and _imported_from(name) != (
                folder / name
            ).resolve():
                return str(folder)
    return ""


def _imported_from(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except ValueError:  # a module that was made by hand
        return None
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def _take() -> dict[str, ModuleType]:
    """Takes every module of these packages' names out of `sys.modules`."""
    return {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.partition(".")[0] in _PACKAGES
    }
