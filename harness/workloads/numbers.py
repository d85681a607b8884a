"""Numbers of producer and reader incarnations: from 1, each used once in a run, across all
processes. A small file with a lock keeps the last one. The kernel releases the lock when its holder
is killed, so that no other process waits for it."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path


class Numbers:
    """The numbers of one run. Safe from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # the kernel's lock is per process, not per thread

    def next(self) -> int:
        """The number of a new incarnation."""
        with self._lock:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX)
                number = int(os.pread(handle, 32, 0) or b"0") + 1
                os.pwrite(handle, b"%d" % number, 0)
                return number
            finally:
                os.close(handle)
