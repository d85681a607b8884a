"""Chooses the replicas of a run directory that are judged, and their captures.

The last capture of each cluster counts: a cluster that died at the failover was captured then and
never again. If a cluster was made to follow again (`mirror-reverse`), its earlier captures count
too, because they show the truncated records. The leader's replica represents the cluster. If the
leader of a partition is unknown, the replica with the highest leader epoch and, among those, the
most offsets represents it: the one that an unclean election should choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from linkflap.harness.log import batches, segments
from linkflap.harness.model.events import Captured, Event, FaultStart, of_kind
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.topology import INTERNAL_TOPICS, TopicPartition, Topology, is_of_mirrors
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.checks.base import grouped
from linkflap.spark_verify.read.missing_parts import absent_captures

"""Topic, partition."""
NOTHING_CAPTURED: Final = Damage(path="captures", reason="no log was captured")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedReplica:
    """One replica to be read: its bounds, its files in offset order, and whether its records are to
    be decoded.

    `damage` lists its files that the manifest has and the directory lacks. `time` is when the
    capture of its cluster was done, 0 if that is not recorded. `last`: its cluster was not captured
    again. `records` names the canonical logs that are decoded beyond their headers: all, those with
    any record of linkflap's, or none. A big replica is read in pieces of some neighbouring files;
    `piece` is the number of this one.
    """

    run: str
    moment: str
    canonical: bool
    bounds: Bounds
    paths: tuple[str, ...]
    size: int
    damage: tuple[str, ...] = ()
    time: int = 0
    last: bool = True
    records: Literal["every", "ours", "none"] = "every"
    piece: int = 0

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return self.bounds.topic, self.bounds.partition


def is_judged(topology: Topology, homes: Mapping[str, str], topic: str) -> bool:
    """Whether a topic is data: its home was recorded, or its name begins with it."""
    return topic in homes if homes or topology.any_names else is_data(topology, topic)


def is_data(topology: Topology, topic: str) -> bool:
    """Whether a topic belongs to a cluster of the topology (`home.name`), and is not a mirror's
    own."""
    home, dot, _ = topic.partition(".")
    return bool(dot) and home in {c.name for c in topology.clusters} and not is_of_mirrors(topic)


def topics(reader: RunReader, events: Sequence[Event]) -> Mapping[str, frozenset[str]]:
    """The topics in the last capture of each cluster."""
    latest, _ = _captures(reader, events, _times(events), [])
    return {name: frozenset(b.topic for b in each.found) for name, each in latest.items()}


def _times(events: Sequence[Event]) -> dict[tuple[str, str], int]:
    return {(e.cluster, e.moment): e.time for e in of_kind(events, Captured)}


def replicas(
    reader: RunReader,
    run: str,
    judged: Callable[[str], bool],
    topology: Topology,
    events: Sequence[Event],
    damage: list[Damage],
) -> tuple[list[CapturedReplica], list[CapturedReplica]]:
    """The replicas of each cluster's last capture, of the topics that are judged; and the canonical
    replicas of earlier captures of clusters that were truncated later."""
    times = _times(events)
    latest, before = _captures(reader, events, times, damage)
    missing = [c.name for c in topology.clusters if c.name not in latest] if latest else []
    damage.extend(
        Damage(path="captures", reason=f"cluster {name} is in no finished capture")
        for name in missing
    )
    damage.extend([] if latest else [NOTHING_CAPTURED])
    gone = {d.path: d.reason for d in damage}

    def read(capture: _Capture, *, last: bool) -> list[CapturedReplica]:
        wanted = (
            bounds
            for bounds in capture.found
            if judged(bounds.topic) or (last and bounds.topic in INTERNAL_TOPICS)
        )
        by_partition = grouped(wanted, lambda bounds: (bounds.topic, bounds.partition))
        chosen = [
            c
            for _, same in sorted(by_partition.items())
            for c in _captured(reader, run, capture.moment, same, gone)
        ]
        return [
            replace(c, time=times.get((c.bounds.cluster, capture.moment), 0), last=last)
            for c in chosen
            if last or c.canonical
        ]

    final = [c for _, capture in sorted(latest.items()) for c in read(capture, last=True)]
    earlier = [c for capture in before for c in read(capture, last=False)]
    damage.extend(note.damage for note in notes_of((*final, *earlier)) if note.matters)
    return final, earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableNote:
    """A checkpoint file of a broker that could not be read when its logs were captured."""

    damage: Damage
    matters: bool


def notes_of(captured: Iterable[CapturedReplica]) -> list[UnreadableNote]:
    """The unreadable checkpoint files, each once. A file matters if it matters for the bounds of
    any of these replicas."""
    found: dict[Damage, bool] = {}
    for each in captured:
        path = f"captures/{each.moment}/{each.bounds.cluster}/{each.bounds.broker}"
        for reason, matters in each.bounds.unreadable:
            damage = Damage(path=path, reason=f"its broker's {reason}")
            found[damage] = found.get(damage, False) or matters
    return [UnreadableNote(damage=damage, matters=each) for damage, each in found.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capture:
    """One capture of one cluster: at which moment, and the bounds of its replicas."""

    moment: str
    found: Sequence[Bounds]


def _captures(
    reader: RunReader,
    events: Sequence[Event],
    times: Mapping[tuple[str, str], int],
    damage: list[Damage],
) -> tuple[dict[str, _Capture], list[_Capture]]:
    """The last capture of each cluster, and the earlier captures of clusters that were made to
    follow or whose last capture is missing."""
    follow = _made_to_follow(events)
    latest: dict[str, _Capture] = {}
    before: list[_Capture] = []
    absent = absent_captures(reader, events)
    damage.extend(absent.values())
    moments = _in_order(reader.moments(), times)
    for moment in moments:
        found, wrong = reader.bounds(moment)
        damage.extend(wrong)
        for cluster in reader.captured_clusters(moment) if wrong else ():
            # An older capture of it does not show the cluster's final log.
            latest.pop(cluster, None)
        for cluster, own in grouped(found, lambda bounds: bounds.cluster).items():
            if (cluster, moment) in absent:
                continue
            if cluster in latest and cluster in follow:
                before.append(latest[cluster])
            latest[cluster] = _Capture(moment=moment, found=own)
    newest = {cluster: moment for (cluster, moment), _ in sorted(times.items(), key=lambda t: t[1])}
    for cluster in [c for c in latest if (c, newest.get(c, "")) in absent]:
        # The earlier capture shows an earlier log; the final log is unknown.
        before.append(latest.pop(cluster))
    return latest, before


def _made_to_follow(events: Sequence[Event]) -> set[str]:
    return {e.on.source for e in of_kind(events, FaultStart) if e.name.reverses}


def _in_order(moments: Iterable[str], times: Mapping[tuple[str, str], int]) -> list[str]:
    """The moments, ordered by their latest capture of a cluster."""
    ended: dict[str, int] = {}
    for (_, moment), time in times.items():
        ended[moment] = max(time, ended.get(moment, 0))
    return sorted(moments, key=lambda moment: (ended.get(moment, 0), moment))


def _captured(
    reader: RunReader, run: str, moment: str, same: Sequence[Bounds], gone: Mapping[str, str]
) -> list[CapturedReplica]:
    """The replicas of one partition of one cluster, one of them canonical."""
    found = captured_replicas(
        run, moment, same, {bounds.broker: reader.segments(moment, bounds) for bounds in same}
    )
    return [_within(replace(c, damage=_missing(reader, moment, c.bounds, gone))) for c in found]


def _within(captured: CapturedReplica) -> CapturedReplica:
    """The replica with its log start at most at the end of its log: beyond that, every missing
    record would count as deleted."""
    bounds, paths = captured.bounds, [Path(path) for path in captured.paths]
    # A log reaches at least to the offset its last file is named by: mostly nothing need be read
    # for this.
    if not paths or bounds.log_start <= max(segments.offset_in(paths[-1].name), 0):
        return captured
    end, wrong = segments.log_end(paths)
    if (
        wrong
        or bounds.log_start <= end
        or not batches.scan(paths, sums=False).headers.base_offset.size
    ):
        return captured
    reason = (
        f"captures/{captured.moment}/bounds.json: log start {bounds.log_start}, and the log ends at"
        f" {end}"
    )
    start = max(segments.offset_in(paths[0].name), 0)
    return replace(
        captured, bounds=replace(bounds, log_start=start), damage=(*captured.damage, reason)
    )


def captured_replicas(
    run: str, moment: str, same: Sequence[Bounds], paths: Mapping[int, Sequence[Path]]
) -> list[CapturedReplica]:
    """The replicas of one partition of one cluster, from their files by broker; one of them is
    canonical."""
    leaders = [b for b in same if b.leader]
    able = leaders or same
    speaker = (
        able[0]
        if len(able) == 1
        else max(able, key=lambda b: (*_reach(paths[b.broker]), -b.broker))
    )
    return [
        CapturedReplica(
            run=run,
            moment=moment,
            canonical=bounds is speaker,
            bounds=bounds,
            paths=tuple(str(path) for path in paths[bounds.broker]),
            size=sum(map(size_of, paths[bounds.broker])),
        )
        for bounds in sorted(same, key=lambda b: b.broker)
    ]


def size_of(path: Path) -> int:
    """The size of a file; 0 for one that retention deleted since it was listed, which its reader
    reports."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _missing(
    reader: RunReader, moment: str, bounds: Bounds, gone: Mapping[str, str]
) -> tuple[str, ...]:
    """Missing segments of a replica. Without them a log is incomplete, however sound the rest
    is."""
    folder = reader.folder(moment, bounds).relative_to(reader.root)
    return tuple(
        f"{path}: {reason}" for path, reason in gone.items() if path.startswith(f"{folder}/")
    )


def _reach(paths: Sequence[Path]) -> tuple[int, int]:
    """(highest leader epoch, last offset) in the bytes; batches with a bad CRC do not count."""
    headers = batches.scan(paths).headers
    good = headers.crc_ok
    if not good.any():
        return -1, -1
    return int(headers.leader_epoch[good].max()), int(headers.last_offset[good].max())
