"""Plans the judgement of a run directory: the replicas that represent each cluster (`captures`),
the promotions that split them into eras (`partition_events`), and the windows of faults.

Clients of a run promise progress once all faults have ended and their heals were confirmed. The
promise holds on the cluster where the clients end up, as long as that cluster lives and none of its
brokers died by itself. Producers, relays and programs stop when the run settles; readers read on
until the logs are captured. A run that ended before that time promises nothing.

Where programs name the topics, a topic is at home on the cluster on which they wrote it first.
Recorders know when a program first sent a batch to a topic of their cluster, and when the cluster
first accepted one. Some topics have no recorded writer, or were written only after a failover had
promoted them. Such a topic is at home on the cluster that has it and that no link reaches from
another cluster that has it. A topic is judged where its home is certain. The others are named, and
make the verdict unknown:

- one that was written on a second cluster before a failover had promoted it there: a mirror may
have mixed the records of both, and which copy counts is unknown; - one that only a failback carried
away from its home, against the direction of the topology's links; - one whose home has no log of
it: the topic was deleted, and its copies have nothing to be compared with; - one whose name Kafka
or a mirror uses for itself: mirrors do not carry it.

A topic that a program deleted on any cluster is named and not judged, and the verdict rests on the
others. The program wanted the records gone, and a new topic may have the same name since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Literal

from linkflap.harness.model.errors import InputError, LinkflapError
from linkflap.harness.model.events import (
    BrokerDied,
    ClientDied,
    ClientsMoved,
    ClientStalled,
    Event,
    Failover,
    FailoverRefused,
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    MirrorStarted,
    MirrorStopped,
    Phase,
    Promotion,
    Truncation,
    WireRecorded,
    of_kind,
)
from linkflap.harness.model.faults import UNCLEAN
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.payload import KEYS, LARGEST_VALUE, VALUE_SIZE, Values
from linkflap.harness.model.scenario import (
    PRODUCERS,
    Scenario,
    WorkloadSpec,
    clients,
    full_names,
    group_of,
)
from linkflap.harness.model.topology import (
    ANY_NAME,
    LinkSpec,
    TopicPartition,
    Topology,
    is_data_topic,
)
from linkflap.harness.rundir import Damage, Run, RunReader
from linkflap.spark_verify.facts.partition_facts import (
    Awaited,
    Copying,
    LogPromotion,
    Loss,
    PartitionFacts,
    RunFacts,
    Window,
)
from linkflap.spark_verify.read import captures, partition_events
from linkflap.spark_verify.read.captures import CapturedReplica, is_judged
from linkflap.spark_verify.read.missing_parts import (
    absent_ends,
    absent_promotions,
    absent_steps,
    in_events,
    misplaced_promotions,
    out_of_time,
    unnoted_captures,
)
from linkflap.spark_verify.read.reader_histories import ends_at

_LISTED: Final = 1 << 20
"""Records that the bites of a run may list."""
BEGINS: Final = "breaking things"
SETTLES: Final = "settling"
ENDS: Final = "capturing logs"
Kind = Literal["reader", "group", "share", "producer", "program"]
_LONGEST: Final = 1e9
"""Seconds. A longer wait counts as endless."""
_OPTIONS: Final = {"rate": 20.0, "hold": 2.0, "timeout": 10.0, "commit_every": 1.0}
"""Defaults of the workload options that make a client pause, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """When clients begin to promise progress, when each kind is stopped, and on which clusters."""

    since: int
    settles: int
    ends: int
    broken: int
    clusters: frozenset[str]


def awaited(
    run: Run,
    homes: Mapping[str, str],
    events: Sequence[Event],
    replicas: Sequence[CapturedReplica],
    windows: Sequence[Window],
) -> Iterator[Awaited]:
    """The clients of a recorded run that promise progress, or produce; events in time order."""
    if not run.recorded:
        return
    wait = _wait(events, replicas, windows)
    seen: set[tuple[str, str]] = set()
    for name, spec in clients(run.scenario.workloads):
        found = _of(name, spec, run, homes, events, wait)
        if found is None:
            continue
        if spec.kind == "relay":  # a relay consumes in a group, and produces under its own name
            yield replace(found, client=name, kind="producer", until=found.since, group="")
            found = replace(found, produces=False)
        if not found.group or (found.group, found.home) not in seen:  # all its members: one client
            seen.add((found.group, found.home))
            yield found
    yield from _mirrors(run, wait)


def _mirrors(run: Run, wait: _Wait) -> Iterator[Awaited]:
    """The mirrors between clusters that run to the end."""
    within = _nanoseconds(run.scenario.progress_within)
    for link in run.scenario.topology.links:
        if within and wait.clusters.issuperset(link.ends):
            yield Awaited(
                client=f"the mirror {link.name}",
                kind="mirror",
                cluster=link.destination,
                home=link.source,
                since=wait.since,
                until=wait.ends,
                within=within,
            )


def _wait(
    events: Sequence[Event], replicas: Sequence[CapturedReplica], windows: Sequence[Window]
) -> _Wait:
    phases = {phase.name: phase.time for phase in of_kind(events, Phase)}
    moved = [e.time for e in of_kind(events, ClientsMoved)]
    since = max([phases.get(BEGINS, 0), *moved, *(window.end for window in windows)])
    settles = phases.get(SETTLES, 0)
    healed = all(heal.healed for heal in of_kind(events, FaultHeal))
    alive = {captured.bounds.cluster for captured in replicas if captured.bounds.alive}
    died = {event.cluster for event in of_kind(events, BrokerDied)}
    return _Wait(
        since=since,
        settles=settles,
        ends=phases.get(ENDS, settles),
        broken=min((window.start for window in windows), default=0),
        clusters=frozenset(alive - died) if healed else frozenset(),
    )


def _of(
    name: str,
    spec: WorkloadSpec,
    run: Run,
    homes: Mapping[str, str],
    events: Sequence[Event],
    wait: _Wait,
) -> Awaited | None:
    kind = _kind(spec)
    if kind is None:
        return None
    within = _within(spec, run)
    cluster = ends_at(spec, events)
    works = within and cluster in wait.clusters and not _gone(events, name)
    settles = wait.ends if _reads_only(spec) else wait.settles
    group = group_of(spec)
    client = f"group {group}" if _reads_only(spec) and group else name
    stalled = [e for e in of_kind(events, ClientStalled) if e.client == client]
    return Awaited(
        client=client,
        kind="group" if kind == "program" and group else kind,
        cluster=cluster,
        home=spec.home,
        since=wait.since,
        until=settles if works else wait.since,
        within=_nanoseconds(within + _stands_still(spec)),
        group=group,
        isolation=str(spec.options.get("isolation", "read_committed")),
        topics=_read(spec, homes),
        outputs=among(homes, full_names(spec, spec.writes)),
        produces=spec.kind in ("transactional", "idempotent", "relay"),
        timeout=_nanoseconds(_number(spec, "timeout")),
        broken=wait.broken,
        exits=_exits(events, name),
        said=stalled[-1].coordinator if stalled else "",
        last_words=stalled[-1].last_words if stalled else (),
    )


def _within(spec: WorkloadSpec, run: Run) -> float:
    """Seconds within which the workload's clients must make progress: the workload's own limit,
    else the scenario's."""
    own = spec.progress_within
    return run.scenario.progress_within if own is None else own


def _read(spec: WorkloadSpec, homes: Mapping[str, str]) -> frozenset[str]:
    """The topics that a workload names to be read. A client of linkflap's reads no others."""
    named = full_names(spec, spec.reads)
    return among(homes, named) if spec.command else frozenset(named) - {ANY_NAME}


def among(homes: Mapping[str, str], topics: Iterable[str]) -> frozenset[str]:
    """The given topics; for programs that name topics freely, all judged topics."""
    named = frozenset(topics)
    return frozenset(homes) if ANY_NAME in named else named


def _exits(events: Sequence[Event], name: str) -> tuple[int, ...]:
    """When the process ended by itself."""
    return tuple(
        e.time for e in of_kind(events, ClientDied) if e.process == name and e.by == "itself"
    )


def _gone(events: Sequence[Event], name: str) -> bool:
    """Whether the process has ended and was not started again."""
    died = [event for event in of_kind(events, ClientDied) if event.process == name]
    return bool(died) and not died[-1].again


def _kind(spec: WorkloadSpec) -> Kind | None:
    if spec.command:
        return "program" if spec.writes or group_of(spec) else None
    if spec.kind in PRODUCERS:
        return "producer"
    if spec.kind == "readers":
        return "group" if group_of(spec) else "reader"
    if spec.kind == "relay":
        return "group"
    return "share" if spec.kind == "share-group" else None


def _reads_only(spec: WorkloadSpec) -> bool:
    return spec.kind in ("readers", "share-group")


def _stands_still(spec: WorkloadSpec) -> float:
    """Seconds for which the options let a client pause: between two operations, with an open
    transaction, between two commits."""
    if _reads_only(spec):
        return _number(spec, "commit_every")
    if spec.kind in PRODUCERS or spec.kind == "relay":
        rate = _number(spec, "rate")
        return _number(spec, "hold") + (1 / rate if rate > 0 else 0.0)
    return 0.0


def _number(spec: WorkloadSpec, name: str) -> float:
    given = spec.options.get(name, _OPTIONS[name])
    return float(min(given, _LONGEST)) if isinstance(given, int | float) else _OPTIONS[name]


def _nanoseconds(seconds: float) -> int:
    return int(min(seconds, _LONGEST) * 1e9)


UNFORESEEN: Final = "says something that no run directory says"
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything about one run except its rows: small, and sent to the Spark tasks that assemble
    its partitions.

    `damage` lists the parts of the directory that could not be read while planning.
    `partition_facts` has the partitions that were captured or that an event names. `earlier` are
    replicas of captures before the last one of a cluster that was truncated. `deleted` maps each
    topic that programs deleted to the reason that the document gives.
    """

    facts: RunFacts
    replicas: Sequence[CapturedReplica]
    partition_facts: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    damage: Sequence[Damage] = ()
    earlier: Sequence[CapturedReplica] = ()
    doubts: Sequence[str] = ()
    deleted: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """The run directory."""
        return self.facts.run

    @property
    def promotions(self) -> Mapping[TopicPartition, Sequence[LogPromotion]]:
        """For the promoted partitions."""
        return {key: f.promotions for key, f in self.partition_facts.items() if f.promotions}

    def judges(self, topic: str) -> bool:
        """Whether a topic is data: its home was recorded, or its name begins with it."""
        return is_judged(self.facts.topology, self.facts.homes, topic)

    def facts_of(self, topic: str, partition: int) -> PartitionFacts:
        """The facts about a partition; none where nothing was recorded."""
        return self.partition_facts.get((topic, partition)) or PartitionFacts(
            facts=self.facts, topic=topic, partition=partition
        )


def plan(root: Path) -> RunPlan:
    """Reads the small files of a run directory: run.json, events, bounds."""
    try:
        return _planned(root)
    except LinkflapError:
        raise
    except Exception as error:
        raise InputError(
            f"{root} {UNFORESEEN} ({type(error).__name__}: {str(error)[:_SHOWN]}); the run "
            "directory is damaged beyond judging"
        ) from error


def _planned(root: Path) -> RunPlan:
    reader = RunReader(root)
    run = str(root)
    events, damage = reader.events()
    events.sort(key=lambda e: e.time)
    damage = [*reader.damage(), *damage]
    ended = reader.run.ended or max((e.time for e in events), default=reader.run.started)
    topology = reader.run.scenario.topology
    found = Homes(of=dict(reader.run.homes))
    mirrored: Sequence[Event] = events
    if topology.any_names:
        found = inferred_homes(topology, events, captures.topics(reader, events))
        mirrored = judged_events(topology, events, found.of)
    homes, named = found.of, partial(is_judged, topology, found.of)
    replicas, earlier = captures.replicas(reader, run, named, topology, events, damage)
    damage.extend(_elsewhere(topology, events))
    damage.extend(partition_events.contradicted(events))
    damage.extend(partition_events.truncated_upstream(topology, events))
    damage.extend(
        in_events(f"the bite of fault {bite.id} {why}")
        for bite in of_kind(events, FaultBite)
        if (why := _impossible(bite, _began(events, bite)))
    )
    if reader.run.recorded:
        damage.extend(out_of_time(reader.run, events))
        damage.extend(absent_steps(reader.run, events))
        damage.extend(absent_ends(reader.run, events))
        damage.extend(unnoted_captures(reader, events))
        damage.extend(misplaced_promotions(reader.run, events))
        damage.extend(_unread_of_share_groups(events))
        damage.extend(
            absent_promotions(
                events, named, journal=reader.run.scenario.mirror.guarantee.keeps_journal
            )
        )
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
        refusals=tuple(of_kind(events, FailoverRefused)),
        drained=_drained(events),
        programs=frozenset(
            topic
            for w in reader.run.scenario.workloads
            for topic in among(homes, full_names(w, w.writes))
        ),
        wired=among(homes, reader.run.scenario.recorded_topics),
        copying=tuple(_copying(reader.run.scenario.workloads)),
        awaited=tuple(awaited(reader.run, homes, events, replicas, _windows(events, ended))),
        topic_config=reader.run.scenario.topics.config,
        values=_values(reader.run.scenario),
    )
    bounds = [c.bounds for c in (*replicas, *earlier)]
    return RunPlan(
        facts=facts,
        partition_facts=partition_events.partition_facts(
            facts, mirrored, bounds, reader.run.scenario.topics
        ),
        replicas=replicas,
        earlier=earlier,
        damage=damage,
        doubts=found.doubts,
        deleted=found.deleted,
    )


def _drained(events: Sequence[Event]) -> frozenset[str]:
    stopped = [*of_kind(events, MirrorStopped)]
    return frozenset(e.link for e in stopped) - {e.link for e in stopped if not e.drained}


def _values(scenario: Scenario) -> Mapping[str, Values]:
    """The values that each client of a producing workload writes. Values that a test writes through
    linkflap's API are unknown."""
    return {
        name: _written(
            scenario.seed,
            int(_option(w, "value_size", VALUE_SIZE, 1, LARGEST_VALUE)),
            int(_option(w, "keys", KEYS, 1, 1_000_000)),
            _option(w, "skew", 1.0, 1.0, 100.0),
            _option(w, "tombstones", 0.0, 0.0, 1.0),
        )
        for name, w in clients(scenario.workloads)
        if w.kind in (*PRODUCERS, "relay") and not w.command
    }


@lru_cache(maxsize=64)
def _written(seed: int, size: int, keys: int, skew: float, tombstones: float) -> Values:
    """The same object for all clients of a kind: facts are sent once for each."""
    return Values(seed, size, keys=keys, skew=skew, tombstones=tombstones)


def _option(workload: WorkloadSpec, name: str, default: float, low: float, high: float) -> float:
    """A numeric option of a producing workload, checked against its range."""
    value = workload.options.get(name, default)
    if not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(
            f"run.json has the option {name} = {value!r} of a workload {workload.kind}, which is a "
            f"number from {low:g} to {high:g}; the run directory is damaged beyond judging"
        )
    return float(value)


def _copying(workloads: Sequence[WorkloadSpec]) -> Iterator[Copying]:
    for name, workload in clients(workloads):
        if workload.exactly_once:
            reads, writes = (
                frozenset(full_names(workload, some)) for some in (workload.reads, workload.writes)
            )
            group = str(workload.options.get("group", ""))
            yield Copying(name=name, home=workload.home, group=group, reads=reads, writes=writes)


def _elsewhere(topology: Topology, events: Sequence[Event]) -> Iterator[Damage]:
    """Promotions and truncations that name a cluster outside of the run's topology, as damage."""
    known = [cluster.name for cluster in topology.clusters]
    for event in events:
        if isinstance(event, Promotion | Truncation) and event.cluster not in known:
            reason = (
                f"a {event.kind} is of cluster {event.cluster!r}, and the run has "
                f"{', '.join(known)}"
            )
            yield in_events(reason)


def _deaths(events: Sequence[Event], captured: Sequence[Bounds]) -> Mapping[str, int]:
    """cluster -> time of its death (ns). A cluster died if a broker of it died by itself, or if it
    was the source of a forced failover, whether completed, refused, or neither.

    Clusters are left out if their last capture found a broker alive.
    """
    living = {bounds.cluster for bounds in captured if bounds.alive}
    died = {e.cluster: e.time for e in of_kind(events, BrokerDied)}
    for cluster, time in (*_refused(events), *_killed(events)):
        died.setdefault(cluster, time)
    return {cluster: time for cluster, time in died.items() if cluster not in living}


def _refused(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """The sources of refused failovers, and the times at which those failovers began."""
    for refused in of_kind(events, FailoverRefused):
        begun = [
            e.time
            for e in of_kind(events, FaultStart)
            if e.target == refused.link and e.time <= refused.time
        ]
        yield refused.between.source, max(begun, default=refused.time)


def _killed(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """The sources of forced failovers, the last one first. A failover that promoted nothing,
    because its mirror hung or failed, had killed its source before."""
    completed = of_kind(events, Failover)
    for fault in reversed(of_kind(events, FaultStart)):
        if fault.name.forced:
            died = (
                e.fault_time for e in completed if e.link == fault.target and e.time >= fault.time
            )
            yield fault.on.source, next(died, fault.time)


def _windows(events: Sequence[Event], ended: int) -> list[Window]:
    """Fault windows by start. A window without a recorded end ends with its fault's heal, else with
    the run."""
    ends = {e.id: e.time for kind in (FaultHeal, FaultEnd) for e in of_kind(events, kind)}
    bites = {bite.id: bite for bite in of_kind(events, FaultBite) if bite.bit}
    return [
        Window(
            id=fault.id,
            fault=fault.fault,
            target=fault.target,
            start=fault.time,
            end=ends.get(fault.id, ended),
            took_effect=_took_effect(events, fault),
            lost=_lost(fault, bites.get(fault.id)) if fault.fault == UNCLEAN else (),
        )
        for fault in of_kind(events, FaultStart)
    ]


def _lost(fault: FaultStart, bite: FaultBite | None) -> tuple[Loss, ...]:
    """The losses of an unclean election, as its bite recorded them. Bites of older versions have no
    time of the election; they were measured right after it."""
    if bite is None or _impossible(bite, fault.time):
        return ()
    cluster = fault.on.cluster
    if bite.lost is None:
        return tuple(
            Loss(
                cluster=cluster, topic=topic, partition=number, start=start, end=end,
                elected=bite.time,
            )
            for topic, number, start, end in _measured(bite.measured)
        )  # fmt: skip
    return tuple(
        Loss(
            cluster=cluster, topic=each.topic, partition=each.partition, start=each.start,
            end=each.end, elected=each.elected,
            elected_epoch=each.elected_epoch, records=each.records, markers=each.markers,
        )
        for each in bite.lost
    )  # fmt: skip


def _began(events: Sequence[Event], bite: FaultBite) -> int:
    """The start of the fault that a bite belongs to; the time of the bite if the start was not
    recorded."""
    starts = of_kind(events, FaultStart)
    return next((start.time for start in starts if start.id == bite.id), bite.time)


def _impossible(bite: FaultBite, began: int) -> str:
    """Why the losses that a bite lists are impossible; empty if they are possible."""
    count = 0
    for lost in bite.lost or ():
        if not began <= lost.elected <= bite.time:
            return "dates its election outside of the fault"
        ranges = [(offset, size) for _, offset, size, _ in lost.records]
        ranges += [(offset, 1) for offset, *_ in lost.markers]
        if any(offset < lost.start or offset + size > lost.end for offset, size in ranges):
            return f"lists more than offsets {lost.start} to {lost.end}"
        count += sum(size for _, size in ranges)
    return f"lists {count} records, which is too many to be read" if count > _LISTED else ""


def _measured(measured: object) -> Sequence[tuple[str, int, int, int]]:
    """(topic, partition, from, to) of a bite of an older version: partition -> [from, to]."""
    if not isinstance(measured, Mapping):
        return ()
    found = []
    for name, ends in measured.items():
        topic, _, number = str(name).rpartition("-")
        if (
            topic
            and number.isdecimal()
            and isinstance(ends, list)
            and len(ends) == 2
            and all(isinstance(e, int) for e in ends)
        ):
            found.append((topic, int(number), ends[0], ends[1]))
    return sorted(found)


def _took_effect(events: Sequence[Event], fault: FaultStart) -> bool:
    """Whether a failover promoted anything, or a reversal truncated or started anything, once it
    had begun. True for all other faults."""
    if fault.name.fails_over:
        done = of_kind(events, Failover)
        return any(e.link == fault.target and e.time >= fault.time for e in done)
    return not fault.name.reverses or _reversed(events, fault)


def _reversed(events: Sequence[Event], fault: FaultStart) -> bool:
    """Whether the mirror of the reverse link truncated anything, or ran, once this fault had
    begun."""
    signs = (e for e in events if isinstance(e, Truncation | MirrorStarted | MirrorStopped))
    return any(e.link == fault.on.back and e.time >= fault.time for e in signs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWrite:
    """When programs first wrote a topic on a cluster (ns): asked, and accepted (0: never)."""

    cluster: str
    asked: int
    accepted: int

    @property
    def time(self) -> int:
        return self.accepted or self.asked


@dataclass(slots=True, kw_only=True)
class Homes:
    """The home of each judged topic, and the reason why each other topic is not judged; `deleted`:
    the reason for each topic that programs deleted themselves."""

    of: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    deleted: dict[str, str] = field(default_factory=dict)


def inferred_homes(
    topology: Topology, events: Sequence[Event], captured: Mapping[str, Collection[str]]
) -> Homes:
    """The homes of topics in a run whose programs name topics freely; `captured`: per cluster, the
    topics of which a log was captured."""
    homes, writes = Homes(), _first_writes(events)
    on_disk = {topic for topics in captured.values() for topic in topics}
    _find_deleted(events, captured, homes)
    for topic in sorted((on_disk | writes.keys()) - homes.deleted.keys()):
        if is_data_topic(topic, (ANY_NAME,)):
            _find_home(topic, topology, writes.get(topic, ()), events, captured, homes)
        elif topic in writes:
            homes.doubts.append(
                f"topic {topic} was written and is not judged, as Kafka or mirrors use names like "
                "it for themselves; give it another name"
            )
    return homes


def judged_events(
    topology: Topology, events: Sequence[Event], homes: Mapping[str, str]
) -> Sequence[Event]:
    """The events without promotions of topics that are not judged, or that are at home on the
    promoted cluster. A failover of MirrorMaker promotes every topic of its destination, also those
    that came over no link."""
    over = {link.name for link in topology.links}

    def judged(event: Promotion) -> bool:
        home = homes.get(event.topic)
        return home is not None and (event.link not in over or home != event.between.destination)

    return [event for event in events if not isinstance(event, Promotion) or judged(event)]


def _find_deleted(
    events: Sequence[Event], captured: Mapping[str, Collection[str]], homes: Homes
) -> None:
    for report in of_kind(events, WireRecorded):
        for topic, (unsure, done) in (report.deleted or {}).items():
            there = topic in captured.get(report.cluster, ())
            if done or unsure:
                homes.deleted[topic] = (
                    f"topic {topic} was deleted on {report.cluster} by a program, and is not judged"
                )
            if unsure and not done and there:
                homes.doubts.append(
                    f"a program asked {report.cluster} to delete topic {topic} and got no answer, "
                    "so that nothing says whether the one that is there is the same; write to "
                    "topics that you do not delete"
                )


def _unread_of_share_groups(events: Sequence[Event]) -> Iterator[Damage]:
    """What members of share groups got or acknowledged, or how a group was reset, that a recorder
    could not read: without it, records may seem to have been left out."""
    for report in of_kind(events, WireRecorded):
        for what, times in sorted(report.unread.items()):
            if "share" in what:
                yield Damage(
                    path=f"polls/wire-{report.cluster}.jsonl",
                    reason=f"the recorder of {report.cluster} could not read {what}, {times} times",
                )


def _first_writes(events: Sequence[Event]) -> Mapping[str, Sequence[FirstWrite]]:
    """Per topic, its first write on each cluster, the earliest first."""
    found: dict[str, list[FirstWrite]] = {}
    for report in of_kind(events, WireRecorded):
        for topic, (asked, accepted) in (report.written or {}).items():
            found.setdefault(topic, []).append(
                FirstWrite(cluster=report.cluster, asked=asked, accepted=accepted)
            )
    # a write that was accepted comes before one that never was
    return {
        topic: sorted(some, key=lambda first: (not first.accepted, first.time))
        for topic, some in found.items()
    }


def _find_home(
    topic: str,
    topology: Topology,
    writes: Sequence[FirstWrite],
    events: Sequence[Event],
    captured: Mapping[str, Collection[str]],
    homes: Homes,
) -> None:
    having = [c.name for c in topology.clusters if topic in captured.get(c.name, ())]
    promoted = [e for e in of_kind(events, Promotion) if e.topic == topic]
    # a topic that nobody wrote before its failover came from the mirror's source
    mirrored = bool(writes) and _written_after(writes[0], promoted, having)
    home = writes[0].cluster if writes and not mirrored else _upstream(topology, having)
    for other in (write for write in writes if write.cluster != home):
        if not _written_after(other, promoted):
            homes.doubts.append(
                f"topic {topic} was written on {home} and on {other.cluster}, where no failover "
                "had promoted it, so that nothing says which of them has its records; write it on "
                "one cluster, or on the other after a failover"
            )
            return
    if home not in having:
        homes.doubts.append(
            f"topic {topic} was written on {home} and is not there any more, so that its records "
            "cannot be judged; do not delete it before the end"
        )
        return
    if _only_failed_back(topology, home, promoted):
        homes.doubts.append(
            f"topic {topic} was written first on {home}, and a failback carried it where no link "
            "of the topology leads, so that its copies there are not judged; write it before the "
            "failover"
        )
        return
    homes.of[topic] = home


def _only_failed_back(topology: Topology, home: str, promotions: Iterable[Promotion]) -> bool:
    """Whether only a mirror against the direction of the topology's links carried a topic away from
    its home."""
    links = {link.name for link in topology.links}
    return any(e.link not in links and e.between.source == home for e in promotions)


def _written_after(
    write: FirstWrite, promotions: Iterable[Promotion], sources: Collection[str] | None = None
) -> bool:
    """Whether a failover promoted the topic on a cluster before the cluster accepted a write;
    `sources`: only failovers away from these count."""
    times = [
        each.time
        for each in promotions
        if each.cluster == write.cluster
        and (sources is None or LinkSpec.parse(each.link).source in sources)
    ]
    return bool(times) and not 0 < write.accepted < min(times)


def _upstream(topology: Topology, having: Sequence[str]) -> str:
    """The first of these clusters that no link leads to from another of them."""
    led_to: Iterable[str] = {link.destination for link in topology.links if link.source in having}
    return next((name for name in having if name not in led_to), having[0])
