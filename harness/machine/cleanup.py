"""Nothing outlives the harness: a watchdog removes its leftovers, and `clean` does so if the
watchdog died too.

Children die with the harness by themselves (`harness.machine.children`). The watchdog removes the
children that this did not reach, and folders and leases. It acts within a second of the harness's
death. Watchdog and `clean` touch only what the ledger entry of a dead owner lists
(`harness.machine.ledger`).
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from linkflap.harness.machine import ledger, process_identity, trusted_folders
from linkflap.harness.machine.engine_leftovers import Removed, StillThere
from linkflap.harness.model.errors import SetupError
from linkflap.harness.version import INSTALLED

_watched = 0
_lock = threading.Lock()


def clean() -> Removed:
    """Ends and removes the leftovers of dead owners. If something could not be removed, the entry
    stays for the next time."""
    cleaned = Removed()
    with ledger.machine_lock():
        for entry in ledger.entries():
            if not process_identity.alive(entry.owner):
                try:
                    for thing in ledger.end(entry):
                        cleaned.removed.append(thing)
                except StillThere as error:
                    cleaned.left.extend(error.sentences)
                    if entry.attached or entry.made:
                        path = ledger.path_of(entry.owner)
                        cleaned.left.append(f"to forget what is left there, delete {path}")
    return cleaned


@contextlib.contextmanager
def temporary_folder(prefix: str = "linkflap-") -> Iterator[Path]:
    """A folder that is removed at the end of the block, or after this process' death."""
    path = private_folder(prefix)
    try:
        yield path
    finally:
        ledger.remove_folder(path)


def private_folder(prefix: str = "linkflap-") -> Path:
    """A folder that only this user can read; removed by `ledger.remove_folder`, or after this
    process' death."""
    start_watchdog()
    try:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=trusted_folders.temporary()))
    except trusted_folders.Untrusted as error:
        raise SetupError(
            f"temporary files are not safe there ({error}); set TMPDIR to a folder that only you "
            "can write"
        ) from None
    ledger.add_folder(path)
    return path


def start_watchdog() -> None:
    """Starts the watchdog of this process, once. It has a session of its own, so no signal of a
    terminal reaches it."""
    global _watched
    with _lock:
        if _watched == os.getpid():
            return
        mine = ledger.own().owner
        root = str(INSTALLED)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        }
        command = [
            sys.executable,
            "-P",  # not what lies where the user stands
            "-m",
            "linkflap.harness.machine.cleanup",
            str(mine.pid),
            mine.born,
        ]
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        # Not subprocess: this child is meant to outlive us, and a Popen that is never waited for
        # warns about just that.
        os.posix_spawn(sys.executable, command, environment, file_actions=null, setsid=True)
        _watched = os.getpid()


def _wait_for_end(owner: process_identity.Identity) -> None:
    """Returns when the owner is dead, also when its parent never reaps it."""
    try:
        handle = os.pidfd_open(owner.pid)
    except (AttributeError, OSError):
        handle = -1
    gone = threading.Event()
    while process_identity.alive(owner):
        if handle >= 0:
            select.select([handle], [], [], 5)
        else:
            gone.wait(0.5)


def main() -> None:
    """The watchdog: waits for the owner's death, then ends what it left."""
    os.chdir("/")
    owner = process_identity.Identity(pid=int(sys.argv[1]), born=sys.argv[2])
    _wait_for_end(owner)
    with ledger.machine_lock():
        for entry in ledger.entries():
            if entry.owner == owner:
                with contextlib.suppress(StillThere):  # the entry stays for `clean`
                    list(ledger.end(entry))


if __name__ == "__main__":
    main()
