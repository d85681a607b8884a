"""Makes a run directory of live clusters, as `harness.capture.folders` makes one of copied logs:
the same checks judge both.

If a partition could not be read to its end (a cluster went away), the run directory names it, so
that the verdict is unknown or invalid; the rest is judged. One partition of every cluster is read
at a time.

A partition is fetched from its leader into segment files, with bounds on memory and on bytes per
second. The copy has the complete batches that a consumer may read, unchanged, from the log start
offset to the high watermark at the beginning of the reading. The leader may move meanwhile, the log
start offset may rise (retention), and the log may be truncated (an unclean election, reported by
KIP-595's diverging epoch). After a rise or a truncation the partition is read again, because a mix
of two logs' bytes is neither log.

Only the comparable part of the logs is kept. A mirror is compared up to its first sampled end, and
its source up to its last sampled end, when the source had everything that the mirror had. So
clusters are read in the order against the links. If the end of a source could not be read, because
its cluster went away, the mirror's copy is truncated there too; otherwise its records would look as
if no client had written them.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from linkflap.harness.capture.folders import folders, kept_offsets, longest, scenario_of
from linkflap.harness.capture.live.cluster import (
    PATIENCE,
    Bound,
    FetchedBatches,
    GivenUp,
    LiveCluster,
)
from linkflap.harness.capture.logs_request import (
    LogsRequest,
    check_ids,
    check_mirror_named,
    check_promotions,
    check_promotions_within,
    homes_of,
    log_lacking_topics,
    names_of,
    selected,
    topology_of,
)
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.log.layout import walk
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.events import Captured, Event, Promotion, of_kind
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.model.wait import pause
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.wire.access import Access, AuthenticationRefused, Unanswered
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
    """The copy of one partition: [start, position) of the requested [start, end); `reason` if it is
    incomplete. `pinned`: read from that broker, whichever leads."""

    cluster: str
    tp: TopicPartition
    broker: int
    folder: Path
    start: int
    end: int
    pinned: bool = False
    position: int = -1
    reason: str = ""

    @property
    def complete(self) -> bool:
        return not self.reason

    def begin(self) -> None:
        """Writes an empty segment for a log without any read records, as brokers do for an empty
        log."""
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
            if _read_batches(cluster, copied, segments, pace, spent):
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


def _read_batches(
    cluster: LiveCluster,
    copied: Copied,
    segments: Segments,
    pace: Pace,
    spent: Callable[[int, int], None],
) -> bool:
    """Whether the partition was read to its end; False if it must be read again."""
    copied.position = copied.start
    epoch, since = -1, time.monotonic()
    while copied.position < copied.end:
        try:
            ask = partial(cluster.fetch_from, copied.broker) if copied.pinned else cluster.fetch
            got = ask(copied.tp, copied.position, most=pace.portion, epoch=epoch)
        except Unanswered as error:
            _still(cluster, since, str(error))
            continue
        if got.diverges or got.error == Error.offset_out_of_range or _deleted(cluster, copied, got):
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


def _deleted(cluster: LiveCluster, copied: Copied, got: FetchedBatches) -> bool:
    """Whether the leader's log begins behind the position at which one broker has nothing to give:
    retention took it meanwhile. Otherwise that broker is behind."""
    if got.error != Error.offset_not_available:
        return False
    return cluster.bounds([copied.tp], "start")[copied.tp] > copied.position


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
    """Finds the current leader after an empty answer. Raises GivenUp if answers have been empty for
    too long."""
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


Ends = Mapping[str, Mapping[TopicPartition, int]]
"""Per cluster and partition an offset."""


def far_first(names: Sequence[str], links: Sequence[LinkSpec]) -> list[str]:
    """The clusters, with each link's destination before its source; a ring is broken at any
    link."""
    left, order = list(names), list[str]()
    while left:
        ends = [
            n
            for n in left
            if not any(link.source == n and link.destination in left for link in links)
        ]
        order.append((ends or left)[0])
        left.remove(order[-1])
    return order


def truncate(
    copies: Sequence[Copied],
    first: Ends,
    events: Sequence[Event],
    homes: Mapping[str, str],
    links: Sequence[LinkSpec],
) -> None:
    """Truncates the copies where they can be compared, and sets `end` of each to that offset."""
    ends = {(c.cluster, c.tp): _end(c, first, events, homes) for c in copies}
    short = {
        (c.cluster, c.tp): min(c.position, ends[c.cluster, c.tp]) for c in copies if not c.complete
    }
    for copied in copies:
        upstream = (
            short[name, copied.tp]
            for name in _before(copied.cluster, links)
            if (name, copied.tp) in short
        )
        copied.end = min([ends[copied.cluster, copied.tp], *upstream])
        trim(copied.folder, copied.end)


def truncate_moved(
    copies: Sequence[Copied],
    names: Mapping[tuple[str, str], str],
    first: Ends,
    homes: Mapping[str, str],
) -> None:
    """As `truncate`, for a mirror that moves offsets: its copy ends at its first sampled end."""
    for copied in copies:
        home = homes[names[copied.cluster, copied.tp[0]]]
        asked = copied.end if copied.cluster == home else first[copied.cluster][copied.tp]
        copied.end = min(asked, copied.position) if copied.position >= 0 else copied.start
        trim(copied.folder, copied.end)


def _end(copied: Copied, first: Ends, events: Sequence[Event], homes: Mapping[str, str]) -> int:
    """Where a copy ends, as far as its own cluster is concerned."""
    promoted = [e.cluster for e in of_kind(events, Promotion) if e.tp == copied.tp]
    owner = promoted[-1] if promoted else homes[copied.tp[0]]
    asked = copied.end if copied.cluster == owner else first[copied.cluster][copied.tp]
    return min(asked, copied.position) if copied.position >= 0 else copied.start


def _before(name: str, links: Sequence[LinkSpec]) -> Iterator[str]:
    """The clusters from which records may have been mirrored to this one."""
    seen, frontier = {name}, [name]
    while frontier:
        here = frontier.pop()
        for link in links:
            if link.destination == here and link.source not in seen:
                seen.add(link.source)
                frontier.append(link.source)
                yield link.source


MOMENT: Final = "1-fetched"
RUNTIME: Final = "live clusters"
_TELL_EVERY: Final = 5.0
_MOST_NAMED: Final = 3


class ShowsProgress(Protocol):
    """Shows progress (`linkflap.report.progress.Progress`). Called from several threads."""

    def phase(self, name: str, /) -> None: ...
    def note(self, text: str, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLogsRequest:
    """The clusters to read, as the user gave them: by name, address and credentials, and a limit of
    bytes a second for each.

    The names in `request.logs` are those of the clusters. `patience` is seconds in which a cluster
    must answer.
    """

    request: LogsRequest
    bootstrap: Mapping[str, Sequence[str]]
    access: Mapping[str, Access]
    rate: float
    patience: float = PATIENCE


def record(folder: Path, asked: LiveLogsRequest, command: str, tell: ShowsProgress) -> None:
    """Makes the run directory. Raises InputError for names that fit nothing and clusters that
    refuse, EnvironmentFailure."""
    topology = topology_of(asked.request, option="--bootstrap")
    clusters = {
        name: LiveCluster(
            name, addresses, asked.access.get(name, Access()), patience=asked.patience
        )
        for name, addresses in asked.bootstrap.items()
    }
    try:
        tell.phase("asking the clusters what they have")
        partitions, names = _chosen(clusters, asked.request)
        check_promotions(
            asked.request,
            {(name, names[name, t], n) for name, own in partitions.items() for t, n in own},
        )
        starts, first, stable, last = _bounds(
            clusters, partitions, far_first(list(clusters), asked.request.links)
        )
        check_promotions_within(
            asked.request,
            [
                ((name, names[name, t], n), end)
                for name, own in last.items()
                for (t, n), end in own.items()
            ],
        )
        homes = homes_of(
            {(name, names[name, t]) for name, own in partitions.items() for t, _ in own},
            asked.request,
        )
        scenario = scenario_of("fetched logs", topology, homes, asked.request)
        run = replace(
            Run.begun(scenario, RUNTIME, command), recorded=False, homes=homes, leaders_only=True
        )
        writer = RunWriter(folder, run)
        try:
            tell.phase(f"fetching {sum(map(len, partitions.values()))} partitions")
            copies = _fetched(writer, clusters, names, starts, last, asked, tell)
            _write(writer, copies, names, (first, stable), homes, asked.request)
        except BaseException as error:
            writer.close(
                "failed", error=f"not everything was fetched: {error or type(error).__name__}"
            )
            raise
    finally:
        for cluster in clusters.values():
            cluster.close()


def _chosen(
    clusters: Mapping[str, LiveCluster], request: LogsRequest
) -> tuple[Mapping[str, Sequence[TopicPartition]], Mapping[tuple[str, str], str]]:
    """The requested partitions of each cluster, without Kafka's own topics; and the names under
    which topics are compared."""
    topics = request.topics
    shown = {
        name: sorted(p for p in cluster.enter() if not p[0].startswith("__"))
        for name, cluster in clusters.items()
    }
    check_ids({name: cluster.id for name, cluster in clusters.items()})
    there = {name: {topic for topic, _ in own} for name, own in shown.items()}
    check_mirror_named(there, request)
    names = selected(request.topics, names_of(there, request))
    found = {name: [p for p in own if (name, p[0]) in names] for name, own in shown.items()}
    if not any(found.values()):
        every = sorted({topic for own in shown.values() for topic, _ in own})
        they = (
            f"they have {', '.join(every[:5])}"
            if every
            else "they show none, so see which the user may DESCRIBE"
        )
        raise InputError(f"no topic of {', '.join(clusters)} matches --topics {topics!r}: {they}")
    log_lacking_topics(names, request)
    return found, names


def _bounds(
    clusters: Mapping[str, LiveCluster],
    partitions: Mapping[str, Sequence[TopicPartition]],
    order: Sequence[str],
) -> tuple[Ends, Ends, Ends, Ends]:
    """Where logs begin, where they end at first asking, their last stable offsets after that, and
    where they end at last."""
    found: list[dict[str, Mapping[TopicPartition, int]]] = [{}, {}, {}, {}]
    kinds: Sequence[Bound] = ("start", "high", "stable", "high")
    for bounds, which in zip(found, kinds, strict=True):
        for name in order:
            try:
                bounds[name] = clusters[name].bounds(partitions[name], which)
            except AuthenticationRefused as refused:
                raise clusters[name].refusal(refused) from refused
            except GivenUp as error:
                raise EnvironmentFailure(
                    f"cluster {name}: {error}; see that every partition has a leader"
                ) from error
    return found[0], found[1], found[2], found[3]


def _fetched(
    writer: RunWriter,
    clusters: Mapping[str, LiveCluster],
    names: Mapping[tuple[str, str], str],
    starts: Ends,
    ends: Ends,
    asked: LiveLogsRequest,
    tell: ShowsProgress,
) -> list[Copied]:
    """Copies of everything, as far as they could be made. Raises InputError where a cluster
    refuses."""
    root = writer.capture_folder(MOMENT)
    copies: dict[str, list[Copied]] = defaultdict(list)
    for name, own in starts.items():
        for (topic, number), start in own.items():
            leader = clusters[name].leader((topic, number))
            copies[name].append(
                Copied(
                    cluster=name, tp=(topic, number), broker=leader, start=start,
                    end=max(start, ends[name][topic, number]),
                    folder=root / name / str(max(leader, 0)) / f"{names[name, topic]}-{number}",
                )
            )  # fmt: skip
    side_by_side(
        partial(_read, clusters[name], own, Pace(asked.rate), _Counts(name, own, tell))
        for name, own in copies.items()
    )
    return [copied for own in copies.values() for copied in own]


def _read(cluster: LiveCluster, copies: Sequence[Copied], pace: Pace, counts: _Counts) -> None:
    """Reads one cluster. If it goes away, the remaining partitions are not tried, and are recorded
    as unread."""
    gone = ""
    for copied in copies:
        if gone:
            copied.reason = gone
            continue
        try:
            copy(cluster, copied, pace, counts.spent)
        except AuthenticationRefused as refused:
            raise cluster.refusal(refused) from refused
        except GivenUp as error:
            gone = str(error)
    counts.ended()


class _Counts:
    """Reports the progress of reading one cluster from time to time."""

    def __init__(self, name: str, copies: Sequence[Copied], tell: ShowsProgress) -> None:
        self._name, self._tell = name, tell
        self._wanted = sum(copied.end - copied.start for copied in copies)
        self._bytes = self._offsets = 0
        self._began = self._reported = time.monotonic()
        self._lock = threading.Lock()

    def spent(self, size: int, offsets: int) -> None:
        self._bytes += size
        self._offsets += offsets
        if time.monotonic() - self._reported >= _TELL_EVERY:
            self._reported = time.monotonic()
            self._say("fetching")

    def ended(self) -> None:
        self._say("fetched")

    def _say(self, what: str) -> None:
        took = max(time.monotonic() - self._began, 1e-3)
        size = self._bytes / 1e6
        self._tell.note(
            f"{self._name}: {what} {self._offsets:,} of {self._wanted:,} offsets, {size:,.1f} MB at"
            f" {size / took:,.1f} MB/s"
        )


def _write(
    writer: RunWriter,
    copies: Sequence[Copied],
    names: Mapping[tuple[str, str], str],
    sampled: tuple[Ends, Ends],
    homes: Mapping[str, str],
    request: LogsRequest,
) -> None:
    """Truncates the copies, and records bounds, promotions, and what is missing.

    `sampled` are the high watermarks at first asking, and the last stable offsets after that.
    """
    first, stable = sampled
    clusters = dict.fromkeys(copied.cluster for copied in copies)
    root = writer.capture_folder(MOMENT)
    for copied in copies:
        copied.begin()
    found = [folder for name in clusters for folder in folders(name, root / name)]
    logs = kept_offsets(longest(found, {}), request)
    events, ended = promotions_in(
        logs, request.links, request.promotions, homes, kept=request.offsets_kept
    )
    if request.offsets_kept:
        truncate(copies, first, events, homes, request.links)
    else:
        truncate_moved(copies, names, first, homes)
    for event in (*events, *(Captured(time=ended, cluster=n, moment=MOMENT) for n in clusters)):
        writer.write(event)
    writer.write_bounds(
        MOMENT,
        [
            Bounds(
                cluster=c.cluster, broker=max(c.broker, 0),
                topic=names[c.cluster, c.tp[0]], partition=c.tp[1],
                leader=True, alive=c.complete,
                log_start=c.start, high_watermark=c.end,
                high_watermark_from=(
                    "sampled" if c.complete or request.offsets_kept else "recomputed"
                ),
                last_stable=stable[c.cluster][c.tp], stable_above=first[c.cluster][c.tp],
            )
            for c in copies
        ],
    )  # fmt: skip
    missing = _missing(copies)
    writer.close("failed" if missing else "finished", error=missing)


def _missing(copies: Sequence[Copied]) -> str:
    """One sentence about the part that was not read; empty when everything was read."""
    torn: dict[tuple[str, str], list[str]] = defaultdict(list)
    for c in copies:
        if not c.complete:
            read = f"{c.tp[0]}-{c.tp[1]} up to {max(c.position, c.start)}"
            torn[c.cluster, c.reason].append(read)
    parts = []
    for (cluster, reason), partitions in torn.items():
        more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
        parts.append(
            f"of {cluster} only {', '.join(partitions[:_MOST_NAMED])}{more} could be read: {reason}"
        )
    return "; ".join(parts)
