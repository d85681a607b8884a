"""The image for linkflap's own programs in containers: this machine's Python, and the packages that
the shadow mirror and the recorder need.

linkflap's own code is not in it. Containers mount it read-only from where it is installed, so they
run the same code as the harness.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from filelock import FileLock

from linkflap.harness.machine import cache as kept
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker.images import builds
from linkflap.harness.version import INSTALLED

PYTHON: Final = "/usr/local/bin/python3"
CODE: Final = "/opt/linkflap/code"
_PACKAGES: Final = Path("opt/linkflap/packages")
_REPOSITORY: Final = "linkflap-python"
_RECIPE: Final = "1"
_WITHIN: Final = 120
# Large parts of the standard library that are never used here.
_LEFT_OUT: Final = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "dist-packages",
)
# Runs in a separate interpreter: modules that are imported in this one, or at every start, say
# nothing about what these programs need.
_NEEDED: Final = """
import importlib.metadata, sys
before = set(sys.modules)
import linkflap.harness.mirrors.shadow.__main__
import linkflap.harness.wire.recorder.__main__
known = importlib.metadata.packages_distributions()
for name in {name.partition(".")[0] for name in set(sys.modules) - before}:
    for distribution in known.get(name, ()):
        print(distribution)
"""


def code() -> dict[Path, str]:
    """linkflap's own code: its folder here, and its path in containers."""
    package = Path(__file__).resolve().parents[3]
    return {package: f"{CODE}/linkflap/{package.name}"}


def ready() -> str:
    """The image's name, built if necessary; other processes that need it wait. Raises
    SetupError."""
    name = tag()
    with FileLock(kept.folder() / ".docker-python.lock"):
        if not builds.identity(name):
            kept.LOG.info(
                "first use: making the image of this machine's Python, for the shadow mirror, for "
                "recorders and for partitions"
            )
            builds.made_of_files(
                name,
                _fill,
                changes=(
                    (
                        f"ENV PYTHONPATH={CODE}:/{_PACKAGES} PYTHONDONTWRITEBYTECODE=1 "
                        "PATH=/usr/local/bin"
                    ),
                ),
            )
    return name


@cache
def tag() -> str:
    """The name of the image of this Python with these packages."""
    state = [
        _RECIPE,
        sys.version,
        sys.base_prefix,
        *(f"{needed.name} {needed.version}" for needed in _needed()),
    ]
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"{_REPOSITORY}:{release}-{hashlib.sha256(chr(10).join(state).encode()).hexdigest()[:12]}"
    )


@cache
def _needed() -> tuple[Distribution, ...]:
    """The installed packages that these programs import, without linkflap."""
    command = [sys.executable, "-c", _NEEDED]
    root = INSTALLED
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_WITHIN,
        check=False,
        cwd=root,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise SetupError(
            "the shadow mirror or the recorder cannot be imported "
            f"({done.stderr.strip().splitlines()[-1]}); install linkflap again"
        )
    return tuple(distribution(name) for name in sorted(set(done.stdout.split()) - {"linkflap"}))


def _fill(root: Path, scratch: Path) -> None:
    del scratch
    inside = root / Path(sys.base_prefix).relative_to("/")
    for name in ("stdlib", "platstdlib"):
        library = Path(
            sysconfig.get_path(name, vars={"base": sys.base_prefix, "platbase": sys.base_prefix})
        )
        shutil.copytree(
            library, root / library.relative_to("/"), dirs_exist_ok=True, ignore=_ignored
        )
    binary = inside / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    binary.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sys.executable).resolve(), binary)
    (root / PYTHON.removeprefix("/")).symlink_to("/" + str(binary.relative_to(root)))
    packages = root / _PACKAGES
    packages.mkdir(parents=True)
    for needed in _needed():
        for file in needed.files or ():
            if ".." not in file.parts and (there := Path(str(needed.locate_file(file)))).is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there, packages / file)
    builds.copy_libraries(
        root,
        (Path(sys.executable).resolve(), *(inside / "lib").rglob("*.so"), *packages.rglob("*.so*")),
        inside=packages,
    )


def _ignored(folder: str, names: list[str]) -> set[str]:
    del folder
    return {
        name
        for name in names
        if name in _LEFT_OUT or name.startswith("config-") or name.endswith(".a")
    }
