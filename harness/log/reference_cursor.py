"""A cursor over the fields of a record, read one after the other."""

from __future__ import annotations


class MalformedBatch(ValueError):
    """Bytes that are no record batch. Never leaves `harness.log`, except from this module's own
    functions."""


class Cursor:
    """Reads a record's fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self._data):
            raise MalformedBatch(
                f"{size} bytes wanted at byte {self.position} of {len(self._data)}"
            )
        self.position += size
        return self._data[self.position - size : self.position]

    def varint(self, bits: int = 32) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift >= bits:
                raise MalformedBatch(
                    f"a varint of more than {bits} bits before byte {self.position}"
                )
        value &= (1 << bits) - 1
        return (value >> 1) ^ -(value & 1)

    def nullable(self) -> bytes | None:
        length = self.varint()
        if length < -1:
            raise MalformedBatch(f"length {length} before byte {self.position}")
        return None if length == -1 else self.take(length)

    def at_end(self) -> bool:
        return self.position == len(self._data)
