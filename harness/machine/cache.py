"""What is fetched or made once per user and shared by all runs: complete or not there at all.

The folder is the user's cache directory, or $LINKFLAP_CACHE. First use takes from seconds to minutes, so what is being made is
reported to the logger `linkflap`, which the command line shows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from linkflap.harness.model.errors import SetupError

LOG: Final = logging.getLogger("linkflap")


def folder() -> Path:
    """The cache folder; made when missing. Raises SetupError when it cannot be written."""
    override = os.environ.get("LINKFLAP_CACHE")
    path = Path(override).absolute() if override else user_cache_path("linkflap")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the cache folder {path} cannot be made ({error.strerror}); set LINKFLAP_CACHE to a folder that can be written"
        ) from error
    return path


def kept(name: str) -> Path | None:
    """The folder `name` of the cache, if it was made."""
    path = folder() / name
    return path if path.is_dir() else None


def once(name: str, make: Callable[[Path], None], *, doing: str) -> Path:
    """The folder `name` of the cache, filled by `make` if it is not there yet.

    `make` fills a folder beside it, which is renamed when it is complete; other processes wait. Whatever `make` raises
    leaves nothing behind; what the file system refuses is a SetupError. `doing` says what `make` does, for whoever waits.
    """
    final = folder() / name
    if final.is_dir():
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(final.parent / f".{final.name}.lock")
        with _held(lock, doing):
            if not final.is_dir():
                _fill(final, make, doing)
    except OSError as error:
        raise SetupError(
            f"{doing} failed in the cache folder {folder()} ({error.strerror or error}); make room there, make it writable, or "
            "set LINKFLAP_CACHE to another folder"
        ) from error
    return final


@contextlib.contextmanager
def _held(lock: FileLock, doing: str) -> Iterator[None]:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        LOG.info("first use: waiting for another process that is %s", doing)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fill(final: Path, make: Callable[[Path], None], doing: str) -> None:
    # We hold the lock: whatever lies here was left by a process that was killed.
    for left in final.parent.glob(f".{final.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    LOG.info("first use: %s", doing)
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
    try:
        make(partial)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
