"""Observes when logs of a cluster are truncated because it follows another again: watches their
files until each has lost its tail.

An accepted verb has truncated nothing yet: the build looks for the source's metadata, raises leader
epochs, and truncates one to several seconds later. Until then the leader serves its old log to
clients. New records may follow a truncation within milliseconds, so the log's end and size prove
nothing: this module compares the bytes where the two logs diverge. It reads them and does not map
them: a mapped file that is truncated ends the process that reads it.
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
    Parted,
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
    """What a replica has of a log from where that parts from the source's: the file, the place in
    it, and the bytes there.

    No bytes: it has nothing that the source has not, and whatever comes to stand there is the
    source's.
    """

    path: Path
    position: int
    bytes: bytes

    @property
    def gone(self) -> bool:
        """Whether something else is there now, or the file is not."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                return file.read(len(self.bytes) or 1) != self.bytes
        except OSError:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log before it follows: the files of every replica that has all of it, with their headers,
    and where it ends."""

    replicas: tuple[tuple[tuple[Path, ...], Headers], ...]
    end: int


def logs_of(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, Log]:
    """The logs that a cluster has of partitions. Asked before it is made to follow."""
    from linkflap.harness.log import batches  # not above: numba takes a second to import

    found: dict[TopicPartition, Log] = {}
    for tp in partitions:
        files = [
            tuple(segments_of(broker.log_dir, tp))
            for broker in cluster.brokers.values()
            if broker.state == "running"
        ]
        replicas = [(paths, batches.scan(paths, sums=False).headers) for paths in files if paths]
        if replicas:
            end = max(end_of(headers) for _, headers in replicas)
            # One that is behind grows by the old log first.
            found[tp] = Log(
                replicas=tuple(replica for replica in replicas if end_of(replica[1]) == end),
                end=end,
            )
    return found


def expected(log: Log, source: Headers) -> tuple[Parted, list[Tail]]:
    """Where a log has to be truncated, and what its replicas have there: at its end, where the
    source has all of it."""
    where = parted(log.replicas[0][1], source) or Parted(offset=log.end, end=log.end)
    return where, [_tail(paths, headers, where.offset) for paths, headers in log.replicas]


def _tail(paths: tuple[Path, ...], headers: Headers, offset: int) -> Tail:
    rows = np.flatnonzero(headers.base_offset >= offset)
    if len(rows):
        path, position = paths[int(headers.segment[rows[0]])], int(headers.position[rows[0]])
        with path.open("rb") as file:
            file.seek(position)
            return Tail(path=path, position=position, bytes=file.read(layout.HEADER_SIZE))
    return Tail(path=paths[-1], position=paths[-1].stat().st_size, bytes=b"")


class Watch:
    """Looks until every log was truncated, and notes each once, when that is seen. What was never
    seen is not noted."""

    def __init__(
        self,
        tails: Mapping[TopicPartition, tuple[Parted, list[Tail]]],
        note: Callable[[TopicPartition, Parted], None],
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
        """Partitions whose logs reach beyond their truncation offset."""
        return [tp for tp, (where, _) in list(self._left.items()) if where.offset < where.end]

    def close(self) -> None:
        """A last look is taken: what was truncated before this call is noted when it returns. Safe
        to call again."""
        if not self._ended.is_set():
            self.end()
            self._look_once()

    def end(self) -> None:
        """Looks no more: what was not noted by now never is."""
        self._ended.set()
        self._thread.join()


def watch(
    link: LinkSpec,
    source: Cluster,
    destination: Cluster,
    partitions: Collection[TopicPartition],
    recorder: Recorder,
) -> Watch:
    """Looks at these partitions of a destination that is to follow, and writes down where and when
    each log is truncated."""
    before = logs_of(destination, partitions)
    theirs = every(source, before)

    def note(tp: TopicPartition, where: Parted) -> None:
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

    return Watch({tp: expected(before[tp], theirs[tp]) for tp in before if tp in theirs}, note)
