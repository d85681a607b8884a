"""Reads the logs of mirrored partitions from the brokers' own files: the promotion offset, the
offset where two logs diverge, and when a log is truncated because its cluster becomes a destination
again.

Describe may be late, stale or unanswered; the bytes are not. The results are recorded as events,
and later compared with the captured logs.

When a verb is accepted, nothing is truncated yet. The build first gets the source's metadata and
raises leader epochs, and truncates one to several seconds later. Until then the leader serves its
old log to clients. New records may follow a truncation within milliseconds, so the log's end and
size prove nothing. A watch compares the bytes where the two logs diverge. It reads them and does
not map them: a truncated mapping kills the process that reads it (SIGBUS).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers, reset_rows
from linkflap.harness.model.events import JournalPartition
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.threads import Background
from linkflap.harness.model.topology import TopicPartition

_SAME: Final = ("base_offset", "length", "crc", "leader_epoch")
"""The header fields in which two logs' batches must agree to be the same batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where a log leaves another: the first offset that it alone has, and where it ends."""

    offset: int
    end: int


def longest_log(cluster: Cluster, tp: TopicPartition) -> Headers | None:
    """The headers of a partition's longest replica; None when no broker has one."""
    # imported here, because numba takes a second to import, which callers that read no log need not
    # pay
    from linkflap.harness.log import batches

    found = [
        batches.scan(segments, sums=False).headers
        for broker in cluster.brokers.values()
        if (segments := segments_of(broker.log_dir, tp))
    ]
    return max(found, key=end_of, default=None)


def segments_of(log_dir: Path, tp: TopicPartition) -> list[Path]:
    """The segment files of a replica, in offset order."""
    from linkflap.harness.log.segments import offset_in

    return sorted(
        path for path in (log_dir / f"{tp[0]}-{tp[1]}").glob("*.log") if offset_in(path.name) >= 0
    )


def end_of(headers: Headers) -> int:
    """The offset after the last batch; 0 for an empty log."""
    return int(headers.last_offset[-1]) + 1 if len(headers) else 0


def journal(tp: TopicPartition, headers: Headers) -> JournalPartition | None:
    """The records that a stop appended to a log; None when there is no reset record. `mirrored` is
    where the destination's own records begin."""
    mirrored = promotion_offset(headers)
    if mirrored is None:
        return None
    rows = np.flatnonzero(headers.base_offset >= mirrored)
    reset = int(np.flatnonzero(headers.control == layout.OTHER_CONTROL)[-1])
    epochs = headers.leader_epoch[: int(rows[0])]
    begins = np.flatnonzero(np.diff(epochs, prepend=-1))
    return JournalPartition(
        topic=tp[0],
        partition=tp[1],
        mirrored=mirrored,
        promoted=int(headers.last_offset[reset]) + 1,
        truncated=(),
        appended=tuple(
            (int(headers.base_offset[row]), _named(headers, row))
            for row in rows[rows <= reset].tolist()
        ),
        epochs=tuple((int(epochs[row]), int(headers.base_offset[row])) for row in begins.tolist()),
    )


def journal_rows(logs: Mapping[TopicPartition, Headers]) -> tuple[JournalPartition, ...]:
    """The records that a stop appended, for each log with a reset record."""
    return tuple(
        found for tp, headers in logs.items() if (found := journal(tp, headers)) is not None
    )


def _named(headers: Headers, row: int) -> str:
    if headers.control[row] != layout.ABORT:
        return "producer-id reset"
    return f"ABORT of producer {headers.producer_id[row]}, epoch {headers.producer_epoch[row]}"


def promotion_offset(headers: Headers) -> int | None:
    """Where the destination's own records begin: at the ABORT markers directly before the last
    reset record, in the same leader epoch, or at the reset record itself.

    None when there is no reset record. Type 7 (MIRROR_PID_RESET) is the only control record besides
    markers in data partitions.
    """
    rows = reset_rows(headers)
    return int(headers.base_offset[rows[-1][0]]) if rows else None


def reset_count(headers: Headers) -> int:
    """The number of reset records in a log."""
    return int(np.count_nonzero(headers.control == layout.OTHER_CONTROL))


def first_difference(before: Headers, other: Headers) -> FirstDifference | None:
    """The first difference of `before` from `other`, batch by batch from the later of their start
    offsets. None when `other` has all of it."""
    if not len(before):
        return None
    start = max(int(before.base_offset[0]), int(other.base_offset[0]) if len(other) else 0)
    mine, theirs = _from(before, start), _from(other, start)
    shorter = min(len(mine), len(theirs))
    differs = np.flatnonzero((mine[:shorter] != theirs[:shorter]).any(axis=1))
    at = int(differs[0]) if len(differs) else shorter
    return FirstDifference(offset=int(mine[at][0]), end=end_of(before)) if at < len(mine) else None


def _from(headers: Headers, start: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    columns = np.stack([np.asarray(getattr(headers, name), np.int64) for name in _SAME], axis=1)
    return columns[headers.base_offset >= start]


def every_log(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Headers]:
    """The headers of the longest replica of each partition."""
    found = {tp: longest_log(cluster, tp) for tp in partitions}
    return {tp: headers for tp, headers in found.items() if headers is not None}


_EVERY: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The tail of a replica's log after the point where it diverges from the source's: the file,
    the position in it, and the bytes there.

    Empty bytes: the replica has nothing that the source lacks, so anything appended there comes
    from the source.
    """

    path: Path
    position: int
    bytes: bytes

    @property
    def gone(self) -> bool:
        """Whether the bytes were replaced, or the file was deleted."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                return file.read(len(self.bytes) or 1) != self.bytes
        except OSError:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBefore:
    """A log before it follows the source: its end, and the files and headers of each replica that
    reaches that end."""

    replicas: tuple[tuple[tuple[Path, ...], Headers], ...]
    end: int


def logs_of(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, LogBefore]:
    """The logs of these partitions on a cluster. Called before the cluster becomes a
    destination."""
    from linkflap.harness.log import batches

    found: dict[TopicPartition, LogBefore] = {}
    for tp in partitions:
        files = [
            tuple(segments_of(broker.log_dir, tp))
            for broker in cluster.brokers.values()
            if broker.state == "running"
        ]
        replicas = [(paths, batches.scan(paths, sums=False).headers) for paths in files if paths]
        if replicas:
            end = max(end_of(headers) for _, headers in replicas)
            # A replica that is behind still appends records of the old log first.
            found[tp] = LogBefore(
                replicas=tuple(replica for replica in replicas if end_of(replica[1]) == end),
                end=end,
            )
    return found


def expected_tails(log: LogBefore, source: Headers) -> tuple[FirstDifference, list[Tail]]:
    """Where a log has to be truncated (at its end, if the source has all of it), and the tails of
    its replicas there."""
    where = first_difference(log.replicas[0][1], source) or FirstDifference(
        offset=log.end, end=log.end
    )
    return where, [_tail(paths, headers, where.offset) for paths, headers in log.replicas]


def _tail(paths: tuple[Path, ...], headers: Headers, offset: int) -> Tail:
    rows = np.flatnonzero(headers.base_offset >= offset)
    if len(rows):
        path, position = paths[int(headers.segment[rows[0]])], int(headers.position[rows[0]])
        with path.open("rb") as file:
            file.seek(position)
            return Tail(path=path, position=position, bytes=file.read(layout.HEADER_SIZE))
    return Tail(path=paths[-1], position=paths[-1].stat().st_size, bytes=b"")


class TruncationWatch(Background):
    """Polls until every log was truncated. Calls `note` once per log, when the truncation is seen.
    Truncations that were never seen are not noted."""

    def __init__(
        self,
        tails: Mapping[TopicPartition, tuple[FirstDifference, list[Tail]]],
        note: Callable[[TopicPartition, FirstDifference], None],
    ) -> None:
        super().__init__("the watch of truncations", self._look)
        self._left, self._note = dict(tails), note
        self.start()

    def _look(self) -> None:
        while self._left and not self.stopping.wait(_EVERY):
            self._look_once()

    def _look_once(self) -> None:
        for tp, (where, tails) in list(self._left.items()):
            if any(tail.gone for tail in tails):
                del self._left[tp]
                self._note(tp, where)

    @property
    def not_yet_truncated(self) -> list[TopicPartition]:
        """Partitions that have to lose records and were not seen truncated yet."""
        return [tp for tp, (where, _) in list(self._left.items()) if where.offset < where.end]

    def close(self) -> None:
        """Polls once more, so that every truncation before this call is noted when it returns. Safe
        to call again."""
        if not self.stopping.is_set():
            self.stop()
            self._look_once()


def watch_truncations(
    source: Cluster,
    destination: Cluster,
    partitions: Collection[TopicPartition],
    note: Callable[[TopicPartition, FirstDifference], None],
) -> TruncationWatch:
    """Watches these partitions of a future destination, and notes where each log is truncated."""
    before = logs_of(destination, partitions)
    theirs = every_log(source, before)
    return TruncationWatch(
        {tp: expected_tails(before[tp], theirs[tp]) for tp in before if tp in theirs}, note
    )
