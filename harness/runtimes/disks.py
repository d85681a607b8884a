"""File systems of limited size or speed for a broker's log directory, on loop devices."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cleanup, ledger
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
        ledger.mount(self._folder, size=size)

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
        ledger.unmount(self._folder)
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


_FIRST: Final = Path("/sys/fs/cgroup/blkio")
_SECOND: Final = Path("/sys/fs/cgroup")
_LIMIT: Final = "blkio.throttle.write_bps_device"
_LIMIT_2: Final = "io.max"
_PATH: Final = f"{os.defpath}:/usr/sbin:/sbin"
_TOOL_WITHIN: Final = 60.0
_MADE_BY_EXT4: Final = "lost+found"
_ROOM: Final = 16 << 20
"""Minimum number of bytes that the file system needs for itself."""
_PROBE: Final = """
import os, sys, time
with open(sys.argv[1], "w") as group:
    group.write(str(os.getpid()))
with open(sys.argv[2], "wb", buffering=0) as file:
    began = time.monotonic()
    file.write(bytes(int(sys.argv[3])))
    print(time.monotonic() - began)
"""


class SlowDisk(SmallDisk):
    """The slow disk of one folder. Its methods are safe to call again. Needs root, ext4 and loop
    devices."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._image = folder.with_name(f"{folder.name}.image")
        first = (_FIRST / _LIMIT).exists() or (_FIRST / "cgroup.procs").exists()
        self._group = (_FIRST if first else _SECOND) / f"linkflap-{os.getpid()}-{name}"
        self._limit = self._group / (_LIMIT if first else _LIMIT_2)

    def _mount(self, size: int) -> None:
        with self._image.open("wb") as image:
            image.truncate(2 * size + _ROOM)
        _tool("mkfs.ext4", "-q", "-F", str(self._image))
        _tool("mount", "-t", "ext4", "-o", "loop,sync", str(self._image), str(self._folder))
        (self._folder / _MADE_BY_EXT4).rmdir()  # a broker treats every folder as a partition

    def slow(self, pid: int, *, rate: int) -> None:
        """From now on, a process writes to the disk at this many bytes per second. Raises
        SetupError."""
        device = os.stat(self._folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        try:
            ledger.add_folder(self._group)
            self._group.mkdir(exist_ok=True)
            if not self._limit.exists():
                (self._group.parent / "cgroup.subtree_control").write_text("+io")
            self._limit.write_text(
                f"{number} {rate}" if self._limit.name == _LIMIT else f"{number} wbps={rate}"
            )
            (self._group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise SetupError(
                f"what process {pid} writes cannot be limited ({error.strerror}, {error.filename});"
                " that takes root, and Linux with the control group blkio, or io of version 2"
            ) from error

    def seconds(self, size: int) -> float:
        """How long a process with the same limit takes to write this many bytes. Raises OSError."""
        probe = self._folder / ".linkflap-probe"
        words = [
            sys.executable,
            "-c",
            _PROBE,
            str(self._group / "cgroup.procs"),
            str(probe),
            str(size),
        ]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=_TOOL_WITHIN, check=True
            )
            return float(done.stdout)
        except subprocess.SubprocessError as error:
            raise OSError(0, f"a process could not write to {self._folder}: {error}") from error
        finally:
            probe.unlink(missing_ok=True)

    def unlimited(self, size: int) -> float:
        """How long this process takes, without a limit."""
        probe = self._folder / ".linkflap-probe"
        try:
            with probe.open("wb", buffering=0) as file:
                began = time.monotonic()
                file.write(bytes(size))
                return time.monotonic() - began
        finally:
            probe.unlink(missing_ok=True)

    def fast(self) -> None:
        """Removes the limit and the group. Its processes return to their previous group, or have
        ended."""
        if not self._group.exists():
            return
        for pid in (self._group / "cgroup.procs").read_text().split():
            (self._group.parent / "cgroup.procs").write_text(pid)
        self._group.rmdir()
        ledger.remove_folder(self._group)

    def _undo(self) -> None:
        super()._undo()
        self._image.unlink(missing_ok=True)


def _tool(name: str, *words: str) -> None:
    """Runs a system program. Raises OSError with its output."""
    found = shutil.which(name) or shutil.which(name, path=_PATH)
    if found is None:
        raise OSError(0, f"there is no {name}")
    done = subprocess.run(
        [found, *words], capture_output=True, text=True, timeout=_TOOL_WITHIN, check=False
    )
    if done.returncode:
        raise OSError(0, f"{name}: {done.stderr.strip()}")
