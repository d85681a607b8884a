"""The controller's log as records, in order: who registered, who was fenced, and which leader a
partition got."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.log.reference import ReferenceBatch

TOPIC: Final = "__cluster_metadata"
_TOPIC, _PARTITION_CHANGE, _BROKER_CHANGE, _REGISTER = 2, 5, 17, 27
_LEADER_TAG, _FENCED_TAG = 1, 0
Kind = Literal["registered", "fenced", "unfenced", "leader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One record. `broker`: who registered, was fenced or unfenced, or leads from now on (-1:
    nobody); `offset` in the log."""

    offset: int
    kind: Kind
    broker: int

    @property
    def words(self) -> str:
        return f"{self.kind} {self.broker} @ {self.offset}"


def changes(log: Iterable[ReferenceBatch], topic: str, partition: int = 0) -> list[Change]:
    """What the log says of brokers, and of the leader of one partition."""
    topic_id = b""
    found: list[Change] = []
    for record in records(log):
        value = record.value or b""
        _, at = _uvarint(value, 0)  # the version of the frame
        kind, at = _uvarint(value, at)
        _, at = _uvarint(value, at)
        if kind == _TOPIC:
            name, after = _string(value, at)
            if name == topic:
                topic_id = value[after : after + 16]
        elif (
            change := _change(kind, value[at:], (topic_id, partition), record.offset)
        ) is not None:
            found.append(change)
    return found


def _change(kind: int, body: bytes, wanted: tuple[bytes, int], offset: int) -> Change | None:
    if kind == _REGISTER:
        return Change(offset=offset, kind="registered", broker=_int(body, 0))
    if kind == _BROKER_CHANGE:
        # 1: fenced from now on, 255: no longer, 0: as before
        fenced = _tags(body, 12).get(_FENCED_TAG, b"\0")[0]
        named: Kind | None = {1: "fenced", 255: "unfenced"}.get(fenced)  # type: ignore[assignment]
        return Change(offset=offset, kind=named, broker=_int(body, 0)) if named else None
    if kind == _PARTITION_CHANGE and (body[4:20], _int(body, 0)) == wanted:
        leader = _tags(body, 20).get(_LEADER_TAG)
        return (
            Change(offset=offset, kind="leader", broker=_int(leader, 0))
            if leader is not None
            else None
        )
    return None


def _tags(data: bytes, at: int) -> dict[int, bytes]:
    """Tagged fields (KIP-482)."""
    count, at = _uvarint(data, at)
    found = {}
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        found[tag] = data[at : at + size]
        at += size
    return found


def _string(data: bytes, at: int) -> tuple[str, int]:
    size, at = _uvarint(data, at)
    return data[at : at + size - 1].decode(), at + size - 1


def _int(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">i", data, at)[0])


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


__all__ = ["TOPIC", "Change", "changes"]
