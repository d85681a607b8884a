"""The packages of the docker runtime, which only `pip install 'linkflap[docker]'` installs: whether they are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from linkflap.harness.model.errors import SetupError

FIX: Final = "pip install 'linkflap[docker]'"
_PACKAGES: Final = ("docker", "testcontainers")


def lacking() -> str:
    """The first one that is not installed, or empty."""
    return next((name for name in _PACKAGES if find_spec(name) is None), "")


def check() -> None:
    """Raises SetupError when one is not installed."""
    if name := lacking():
        raise SetupError(
            f"the docker runtime needs the package {name}, which is not installed: {FIX}; --runtime process needs none"
        )
