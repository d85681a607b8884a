"""libfaketime: preloaded into a process, it changes the time of day there, and leaves the monotonic
clock.

Promises: only the program that is started with it has it, and nothing is left behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

from linkflap.harness.model.errors import InputError

VARIABLE: Final = "LINKFLAP_FAKETIME"
"""Names the library where it is in none of the usual folders."""
_MONOTONIC: Final = ("FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0")
"""A JVM waits by its monotonic clock. Were that moved too, its threads would sleep too long; and
with what libfaketime 0.9.10 does by itself for such waits, they return at once: threads spin, and a
controller stands for election again and again."""
_ENV: Final = "/usr/bin/env"
_NAME: Final = "faketime/libfaketimeMT.so.1"
_FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
_SHARED: Final = Path("/dev/shm")
_NAMES: Final = ("faketime_shm_*", "sem.faketime_sem_*")


def library() -> Path:
    """Where it is, the one for programs with threads. Raises InputError where it is not
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
    """What goes before a command, so that its clock is so many seconds ahead, or behind where less
    than 0. Raises InputError."""
    return [_ENV, f"LD_PRELOAD={library()}", f"FAKETIME={seconds:+g}", *_MONOTONIC]


def forget(pid: int | None) -> None:
    """Removes the names of what a process with it shares with its children, which it would leave
    behind when it is killed; and those of such processes that have ended."""
    for path in (*_SHARED.glob(_NAMES[0]), *_SHARED.glob(_NAMES[1])):
        number = path.name.rpartition("_")[2]
        if number.isdecimal() and (int(number) == pid or not psutil.pid_exists(int(number))):
            path.unlink(missing_ok=True)
