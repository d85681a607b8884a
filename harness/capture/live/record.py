"""Makes a run directory of live clusters, as `harness.capture.folders` makes one of copied logs:
the same checks judge both.

If a partition could not be read to its end (a cluster went away), the run directory names it, so
that the verdict is unknown or invalid; the rest is judged. One partition of every cluster is read
at a time.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from linkflap.harness.capture.folders import folders, kept_offsets, longest, scenario_of
from linkflap.harness.capture.live.cluster import PATIENCE, Bound, GivenUp, LiveCluster
from linkflap.harness.capture.live.comparable import Ends, far_first, truncate, truncate_moved
from linkflap.harness.capture.live.copy import Copied, Pace, copy
from linkflap.harness.capture.logs_named import (
    LogsRequest,
    check_mirror_named,
    check_promotions,
    homes_of,
    named_by,
    names_of,
    topology_of,
)
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.events import Captured
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.wire.access import Access, AuthenticationRefused

MOMENT: Final = "1-fetched"
RUNTIME: Final = "live clusters"
_TELL_EVERY: Final = 5.0
_MOST_NAMED: Final = 3


class ShowsProgress(Protocol):
    """What shows progress (`harness.report.progress.Display`). Called from several threads."""

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
    there = {name: {topic for topic, _ in own} for name, own in shown.items()}
    check_mirror_named(there, request)
    names = named_by(request.topics, names_of(there, request))
    found = {name: [p for p in own if (name, p[0]) in names] for name, own in shown.items()}
    if not any(found.values()):
        every = sorted({topic for own in shown.values() for topic, _ in own})
        they = (
            f"they have {', '.join(every[:5])}"
            if every
            else "they show none, so see which the user may DESCRIBE"
        )
        raise InputError(f"no topic of {', '.join(clusters)} matches --topics {topics!r}: {they}")
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
    """Says now and then how far the reading of one cluster is."""

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
    events, ended = promotions_in(logs, request.links, request.promotions)
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
    """What was not read, in one sentence; empty when everything was."""
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
