"""What of a run directory is judged: which replicas, from which capture, split by which promotions and fault windows.

Of each cluster the last capture in which it appears counts: a cluster that died at the failover was captured then and never
again. Of its replicas the leader's bytes speak for the cluster; of a partition whose leader nobody knew, those of the replica
that holds the highest leader epoch and then the most offsets, as an unclean election would want it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from harness.log import batches
from harness.model.history import Bounds, Event
from harness.model.scenario import MirrorSpec
from harness.model.topology import Topology
from harness.rundir import Damage, RunReader
from spark_verify.view import Promotion, Window

INTERNAL_SUFFIX: Final = ".internal"
"""MirrorMaker 2 names topics of its own `<source>.checkpoints.internal`, as if they were data of the source."""
Key = tuple[str, int]
"""Topic, partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One replica to be read: its bounds, its files in offset order, and whether its records are to be decoded.

    `damage` is what the run directory's manifest promises of it and the directory does not have.
    """

    run: str
    moment: str
    canonical: bool
    bounds: Bounds
    paths: tuple[str, ...]
    size: int
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything about one run that is not a row: small, and sent to where its partitions are put together.

    `ended` is when the run ended; of a run whose harness was killed, when its last event was. `damage` is what of the
    directory could not be read while planning.
    """

    run: str
    topology: Topology
    mirror: MirrorSpec
    replicas: Sequence[Captured]
    promotions: Mapping[Key, Sequence[Promotion]]
    windows: Sequence[Window]
    ended: int
    damage: Sequence[Damage]


def plan(root: Path) -> RunPlan:
    """Reads what is small of a run directory. Raises InputError when it is not one."""
    reader = RunReader(root)
    run = str(root)
    events, damage = reader.events()
    events.sort(key=lambda e: e.time)
    damage = [*reader.damage(), *damage]
    ended = reader.run.ended or max((e.time for e in events), default=reader.run.started)
    topology = reader.run.scenario.topology
    return RunPlan(
        run=run,
        topology=topology,
        mirror=reader.run.scenario.mirror,
        replicas=_replicas(reader, run, topology, damage),
        promotions=_promotions(events, damage),
        windows=_windows(events, ended),
        ended=ended,
        damage=damage,
    )


def is_data(topology: Topology, topic: str) -> bool:
    """Whether a topic belongs to a cluster of the topology (`home.name`), and is not a mirror's own."""
    home, dot, _ = topic.partition(".")
    return bool(dot) and home in {c.name for c in topology.clusters} and not topic.endswith(INTERNAL_SUFFIX)


def _replicas(reader: RunReader, run: str, topology: Topology, damage: list[Damage]) -> list[Captured]:
    latest: dict[str, tuple[str, list[Bounds]]] = {}
    moments = reader.moments()
    if not moments:
        damage.append(Damage(path="captures", reason="missing: no log was captured"))
    for moment in moments:
        found, wrong = reader.bounds(moment)
        damage.extend(wrong)
        for cluster in _begun(reader, moment) if wrong else ():
            # What an older capture has of it is not what the cluster had in the end.
            latest.pop(cluster, None)
        for cluster in {b.cluster for b in found}:
            latest[cluster] = moment, [b for b in found if b.cluster == cluster]
    missing = [c.name for c in topology.clusters if c.name not in latest]
    damage.extend(Damage(path="captures", reason=f"cluster {name} is in no finished capture") for name in missing)
    replicas: list[Captured] = []
    gone = {d.path: d.reason for d in damage}
    for _, (moment, found) in sorted(latest.items()):
        by_partition: dict[Key, list[Bounds]] = defaultdict(list)
        for bounds in found:
            if is_data(topology, bounds.topic):
                by_partition[bounds.topic, bounds.partition].append(bounds)
        for _, same in sorted(by_partition.items()):
            replicas.extend(_captured(reader, run, moment, same, gone))
    return replicas


def _begun(reader: RunReader, moment: str) -> list[str]:
    """The clusters of which a capture holds anything."""
    return sorted(path.name for path in (reader.root / "captures" / moment).glob("*") if path.is_dir())


def _captured(reader: RunReader, run: str, moment: str, same: Sequence[Bounds], gone: Mapping[str, str]) -> list[Captured]:
    """The replicas of one partition of one cluster, one of them canonical."""
    paths = {bounds.broker: reader.segments(moment, bounds) for bounds in same}
    leaders = [b for b in same if b.leader]
    speaker = leaders[0] if len(leaders) == 1 else max(leaders or same, key=lambda b: (*_reach(paths[b.broker]), -b.broker))
    return [
        Captured(
            run=run,
            moment=moment,
            canonical=bounds is speaker,
            bounds=bounds,
            paths=tuple(str(path) for path in paths[bounds.broker]),
            size=sum(path.stat().st_size for path in paths[bounds.broker]),
            damage=_missing(reader, moment, bounds, gone),
        )
        for bounds in sorted(same, key=lambda b: b.broker)
    ]


def _missing(reader: RunReader, moment: str, bounds: Bounds, gone: Mapping[str, str]) -> tuple[str, ...]:
    """Segments of a replica that are gone: without them a log is not whole, however sound the rest of it is."""
    folder = reader.folder(moment, bounds).relative_to(reader.root)
    return tuple(f"{path}: {reason}" for path, reason in gone.items() if path.startswith(f"{folder}/"))


def _reach(paths: Sequence[Path]) -> tuple[int, int]:
    """(highest leader epoch, last offset) in the bytes; batches with a bad CRC do not count."""
    headers = batches.scan(paths).headers
    good = headers.crc_ok
    if not good.any():
        return -1, -1
    return int(headers.leader_epoch[good].max()), int(headers.last_offset[good].max())


def _promotions(events: Sequence[Event], damage: list[Damage]) -> Mapping[Key, Sequence[Promotion]]:
    """Promotions by partition in time order, each with what the failover of its link said nearest in time."""
    found: dict[Key, list[Promotion]] = defaultdict(list)
    failovers = [e for e in events if e.kind == "failover"]
    for event in events:
        if event.kind != "promotion":
            continue
        data = cast("Mapping[str, Any]", event.data)
        try:
            source, _, destination = event.subject.partition("->")
            cluster = str(data["cluster"])
            beside = [f for f in failovers if f.subject == event.subject]
            failover = cast("Mapping[str, Any]", min(beside, key=lambda f: abs(f.time - event.time)).data) if beside else {}
            promotion = Promotion(
                link=event.subject,
                kind=_failover_kind(failover),
                source=source if cluster == destination else destination,
                cluster=cluster,
                offset=int(data["offset"]),
                time=event.time,
                fault_time=int(failover.get("fault_time") or event.time),
            )
            found[str(data["topic"]), int(data["partition"])].append(promotion)
        except (KeyError, TypeError, ValueError) as error:
            damage.append(Damage(path="events.jsonl", reason=f"a promotion of {event.subject} that cannot be read: {error!r}"))
    return dict(found)


def _failover_kind(data: Mapping[str, Any]) -> Literal["planned", "forced"]:
    return "planned" if data.get("kind") == "planned" else "forced"


def _windows(events: Sequence[Event], ended: int) -> list[Window]:
    """Fault windows by start; one that never ended is open until the run's end."""
    ends = {str(e.data.get("id")): e.time for e in events if e.kind == "fault-end"}
    return [
        Window(
            id=str(event.data.get("id")),
            fault=str(event.data.get("fault")),
            target=event.subject,
            start=event.time,
            end=ends.get(str(event.data.get("id")), ended),
        )
        for event in events
        if event.kind == "fault-start"
    ]
