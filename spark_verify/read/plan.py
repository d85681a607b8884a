"""What of a run directory is judged: which replicas, from which capture, split by which promotions and fault windows.

Of each cluster the last capture in which it appears counts: a cluster that died at the failover was captured then and never
again. Of one that was made to follow again (`mirror-reverse`) the earlier ones count too: they show what was truncated. Of its
replicas the leader's bytes speak for the cluster; of a partition whose leader is unknown, those of the replica that holds the
highest leader epoch and then the most offsets, as an unclean election would want it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from linkflap.harness.log import batches, segments
from linkflap.harness.model.history import Bounds, Event
from linkflap.harness.model.scenario import WorkloadSpec, clients
from linkflap.harness.model.topology import INTERNAL_TOPICS, Topology, topic_name
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.facts.eras import REVERSAL
from linkflap.spark_verify.facts.story import Copying, Description, Promotion, Refusal, RunFacts, Stop, Story, Truncation, Window
from linkflap.spark_verify.read.missing_parts import (
    absent_captures,
    absent_ends,
    absent_promotions,
    absent_steps,
    out_of_time,
    unnoted_captures,
)

INTERNAL_SUFFIX: Final = ".internal"
"""MirrorMaker 2 names topics of its own `<source>.checkpoints.internal`, as if they were data of the source."""
Key = tuple[str, int]
"""Topic, partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One replica to be read: its bounds, its files in offset order, and whether its records are to be decoded.

    `damage` is what the run directory's manifest promises of it and the directory does not have; `time` is when the capture of
    its cluster was done, 0 where that is not recorded; `last` says that its cluster was not captured again. `records` says
    which logs are decoded beyond their headers if they are canonical: every one, those with any record that is ours, or none.
    A big one is read in pieces, each some neighbouring files of it; `piece` is which of them this is.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything about one run that is not a row: small, and sent to where its partitions are put together.

    `damage` is what of the directory could not be read while planning. `stories` are those of partitions of which there is
    anything to tell. `earlier` are replicas of captures before the last of a cluster that was truncated.
    """

    facts: RunFacts
    replicas: Sequence[Captured]
    stories: Mapping[Key, Story] = field(default_factory=dict)
    damage: Sequence[Damage] = ()
    earlier: Sequence[Captured] = ()

    @property
    def run(self) -> str:
        """The run directory."""
        return self.facts.run

    @property
    def promotions(self) -> Mapping[Key, Sequence[Promotion]]:
        """Of the partitions that were promoted."""
        return {key: story.promotions for key, story in self.stories.items() if story.promotions}

    def judges(self, topic: str) -> bool:
        """Whether a topic is data: one of those whose home was recorded, or else one that says itself whose it is."""
        return _judged(self.facts.topology, self.facts.homes, topic)

    def story(self, topic: str, partition: int) -> Story:
        """The story of a partition; an empty one where nothing was recorded."""
        return self.stories.get((topic, partition)) or Story(facts=self.facts, topic=topic, partition=partition)


def plan(root: Path) -> RunPlan:
    """Reads what is small of a run directory. Raises InputError when it is not one."""
    reader = RunReader(root)
    run = str(root)
    events, damage = reader.events()
    events.sort(key=lambda e: e.time)
    damage = [*reader.damage(), *damage]
    ended = reader.run.ended or max((e.time for e in events), default=reader.run.started)
    topology = reader.run.scenario.topology
    replicas, earlier = _replicas(reader, run, topology, events, damage)
    homes = reader.run.homes
    damage.extend(_elsewhere(topology, events))
    damage.extend(_contradicted(events))
    if reader.run.recorded:
        damage.extend(out_of_time(reader.run, events))
        damage.extend(absent_steps(reader.run, events))
        damage.extend(absent_ends(reader.run, events))
        damage.extend(unnoted_captures(reader, events))
        named = partial(_judged, topology, homes)
        damage.extend(absent_promotions(events, named, journal=reader.run.scenario.mirror.guarantee.keeps_journal))
    facts = RunFacts(
        run=run,
        topology=topology,
        mirror=reader.run.scenario.mirror,
        windows=_windows(events, ended),
        ended=ended,
        budgets=reader.run.scenario.budgets,
        homes=homes,
        recorded=reader.run.recorded,
        deaths=_deaths(events, [c.bounds for c in replicas]),
        refusals=tuple(_refusals(events)),
        programs=frozenset(topic_name(w.home, topic) for w in reader.run.scenario.workloads for topic in w.writes),
        copying=tuple(_copying(reader.run.scenario.workloads)),
    )
    stories = _stories(facts, events, [c.bounds for c in (*replicas, *earlier)], damage)
    return RunPlan(facts=facts, stories=stories, replicas=replicas, earlier=earlier, damage=damage)


def _refusals(events: Sequence[Event]) -> Iterator[Refusal]:
    """Failovers that never took place, by what their mirrors wrote down."""
    for event in events:
        if event.kind == "failover-refused":
            code, seconds = event.data.get("code"), event.data.get("seconds")
            yield Refusal(
                link=event.subject,
                kind=str(event.data.get("kind")),
                error=str(event.data.get("error")),
                code=code if isinstance(code, int) else -1,
                seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
            )


def _copying(workloads: Sequence[WorkloadSpec]) -> Iterator[Copying]:
    for name, workload in clients(workloads):
        if workload.exactly_once:
            reads, writes = (frozenset(topic_name(workload.home, t) for t in some) for some in (workload.reads, workload.writes))
            group = str(workload.options.get("group", ""))
            yield Copying(name=name, home=workload.home, group=group, reads=reads, writes=writes)


def _stories(facts: RunFacts, events: Sequence[Event], bounds: Sequence[Bounds], damage: list[Damage]) -> Mapping[Key, Story]:
    """What the events tell of each partition, and of each that was captured."""
    promotions = _promotions(events, damage)
    truncations = _by_partition(events, "truncation", _truncations, damage)
    stops = _by_partition(events, "mirror-stopped", _stops, damage)
    descriptions = _by_partition(events, "mirror-described", _descriptions, damage)
    unclear = _by_partition(events, "promotion-unknown", _unclear, damage)
    compacted = _compacted(bounds)
    keys = (
        {(b.topic, b.partition) for b in bounds}
        | promotions.keys()
        | truncations.keys()
        | stops.keys()
        | descriptions.keys()
        | unclear.keys()
    )
    return {
        key: Story(
            facts=facts,
            topic=key[0],
            partition=key[1],
            promotions=tuple(promotions.get(key, ())),
            truncations=tuple(truncations.get(key, ())),
            stops=tuple(stops.get(key, ())),
            descriptions=tuple(descriptions.get(key, ())),
            compacted=compacted.get(key, {}),
            unclear=dict(unclear.get(key, ())),
        )
        for key in sorted(keys)
    }


def _elsewhere(topology: Topology, events: Sequence[Event]) -> Iterator[Damage]:
    """Promotions and truncations of clusters that the run does not have."""
    known = [cluster.name for cluster in topology.clusters]
    for event in events:
        if event.kind in ("promotion", "truncation") and str(event.data.get("cluster")) not in known:
            reason = f"a {event.kind} is of cluster {str(event.data.get('cluster'))!r}, and the run has {', '.join(known)}"
            yield Damage(path="events.jsonl", reason=reason)


def _contradicted(events: Sequence[Event]) -> Iterator[Damage]:
    """Truncations of which the mirror, when it stopped, reported another place or another end of the log."""
    for event in events:
        if event.kind != "truncation":
            continue
        said = (event.data.get("offset"), event.data.get("end"))
        for row in _journal_after(event, events):
            same = all(row.get(name) == event.data.get(name) for name in ("topic", "partition"))
            if same and row.get("cut_from", -1) != -1 and (row.get("cut"), row.get("cut_from")) != said:
                where = f"{event.data.get('topic')}-{event.data.get('partition')} on {event.data.get('cluster')}"
                reason = f"a truncation of {where} says {said}, its mirror {(row.get('cut'), row.get('cut_from'))} (offset, end)"
                yield Damage(path="events.jsonl", reason=reason)


def _journal_after(event: Event, events: Sequence[Event]) -> Sequence[Mapping[str, object]]:
    """The partitions in the next journal of the mirror that reported an event; empty where there is none."""
    stops = [e for e in events if e.kind == "mirror-stopped" and e.subject == event.subject and e.time >= event.time]
    rows = stops[0].data.get("partitions") if stops else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _judged(topology: Topology, homes: Mapping[str, str], topic: str) -> bool:
    return topic in homes if homes else is_data(topology, topic)


def _deaths(events: Sequence[Event], captured: Sequence[Bounds]) -> Mapping[str, int]:
    """When clusters of which a broker died by itself were dead, and sources that a refused failover killed; not of those of which
    the last capture found one alive."""
    living = {bounds.cluster for bounds in captured if bounds.alive}
    died = {e.subject.partition("/")[0]: e.time for e in events if e.kind == "broker-died"}
    for refused in (e for e in events if e.kind == "failover-refused"):
        begun = [e.time for e in events if e.kind == "fault-start" and e.subject == refused.subject and e.time <= refused.time]
        died.setdefault(refused.subject.partition("->")[0], max(begun, default=refused.time))
    return {cluster: time for cluster, time in died.items() if cluster not in living}


def _compacted(captured: Sequence[Bounds]) -> Mapping[Key, Mapping[str, int]]:
    """Per partition and cluster, how far one of its brokers has compacted the log."""
    found: dict[Key, dict[str, int]] = defaultdict(dict)
    for bounds in captured:
        if bounds.compacted > 0:
            mine = found[bounds.topic, bounds.partition]
            mine[bounds.cluster] = max(bounds.compacted, mine.get(bounds.cluster, 0))
    return dict(found)


def is_data(topology: Topology, topic: str) -> bool:
    """Whether a topic belongs to a cluster of the topology (`home.name`), and is not a mirror's own."""
    home, dot, _ = topic.partition(".")
    return bool(dot) and home in {c.name for c in topology.clusters} and not topic.endswith(INTERNAL_SUFFIX)


def _replicas(
    reader: RunReader, run: str, topology: Topology, events: Sequence[Event], damage: list[Damage]
) -> tuple[list[Captured], list[Captured]]:
    """The replicas of each cluster's last capture; and those that spoke in earlier ones of clusters that were to be truncated."""
    times = {(e.subject, str(e.data.get("moment"))): e.time for e in events if e.kind == "captured"}
    latest, before = _captures(reader, events, times, damage)
    missing = [c.name for c in topology.clusters if c.name not in latest]
    damage.extend(Damage(path="captures", reason=f"cluster {name} is in no finished capture") for name in missing)
    gone = {d.path: d.reason for d in damage}

    def read(capture: _Capture, *, last: bool) -> list[Captured]:
        by_partition: dict[Key, list[Bounds]] = defaultdict(list)
        for bounds in capture.found:
            if _judged(topology, reader.run.homes, bounds.topic) or (last and bounds.topic in INTERNAL_TOPICS):
                by_partition[bounds.topic, bounds.partition].append(bounds)
        chosen = [c for _, same in sorted(by_partition.items()) for c in _captured(reader, run, capture.moment, same, gone)]
        return [
            replace(c, time=times.get((c.bounds.cluster, capture.moment), 0), last=last) for c in chosen if last or c.canonical
        ]

    return (
        [c for _, capture in sorted(latest.items()) for c in read(capture, last=True)],
        [c for capture in before for c in read(capture, last=False)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capture:
    """One capture of one cluster: at which moment, and the bounds of its replicas."""

    moment: str
    found: Sequence[Bounds]


def _captures(
    reader: RunReader, events: Sequence[Event], times: Mapping[tuple[str, str], int], damage: list[Damage]
) -> tuple[dict[str, _Capture], list[_Capture]]:
    """The last capture of each cluster; and the earlier ones of clusters that were made to follow, or that lack their last."""
    follow = _made_to_follow(events)
    latest: dict[str, _Capture] = {}
    before: list[_Capture] = []
    absent = absent_captures(reader, events)
    damage.extend(absent.values())
    moments = _in_order(reader.moments(), times)
    if not moments:
        damage.append(Damage(path="captures", reason="missing: no log was captured"))
    for moment in moments:
        found, wrong = reader.bounds(moment)
        damage.extend(wrong)
        for cluster in _begun(reader, moment) if wrong else ():
            # What an older capture has of it is not what the cluster had in the end.
            latest.pop(cluster, None)
        for cluster, own in _by_cluster(found).items():
            if (cluster, moment) in absent:
                continue
            if cluster in latest and cluster in follow:
                before.append(latest[cluster])
            latest[cluster] = _Capture(moment=moment, found=own)
    newest = {cluster: moment for (cluster, moment), _ in sorted(times.items(), key=lambda t: t[1])}
    for cluster in [c for c in latest if (c, newest.get(c, "")) in absent]:
        # It shows what was there before, and what was there in the end is unknown.
        before.append(latest.pop(cluster))
    return latest, before


def _made_to_follow(events: Sequence[Event]) -> set[str]:
    return {e.subject.partition("->")[0] for e in events if e.kind == "fault-start" and e.data.get("fault") == REVERSAL}


def _by_cluster(found: Iterable[Bounds]) -> Mapping[str, list[Bounds]]:
    own: dict[str, list[Bounds]] = defaultdict(list)
    for bounds in found:
        own[bounds.cluster].append(bounds)
    return own


def _in_order(moments: Iterable[str], times: Mapping[tuple[str, str], int]) -> list[str]:
    """Moments by when the last cluster was captured."""
    ended: dict[str, int] = {}
    for (_, moment), time in times.items():
        ended[moment] = max(time, ended.get(moment, 0))
    return sorted(moments, key=lambda moment: (ended.get(moment, 0), moment))


def _begun(reader: RunReader, moment: str) -> list[str]:
    """The clusters of which a capture holds anything."""
    return sorted(path.name for path in (reader.root / "captures" / moment).glob("*") if path.is_dir())


def _captured(reader: RunReader, run: str, moment: str, same: Sequence[Bounds], gone: Mapping[str, str]) -> list[Captured]:
    """The replicas of one partition of one cluster, one of them canonical."""
    found = spoken_for(run, moment, same, {bounds.broker: reader.segments(moment, bounds) for bounds in same})
    return [_within(replace(c, damage=_missing(reader, moment, c.bounds, gone))) for c in found]


def _within(captured: Captured) -> Captured:
    """The replica, with a log start that its log can have. What begins behind its own end would excuse whatever it lacks."""
    bounds, paths = captured.bounds, [Path(path) for path in captured.paths]
    # A log reaches at least to the offset its last file is named by: mostly nothing need be read for this.
    if not paths or bounds.log_start <= max(segments.offset_in(paths[-1].name), 0):
        return captured
    end, wrong = segments.log_end(paths)
    if wrong or bounds.log_start <= end or not batches.scan(paths, sums=False).headers.base_offset.size:
        return captured
    reason = f"captures/{captured.moment}/bounds.json: log start {bounds.log_start}, and the log ends at {end}"
    start = max(segments.offset_in(paths[0].name), 0)
    return replace(captured, bounds=replace(bounds, log_start=start), damage=(*captured.damage, reason))


def spoken_for(run: str, moment: str, same: Sequence[Bounds], paths: Mapping[int, Sequence[Path]]) -> list[Captured]:
    """The replicas of one partition of one cluster, their files by broker; one of them speaks for it."""
    leaders = [b for b in same if b.leader]
    able = leaders or same
    speaker = able[0] if len(able) == 1 else max(able, key=lambda b: (*_reach(paths[b.broker]), -b.broker))
    return [
        Captured(
            run=run,
            moment=moment,
            canonical=bounds is speaker,
            bounds=bounds,
            paths=tuple(str(path) for path in paths[bounds.broker]),
            size=sum(map(_size, paths[bounds.broker])),
        )
        for bounds in sorted(same, key=lambda b: b.broker)
    ]


def _size(path: Path) -> int:
    """Of one that is there no more (retention took it since it was listed) 0: whoever reads it says so."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


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


Row = TypeVar("Row", Truncation, Stop, Description, tuple[str, int])


def _by_partition(
    events: Sequence[Event], kind: str, read: Callable[[Event], Iterator[tuple[Key, Row]]], damage: list[Damage]
) -> Mapping[Key, Sequence[Row]]:
    """What the events of one kind tell of each partition, in time order."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for event in events:
        if event.kind == kind:
            try:
                for key, row in read(event):
                    found[key].append(row)
            except (KeyError, TypeError, ValueError) as error:
                damage.append(Damage(path="events.jsonl", reason=f"a {kind} of {event.subject} that cannot be read: {error!r}"))
    return dict(found)


def _truncations(event: Event) -> Iterator[tuple[Key, Truncation]]:
    data = cast("Mapping[str, Any]", event.data)
    yield (
        (str(data["topic"]), int(data["partition"])),
        Truncation(
            link=event.subject, cluster=str(data["cluster"]), offset=int(data["offset"]), end=int(data["end"]), time=event.time
        ),
    )


def _descriptions(event: Event) -> Iterator[tuple[Key, Description]]:
    data = cast("Mapping[str, Any]", event.data)
    for row in data["rows"]:
        yield (
            (str(row["topic"]), int(row["partition"])),
            Description(
                link=event.subject,
                state=str(row["state"]),
                mirrors=bool(row["mirrors"]),
                lag=int(row["lag"]),
                asked=int(data["asked"]),
                returned=event.time,
            ),
        )


def _unclear(event: Event) -> Iterator[tuple[Key, tuple[str, int]]]:
    data = cast("Mapping[str, Any]", event.data)
    yield (str(data["topic"]), int(data["partition"])), (str(data["cluster"]), int(data["offset"]))


def _stops(event: Event) -> Iterator[tuple[Key, Stop]]:
    """Of a mirror that keeps no journal there is nothing to tell."""
    data = cast("Mapping[str, Any]", event.data)
    for row in data.get("partitions", ()):
        yield (
            (str(row["topic"]), int(row["partition"])),
            Stop(
                link=event.subject,
                cluster=event.subject.partition("->")[2],
                time=event.time,
                mirrored=int(row["mirrored"]),
                promoted=int(row["promoted"]),
                truncated=tuple((int(end), int(offset)) for end, offset in row.get("truncated", ())),
                appended=tuple((int(offset), str(what)) for offset, what in row.get("appended", ())),
                epochs=tuple((int(epoch), int(start)) for epoch, start in row.get("epochs", ())),
            ),
        )


def _failover_kind(data: Mapping[str, Any]) -> Literal["planned", "forced"]:
    return "planned" if data.get("kind") == "planned" else "forced"


def _windows(events: Sequence[Event], ended: int) -> list[Window]:
    """Fault windows by start; one without a recorded end ended with its heal, else it is open until the run's end."""
    ends = {str(e.data.get("id")): e.time for kind in ("fault-heal", "fault-end") for e in events if e.kind == kind}
    return [
        Window(
            id=str(event.data.get("id")),
            fault=str(event.data.get("fault")),
            target=event.subject,
            start=event.time,
            end=ends.get(str(event.data.get("id")), ended),
            took_effect=event.data.get("fault") != REVERSAL or _reversed(events, event),
        )
        for event in events
        if event.kind == "fault-start"
    ]


def _reversed(events: Sequence[Event], fault: Event) -> bool:
    """Whether the mirror of the reverse link cut anything, or ran, once this fault had begun."""
    source, _, destination = fault.subject.partition("->")
    signs = (e for e in events if e.subject == f"{destination}->{source}" and e.time >= fault.time)
    return any(e.kind in ("truncation", "mirror-started", "mirror-stopped") for e in signs)
