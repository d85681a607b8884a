"""Cuts one direction of a connection into Kafka's frames, while its bytes pass.

Only frames that somebody wants are kept, in memory of their own; of all others the beginning alone
is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from linkflap.harness.wire.messages import LENGTH, REQUEST_HEAD, Malformed, frame_length

REQUEST_BEGINS: Final = REQUEST_HEAD.size
RESPONSE_BEGINS: Final = LENGTH.size
"""A correlation id."""


class Frames:
    """`wanted` gets the first `begins` bytes of each frame, without its length, and says whether
    `ended` is to get all of it."""

    def __init__(
        self, begins: int, wanted: Callable[[bytes], bool], ended: Callable[[memoryview], None]
    ) -> None:
        self._begins, self._wanted, self._ended = begins, wanted, ended
        self._head = bytearray()
        self._frame = bytearray()
        self._got = self._left = 0

    def feed(self, data: memoryview) -> None:
        """The next bytes. Raises Malformed where no frame of Kafka's can begin."""
        at = 0
        while at < len(data):
            if self._left:
                at += self._take(data[at : at + self._left])
            else:
                missing = LENGTH.size + self._begins - len(self._head)
                self._head += data[at : at + missing]
                at += min(missing, len(data) - at)
                if len(self._head) == LENGTH.size + self._begins:
                    self._begin()

    def _take(self, some: memoryview) -> int:
        size = len(some)
        if self._frame:
            self._frame[self._got : self._got + size] = some
            self._got += size
        self._left -= size
        if not self._left:
            self._end()
        return size

    def _begin(self) -> None:
        length = frame_length(self._head[: LENGTH.size])
        if length < self._begins:
            raise Malformed(f"it announces a frame of {length} bytes")
        head = bytes(self._head[LENGTH.size :])
        self._head.clear()
        self._left = length - self._begins
        if self._wanted(head):
            self._frame = bytearray(length)
            self._frame[: self._begins] = head
            self._got = self._begins
        if not self._left:
            self._end()

    def _end(self) -> None:
        frame, self._frame = self._frame, bytearray()
        if frame:
            self._ended(memoryview(frame))
