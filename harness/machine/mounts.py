"""Mounts file systems in memory on folders of this machine (mount(2)); only root may do so."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from linkflap.harness.machine import trusted_folders

_DETACH: Final = 2


def mount(folder: Path, *, size: int) -> None:
    """Mounts an empty tmpfs of so many bytes on `folder`. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"linkflap", os.fsencode(folder), b"tmpfs", 0, f"size={size},mode=0755".encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def unmount(folder: Path) -> bool:
    """Whether something was mounted there; it is gone then, at the latest when the last file in it
    is closed. Raises Untrusted where somebody else could have put a link in its way."""
    if folder.is_symlink() or not os.path.ismount(folder):
        return False
    trusted_folders.check(folder.parent)
    libc = ctypes.CDLL(None, use_errno=True)
    return not libc.umount2(os.fsencode(folder), _DETACH)
