"""Copies logs from a certain offset on: the copied partition folder is that of a log that begins
there."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Since = Mapping[tuple[str, str, int], int]
"""(cluster, topic, partition) -> the offset from which on it is captured; of what is not in it all
is."""
_HEAD: Final = struct.Struct(">qi11xi")
"""Base offset, length, and what there is up to the last offset delta, of a batch of format 2."""
_FRAME: Final = 12
"""Bytes before what the length counts."""


def drop_before(folder: Path, offset: int) -> None:
    """Takes the batches that end below `offset` from the beginning of the copy of a log.

    What follows stays as it is, byte for byte, in a segment that is named for its first offset, as
    Kafka names them.
    """
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        position = _first_after(content, offset)
        if position == 0:
            return
        path.unlink()
        if position < len(content):
            base = _HEAD.unpack_from(content, position)[0]
            (folder / f"{base:020d}.log").write_bytes(content[position:])
            return
    (folder / f"{offset:020d}.log").touch()


def _first_after(content: bytes, offset: int) -> int:
    """The position of the first batch that reaches `offset`; the end if none does. A torn batch
    counts as reaching every offset."""
    position = 0
    while position + _HEAD.size <= len(content):
        base, length, delta = _HEAD.unpack_from(content, position)
        if base + delta >= offset or length <= 0:
            return position
        position += _FRAME + length
    return position if position < len(content) else len(content)
