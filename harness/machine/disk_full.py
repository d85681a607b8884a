"""Why a run directory can no longer be written: a write failed, or the disk is nearly full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import EnvironmentFailure

LEAST_ROOM: Final = 256 * 1024
"""Bytes of its disk that a run leaves free: to say how it ended. A disk with less is full."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Breakage:
    """Why a run directory can no longer be written: the first write that failed. Safe from several
    threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.reason: EnvironmentFailure | None = None

    def because(self, error: OSError) -> EnvironmentFailure:
        """Notes a failed write, and returns what is to be raised for it, or for the one before."""
        if self.reason is None:
            self.reason = unwritable(self._root, error)
        return self.reason

    def look(self) -> EnvironmentFailure | None:
        """The reason, if there is one now; a disk that is nearly full is one."""
        if self.reason is None and room(self._root) < LEAST_ROOM:
            self.because(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return self.reason


def is_full(error: OSError) -> bool:
    """Whether a disk, or somebody's share of it, has no room."""
    return error.errno in _FULL


def unwritable(root: Path, error: OSError) -> EnvironmentFailure:
    """The sentence for a run directory that cannot be written to."""
    if is_full(error):
        return EnvironmentFailure(
            f"no space left for the run directory {root}; free some on its disk, or name a folder "
            "on another disk with --out"
        )
    return EnvironmentFailure(
        f"the run directory {root} can no longer be written ({error.strerror}); check its disk, or "
        "name another with --out"
    )


def room(folder: Path) -> float:
    """Bytes that may yet be written to a folder's disk; infinity where the file system does not
    say."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return float("inf")
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # some are kept for root
    return blocks * disk.f_frsize if disk.f_blocks else float("inf")
