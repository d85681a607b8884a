"""The cache of files that are fetched or built once per user and shared by all runs. An entry is
complete or absent.

The folder is $LINKFLAP_CACHE, or else the user's cache directory. Where that cannot be written (a
container's user without a home), it is a folder of the user in the temporary directory. First use
takes from seconds to minutes, so linkflap reports the work to the logger `linkflap`, which the
command line shows.
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

from linkflap.harness.machine import cleanup, ledger, trusted_folders
from linkflap.harness.model.errors import SetupError

LOG: Final = logging.getLogger("linkflap")
COMPILED: Final = "numba"
"""Where in it compiled functions are kept (`harness.machine.compiled`)."""
_OF_NUMBA: Final = "*/*.nbi"


def has_compiled() -> bool:
    """Whether functions were compiled before."""
    return any((folder() / COMPILED).glob(_OF_NUMBA))


def name_compiled() -> bool:
    """Names the folder of compiled functions in the environment, for this process and its children.
    False where none can be made."""
    own = optional(COMPILED)
    if own is not None:
        os.environ.setdefault("NUMBA_CACHE_DIR", str(own))
    return own is not None


def optional(name: str) -> Path | None:
    """A folder of the cache for what is only made faster by it; None where none can be made."""
    try:
        own = folder() / name
        own.mkdir(mode=0o700, exist_ok=True)
    except (SetupError, OSError):
        return None
    return own


OFFLINE: Final = "LINKFLAP_OFFLINE"
"""The environment variable that forbids downloads, unless it is empty or says no."""
_NO: Final = frozenset({"", "0", "f", "false", "n", "no", "off"})


def is_offline() -> bool:
    return os.environ.get(OFFLINE, "").lower() not in _NO


def check_online(*missing: str) -> None:
    """Raises SetupError where something is missing in the cache and nothing may be downloaded."""
    if missing and is_offline():
        *some, last = missing
        what = f"{', '.join(some)} and {last} are" if some else f"{last} is"
        raise SetupError(
            f"{what} not in the cache {folder()}, and linkflap is offline (--offline or "
            f"{OFFLINE}); run linkflap fetch on a network first, with --kafka for other releases"
        )


def folder() -> Path:
    """The cache folder; made when missing. Raises SetupError when none can be."""
    if override := os.environ.get("LINKFLAP_CACHE"):
        return _made(Path(override).absolute())
    if usual().is_absolute():  # it begins with ~ for a user who is not in the list of users
        with contextlib.suppress(SetupError):
            if os.access(_made(usual()), os.W_OK | os.X_OK):
                return usual()
    return _made(_temporary())


def usual() -> Path:
    """Where the user's cache folder would be."""
    return user_cache_path("linkflap")


def is_temporary(path: Path) -> bool:
    """Whether the cache is the one in the temporary directory."""
    return path == _temporary()


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"linkflap-cache-{os.getuid()}"


def home_is_writable() -> bool:
    """Whether programs that keep things in the user's home can: Go, Maven, matplotlib."""
    home = Path.home() if "HOME" in os.environ else None
    return home is not None and os.access(home, os.W_OK | os.X_OK)


def _made(path: Path) -> Path:
    try:
        trusted_folders.check(path, make=True)
    except (trusted_folders.Untrusted, OSError) as error:
        what = (
            f"cannot be trusted ({error})"
            if isinstance(error, trusted_folders.Untrusted)
            else f"cannot be made ({error.strerror})"
        )
        raise SetupError(
            f"the cache folder {path} {what}; set LINKFLAP_CACHE to a folder that can be written, "
            "by nobody but you"
        ) from error
    return path


def kept(name: str) -> Path | None:
    """The folder `name` of the cache, if it was made."""
    path = folder() / name
    return path if path.is_dir() else None


def once(name: str, make: Callable[[Path], None], *, doing: str, downloads: str = "") -> Path:
    """The folder `name` of the cache, filled by `make` if it is not there yet, which may not be
    where `make` `downloads` something (its name) and linkflap is offline.

    `make` fills a folder beside it, which is renamed when it is complete; other processes wait. If
    `make` raises, nothing is left behind; an error of the file system is a SetupError. `doing`
    describes the work for those who wait.
    """
    final = folder() / name
    if final.is_dir():
        return final
    if downloads:
        check_online(downloads)
    try:
        final.parent.mkdir(mode=0o700, exist_ok=True)
        lock = FileLock(final.parent / f".{final.name}.lock")
        with _held(lock, doing):
            if not final.is_dir():
                _fill(final, make, doing)
    except OSError as error:
        raise SetupError(
            f"{doing} failed in the cache folder {folder()} ({error.strerror or error}); make room "
            "there, make it writable, or set LINKFLAP_CACHE to another folder"
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


def is_partial(path: Path) -> bool:
    """Whether a path is in a folder that is being made: it is deleted if that fails."""
    return any(part.startswith(".") and ".partial-" in part for part in path.parts)


def _fill(final: Path, make: Callable[[Path], None], doing: str) -> None:
    LOG.info("first use: %s", doing)
    partial = _partial_of(final)
    try:
        make(partial)
        partial.rename(final)
    finally:
        ledger.remove_folder(partial)


def _partial_of(final: Path) -> Path:
    """An empty folder beside `final`, which does not outlive this process. The caller holds the
    lock: whatever is left there is of a process that was killed."""
    for left in final.parent.glob(f".{final.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    cleanup.start_watchdog()
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
    ledger.add_folder(partial)
    return partial


class BegunEntry:
    """An entry of the cache that is made beside other work; no caller waits for it."""

    def __init__(self, final: Path, lock: FileLock) -> None:
        self._final, self._lock, self.folder = final, lock, _partial_of(final)

    def end(self, *, complete: bool) -> None:
        """Puts the folder in its place if it is complete, else removes it."""
        try:
            if complete:
                self.folder.rename(self._final)
        finally:
            ledger.remove_folder(self.folder)
            self._lock.release()


def begun(name: str) -> BegunEntry | None:
    """The entry `name`, to be filled and ended by the caller; None where it is there already, or
    another process makes it. Raises SetupError where the file system has an error."""
    final = folder() / name
    try:
        final.parent.mkdir(mode=0o700, exist_ok=True)
        lock = FileLock(final.parent / f".{final.name}.lock", thread_local=False)
        lock.acquire(timeout=0)
        if not final.is_dir():
            return BegunEntry(final, lock)
        lock.release()
    except Timeout:
        return None
    except OSError as error:
        raise SetupError(f"{final} cannot be made ({error.strerror or error})") from error
    return None
