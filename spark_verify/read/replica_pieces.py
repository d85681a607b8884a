"""Assembles one replica from the rows of its pieces: batches and records as columns, its bounds,
and its damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log.coordinators import (
    CoordinatorEntry,
    GroupCommit,
    GroupMembers,
    TransactionState,
)
from linkflap.spark_verify.facts.view import WHOLE, Batches, Records, Replica
from linkflap.spark_verify.read.rows import HEADER_FIELDS, RECORD_FIELDS

_BATCH: Final = RECORD_FIELDS.index("batch")


_FLAGS: Final = ("crc_ok", "transactional")


ReplicaKey = tuple[str, str, int]
"""Moment, cluster and broker of one captured replica."""


Chunk = tuple[int, int, NDArray[np.int64], NDArray[np.int64]]
"""Piece of the log, place of the first batch in it, headers and records, a line each."""


def overlap_or_damaged(pieces: Sequence[Mapping[str, Any]]) -> bool:
    """Whether pieces do not add up to a log: one begins before the end of those before it, which is
    damage that none of them can tell; or records of ours are in some of them only, where all of a
    log is decoded or nothing.
    """
    filled = [piece for piece in pieces if piece["lowest"] is not None]
    reached = accumulate((piece["highest"] for piece in filled), max)
    early = any(
        after["lowest"] <= highest for highest, after in zip(reached, filled[1:], strict=False)
    )
    return early or {piece["decoded"] for piece in pieces} >= {True, False}


def replica_of(
    key: ReplicaKey, heads: Mapping[int, Mapping[str, Any]], chunks: list[Chunk]
) -> tuple[bool, Replica]:
    """One replica from the rows of its pieces and the chunks of its log, which are used up."""
    moment, cluster, broker = key
    chunks.sort(key=lambda chunk: chunk[:2], reverse=True)
    headers = np.empty((len(HEADER_FIELDS), sum(len(h) for *_, h, _ in chunks)), np.int64)
    records = np.empty((len(RECORD_FIELDS), sum(len(r) for *_, r in chunks)), np.int64)
    at, begins = [0, 0], dict[int, int]()
    while chunks:
        piece, _, *parts = chunks.pop()
        begin, start = begins.setdefault(piece, at[0]), at[1]
        for number, (whole, part) in enumerate(zip((headers, records), parts, strict=True)):
            whole[:, at[number] : at[number] + len(part)] = part.T
            at[number] += len(part)
        records[_BATCH, start : at[1]] += begin
    head = heads[min(heads)]
    fields: dict[str, Any] = dict(zip(HEADER_FIELDS, headers, strict=True))
    fields |= {name: fields[name] != 0 for name in _FLAGS}
    return head["last"], Replica(
        cluster=cluster,
        broker=broker,
        leader=head["leader"],
        canonical=head["canonical"],
        log_start=head["log_start"],
        high_watermark=head["high_watermark"],
        high_watermark_from=head["high_watermark_from"],
        last_stable=head["last_stable"],
        stable_above=head["stable_above"],
        batches=Batches(**fields),
        records=Records(**dict(zip(RECORD_FIELDS, records, strict=True))),
        damage=tuple(
            d
            for what in ("damage", "unreadable")
            for piece in sorted(heads)
            for d in heads[piece][what]
        ),
        moment=moment,
        captured=head["captured"],
        torn_from=_torn_from([heads[piece] for piece in sorted(heads)]),
        unread=_united(_unread([heads[piece] for piece in sorted(heads)])),
        entries=tuple(
            entry for piece in sorted(heads) for entry in _entries(heads[piece]["entries"])
        ),
    )


def _entries(encoded: bytes | None) -> list[CoordinatorEntry]:
    """What coordinators wrote into one piece of a log, in its order (`spark_verify.read.rows`)."""
    written = msgspec.json.decode(encoded, type=dict[str, list[dict[str, Any]]]) if encoded else {}
    found: list[CoordinatorEntry] = []
    for kind in (TransactionState, GroupCommit, GroupMembers):
        found += msgspec.convert(written.get(kind.__name__, []), type=list[kind])  # type: ignore[valid-type]
    return sorted(found, key=lambda entry: entry.offset)


def _unread(pieces: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """The offsets that no piece could read; what is missing at a piece's end or beginning reaches
    to its neighbour."""
    reached = -1
    for n, piece in enumerate(pieces):
        behind = (p["lowest"] for p in pieces[n + 1 :] if p["lowest"] is not None)
        ends = next(behind, WHOLE)
        for start, end in piece["unread"]:
            yield max(start, reached + 1), ends if end == -1 else end
        reached = max(reached, -1 if piece["highest"] is None else piece["highest"])


def _united(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same offsets [start, end) in ranges that neither touch nor overlap, in their order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(each for each in ranges if each[0] < each[1]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def _torn_from(pieces: Sequence[Mapping[str, Any]]) -> int:
    """Where the first piece with damage is torn; if it begins with that, where those before it
    end."""
    reached = -1
    for piece in pieces:
        if piece["torn_from"] is not None:
            return max(int(piece["torn_from"]), reached + 1)
        reached = max(reached, -1 if piece["highest"] is None else piece["highest"])
    return WHOLE
