"""Observes when logs of a cluster are truncated because it becomes a destination again: watches
their files until each has lost its tail.

When a verb is accepted, nothing is truncated yet. The build first gets the source's metadata and
raises leader epochs, and truncates one to several seconds later. Until then the leader serves its
old log to clients. New records may follow a truncation within milliseconds, so the log's end and
size prove nothing. This module compares the bytes where the two logs diverge. It reads them and
does not map them: a truncated mapping kills the process that reads it (SIGBUS).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.mirrors.cluster_mirroring.from_bytes import (
    FirstDifference,
    end_of,
    every,
    parted,
    segments_of,
)
from linkflap.harness.model.events import Truncation
from linkflap.harness.model.protocols import Cluster, Recorder
from linkflap.harness.model.topology import LinkSpec, TopicPartition

if TYPE_CHECKING:
    pass

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
    from linkflap.harness.log import batches  # not above: numba takes a second to import

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


def expected(log: LogBefore, source: Headers) -> tuple[FirstDifference, list[Tail]]:
    """Where a log has to be truncated (at its end, if the source has all of it), and the tails of
    its replicas there."""
    where = parted(log.replicas[0][1], source) or FirstDifference(offset=log.end, end=log.end)
    return where, [_tail(paths, headers, where.offset) for paths, headers in log.replicas]


def _tail(paths: tuple[Path, ...], headers: Headers, offset: int) -> Tail:
    rows = np.flatnonzero(headers.base_offset >= offset)
    if len(rows):
        path, position = paths[int(headers.segment[rows[0]])], int(headers.position[rows[0]])
        with path.open("rb") as file:
            file.seek(position)
            return Tail(path=path, position=position, bytes=file.read(layout.HEADER_SIZE))
    return Tail(path=paths[-1], position=paths[-1].stat().st_size, bytes=b"")


class TruncationWatch:
    """Polls until every log was truncated. Calls `note` once per log, when the truncation is seen.
    Truncations that were never seen are not noted."""

    def __init__(
        self,
        tails: Mapping[TopicPartition, tuple[FirstDifference, list[Tail]]],
        note: Callable[[TopicPartition, FirstDifference], None],
    ) -> None:
        self._left, self._note = dict(tails), note
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="truncations", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self._left and not self._ended.wait(_EVERY):
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
        if not self._ended.is_set():
            self.end()
            self._look_once()

    def end(self) -> None:
        """Stops polling. Truncations that were not noted until now never are."""
        self._ended.set()
        self._thread.join()


def watch(
    link: LinkSpec,
    source: Cluster,
    destination: Cluster,
    partitions: Collection[TopicPartition],
    recorder: Recorder,
) -> TruncationWatch:
    """Watches these partitions of a future destination, and records where and when each log is
    truncated."""
    before = logs_of(destination, partitions)
    theirs = every(source, before)

    def note(tp: TopicPartition, where: FirstDifference) -> None:
        recorder.write(
            Truncation(
                link=link.name,
                cluster=destination.name,
                topic=tp[0],
                partition=tp[1],
                offset=where.offset,
                end=where.end,
            )
        )

    return TruncationWatch(
        {tp: expected(before[tp], theirs[tp]) for tp in before if tp in theirs}, note
    )
