"""One partition of a live cluster, fetched from its leader into segment files: bounded in memory
and in bytes a second.

It reads what a consumer may read, in complete batches as they came: from the log start offset to
the high watermark as it was when the reading began. It handles changes meanwhile: a leader that
moves, a log start offset that rises (retention), and a truncated log (an unclean election, reported
by KIP-595's diverging epoch). After the last two it reads the partition again, because a mix of two
logs' bytes is neither log.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from linkflap.harness.capture.live.cluster import GivenUp, LiveCluster
from linkflap.harness.log.walk import walk
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import pause
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.messages import Error

SEGMENT_BYTES: Final = 256 << 20
_LARGEST_FETCH: Final = 8 << 20
_SMALLEST_FETCH: Final = 64 << 10
_TIMES_ANEW: Final = 5


class Pace:
    """Limits the average rate of bytes per second. For one thread."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._due = time.monotonic()

    @property
    def portion(self) -> int:
        """Bytes to ask for at once: a quarter of a second's."""
        return int(min(_LARGEST_FETCH, max(_SMALLEST_FETCH, self.rate / 4)))

    def spend(self, count: int) -> None:
        """Returns when the next request is allowed."""
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + count / self.rate
        if self._due > now:
            pause(self._due - now, threading.Event().is_set)


class Segments:
    """Segment files of one partition, named as Kafka names them: by the first offset in each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._size = 0

    def append(self, data: memoryview, base: int) -> None:
        if self._file is None or self._size >= SEGMENT_BYTES:
            self.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / f"{base:020}.log").open("wb")
            self._size = 0
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True, kw_only=True)
class Copied:
    """One partition as far as it was read: [start, position) of the wanted [start, end); `reason`
    when it is incomplete."""

    cluster: str
    tp: TopicPartition
    broker: int
    folder: Path
    start: int
    end: int
    position: int = -1
    reason: str = ""

    @property
    def complete(self) -> bool:
        return not self.reason

    def begin(self) -> None:
        """A log of which nothing was read, or that is empty, is an empty segment, as brokers have
        it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not any(self.folder.iterdir()):
            (self.folder / f"{self.start:020}.log").touch()


def copy(
    cluster: LiveCluster, copied: Copied, pace: Pace, spent: Callable[[int, int], None]
) -> None:
    """Reads a partition; `spent` gets the number of bytes and offsets that came; `copied` gets the
    reason when not all was read.

    Raises Refused, and GivenUp when nothing more of the cluster can be read.
    """
    for _ in range(_TIMES_ANEW):
        segments = Segments(copied.folder)
        try:
            if _read(cluster, copied, segments, pace, spent):
                break
        except GivenUp as error:
            copied.reason = str(error)
            if error.everything:
                raise
            break
        finally:
            segments.close()
        shutil.rmtree(copied.folder, ignore_errors=True)
    else:
        copied.reason = (
            f"its log was truncated or deleted from {_TIMES_ANEW} times while it was read"
        )


def _read(
    cluster: LiveCluster,
    copied: Copied,
    segments: Segments,
    pace: Pace,
    spent: Callable[[int, int], None],
) -> bool:
    """Whether it was read to its end; False if it must be read again."""
    copied.position = copied.start
    epoch, since = -1, time.monotonic()
    while copied.position < copied.end:
        try:
            got = cluster.fetch(copied.tp, copied.position, most=pace.portion, epoch=epoch)
        except Unanswered as error:
            _still(cluster, since, str(error))
            continue
        if got.diverges or got.error == Error.offset_out_of_range:
            copied.start = cluster.bounds([copied.tp], "start")[copied.tp]
            copied.end = max(
                copied.start, min(copied.end, cluster.bounds([copied.tp], "high")[copied.tp])
            )
            return False
        if got.sent_on and time.monotonic() - since < cluster.patience:
            continue
        before = copied.position
        epoch = _keep(copied, got.data, segments, epoch)
        if copied.position == before:
            _still(
                cluster,
                since,
                got.error.name if got.error != Error.none else "its leader gave no complete batch",
            )
            continue
        since = time.monotonic()
        spent(len(got.data), copied.position - before)
        pace.spend(len(got.data))
    return True


def _keep(copied: Copied, data: memoryview, segments: Segments, epoch: int) -> int:
    """Writes the batches that were wanted; the leader epoch of the last one."""
    try:
        for batch in walk(data):
            if batch.last < copied.position:
                continue
            if batch.base >= copied.end:
                copied.position = copied.end
                break
            segments.append(data[batch.start : batch.stop], batch.base)
            copied.position, epoch = batch.last + 1, batch.epoch
    except ValueError as error:
        raise GivenUp(f"its leader gave {error}") from error
    return epoch


def _still(cluster: LiveCluster, since: float, reason: str) -> None:
    """Nothing came: looks who leads now, unless that has been so for too long."""
    if time.monotonic() - since > cluster.patience:
        raise GivenUp(f"no records were received for {cluster.patience:g} s: {reason}")
    cluster.refresh_leaders()
    pause(0.2, threading.Event().is_set)


def trim(folder: Path, end: int) -> None:
    """Removes from a copy the batches that reach `end` or beyond."""
    for path in sorted(folder.glob("*.log"), reverse=True):
        keep = 0
        for batch in walk(memoryview(path.read_bytes())):
            if batch.last >= end:
                break
            keep = batch.stop
        if keep == path.stat().st_size and keep:
            return
        with path.open("r+b") as file:
            file.truncate(keep)
        if keep or path == min(folder.glob("*.log")):
            return
        path.unlink()
