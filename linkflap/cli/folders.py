"""Names the run directory and the JUnit file of a command, and checks that they can be written."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import InputError

RUNS: Final = Path("linkflap-runs")


def new_folder(name: str) -> Path:
    """A new name for a run directory in `linkflap-runs/`."""
    return RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def check_output(folder: Path, out: Path | None, junit: Path | None) -> None:
    """Raises InputError if the output of a run cannot be written. Called before the run starts."""
    if os.path.lexists(folder):
        raise InputError(f"{folder} exists already; give a new folder, or omit --out")
    if out:
        _check_parent("--out", out)
    if junit:
        check_junit(junit)


def check_store(store: Path) -> None:
    """Makes the folder of the results. Raises InputError if it cannot be written. Called before the
    cases are played."""
    try:  # only an attempt shows it
        store.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=store).close()
    except OSError as error:
        raise InputError(
            f"--store {store} cannot be written ({error.strerror}); give another folder"
        ) from None


def check_keep(keep: Path) -> None:
    """Raises InputError for a folder that exists already, or that cannot be made."""
    if os.path.lexists(keep):
        raise InputError(f"{keep} exists already; give a new folder for --keep")
    _check_parent("--keep", keep)


def check_junit(junit: Path) -> None:
    _check_parent("--junit", junit)
    if junit.is_dir():
        raise InputError(f"--junit {junit} is a folder; give a file")
    there = os.path.lexists(junit)
    try:  # only an attempt shows it: nothing can be created in /proc, whatever its permissions
        junit.open("ab").close()
    except OSError as error:
        raise InputError(
            f"--junit {junit} cannot be written ({error.strerror}); give another file"
        ) from None
    if not there:
        junit.unlink()


def _check_parent(option: str, path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(
            f"{option} {path}: there is no folder {parent}; make it, or give another path"
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{option} {path}: the folder {parent} cannot be written; give another path"
        )
