"""What a path leads to instead of a file: opening a FIFO waits for a writer, and a device may not
end."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def special(path: Path) -> str:
    """What is there instead of a file, links followed; empty of a file. Raises OSError where
    nothing is."""
    mode = path.stat().st_mode
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")
