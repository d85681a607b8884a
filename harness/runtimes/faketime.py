"""libfaketime: preloaded into a process, it changes the wall-clock time there, but not the
monotonic clock.

Promises: it only affects the program that is started with it, and leaves nothing behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

from linkflap.harness.model.errors import InputError

VARIABLE: Final = "LINKFLAP_FAKETIME"
"""Names the library if it is in none of the usual folders."""
_MONOTONIC: Final = ("FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0")
"""A JVM waits by its monotonic clock. If that were shifted too, its threads would sleep too long.
libfaketime 0.9.10's own handling of such waits makes them return at once: threads spin, and a
controller repeatedly stands for election."""
_ENV: Final = "/usr/bin/env"
_NAME: Final = "faketime/libfaketimeMT.so.1"
_FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
_SHARED: Final = Path("/dev/shm")
_NAMES: Final = ("faketime_shm_*", "sem.faketime_sem_*")


def library() -> Path:
    """The path of the library for multi-threaded programs. Raises InputError if it is not
    installed."""
    if named := os.environ.get(VARIABLE):
        if Path(named).is_file():
            return Path(named).absolute()
        raise InputError(
            f"{VARIABLE} names {named}, which is no file; name libfaketimeMT.so.1, or unset it"
        )
    found = [
        path
        for folder in _FOLDERS
        for path in (folder / _NAME, *folder.glob(f"*/{_NAME}"))
        if path.is_file()
    ]
    if not found:
        raise InputError(
            "a clock is set by libfaketime, which is not installed; install the package "
            f"libfaketime (apt install libfaketime), or name its libfaketimeMT.so.1 in {VARIABLE}"
        )
    return found[0]


def command(seconds: float) -> list[str]:
    """The words before a command that shift its clock by this many seconds, back if negative.
    Raises InputError."""
    return [_ENV, f"LD_PRELOAD={library()}", f"FAKETIME={seconds:+g}", *_MONOTONIC]


def forget(pid: int | None) -> None:
    """Removes the shared-memory names of a killed process, which it leaves behind, and those of
    other such processes that have ended."""
    for path in (*_SHARED.glob(_NAMES[0]), *_SHARED.glob(_NAMES[1])):
        number = path.name.rpartition("_")[2]
        if number.isdecimal() and (int(number) == pid or not psutil.pid_exists(int(number))):
            path.unlink(missing_ok=True)
