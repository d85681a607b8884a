"""Moves a folder to a separate disk that is small enough to be filled, and back.

Promises: the folder has the same content before, during and after, under the same path. Every
process that had it open was ended before. The mount is in the ledger, so that it does not outlive
the harness.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cleanup, ledger, mounts
from linkflap.harness.model.errors import SetupError

_FILLER: Final = ".linkflap-filler"
_BLOCK: Final = bytes(1 << 16)


class SmallDisk:
    """The small disk of one folder. Its methods are safe to call again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._below = folder.with_name(f"{folder.name}.below")

    @property
    def mounted(self) -> bool:
        return os.path.ismount(self._folder)

    @property
    def free(self) -> int:
        """Free space in bytes."""
        state = os.statvfs(self._folder)
        return state.f_bavail * state.f_frsize

    def put(self, *, spare: int) -> None:
        """Moves the folder's content to a disk with `spare` bytes of free space. Raises
        SetupError."""
        if self.mounted:
            return
        cleanup.start_watchdog()
        # Counts blocks, not bytes: sparse files stay sparse, and every file takes whole blocks.
        used = sum(path.stat().st_blocks * 512 + 4096 for path in self._folder.rglob("*"))
        self._folder.rename(self._below)
        self._folder.mkdir()
        shutil.copystat(self._below, self._folder)
        ledger.add_mount(self._folder)
        try:
            self._mount(used + spare)
            _copy(self._below, self._folder)
        except OSError as error:
            self._undo()
            raise SetupError(
                f"no disk of its own can be mounted on {self._folder} ({error.strerror}); that "
                "takes root, on Linux"
            ) from error

    def _mount(self, size: int) -> None:
        """Mounts an empty disk of this many bytes on the folder. Raises OSError."""
        mounts.mount(self._folder, size=size)

    def fill(self) -> None:
        """Leaves no free byte."""
        with (self._folder / _FILLER).open("ab", buffering=0) as filler:
            for block in (_BLOCK, bytes(512), b"\0"):
                try:
                    while filler.write(block):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def make_room(self) -> None:
        (self._folder / _FILLER).unlink(missing_ok=True)

    def take_back(self) -> None:
        """Moves the content back. All processes that used it must have ended."""
        if not self.mounted:
            return
        self.make_room()
        shutil.rmtree(self._below, ignore_errors=True)
        _copy(self._folder, self._below)
        self._undo()

    def _undo(self) -> None:
        mounts.unmount(self._folder)
        self._folder.rmdir()
        self._below.rename(self._folder)
        ledger.remove_mount(self._folder)


def _copy(source: Path, target: Path) -> None:
    """Copies files with their owners, and holes as holes."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_copy_sparse)
    for path in (source, *source.rglob("*")):
        there = target / path.relative_to(source)
        os.chown(there, path.stat().st_uid, path.stat().st_gid)


def _copy_sparse(source: str, target: str) -> None:
    with open(source, "rb") as there, open(target, "wb") as here:
        while block := there.read(1 << 16):
            if block.count(0) == len(block):
                here.seek(len(block), os.SEEK_CUR)
            else:
                here.write(block)
        here.truncate(there.tell())
    shutil.copystat(source, target)
