"""Mounts file systems in memory on folders of this machine (mount(2)); only root may do so."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_DETACH: Final = 2


def mount(folder: Path, *, size: int) -> None:
    """Mounts an empty tmpfs of so many bytes on `folder`. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"linkflap", os.fsencode(folder), b"tmpfs", 0, f"size={size},mode=0755".encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def unmount(folder: Path) -> bool:
    """Whether something was mounted there; it is gone then, at the latest when the last file in it
    is closed."""
    if not os.path.ismount(folder):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return not libc.umount2(os.fsencode(folder), _DETACH)
