"""Which clients of a run promise progress: where, from when, and until when.

They promise it once all faults have ended and were seen to be healed, on the cluster where they are
in the end, as long as that cluster lives and none of its brokers died by itself. Producers, relays
and programs are stopped when the run settles; readers read on until its logs are captured. A run
that did not get that far has no end of the wait, so nothing is promised in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from linkflap.harness.model.events import (
    BrokerDied,
    ClientDied,
    ClientsMoved,
    ClientStalled,
    Event,
    FaultHeal,
    Phase,
    of_kind,
)
from linkflap.harness.model.scenario import WorkloadSpec, clients, group_of
from linkflap.harness.model.topology import topic_name
from linkflap.harness.rundir import Run
from linkflap.spark_verify.facts.partition_facts import Awaited, Window
from linkflap.spark_verify.read.captures import CapturedReplica

BEGINS: Final = "breaking things"
SETTLES: Final = "settling"
ENDS: Final = "capturing logs"
Kind = Literal["reader", "group", "share", "producer", "program"]
_PRODUCERS: Final = ("transactional", "idempotent", "zombie")
_LONGEST: Final = 1e9
"""Seconds: a longer wait is as good as one for ever."""
_OPTIONS: Final = {"rate": 20.0, "hold": 2.0, "timeout": 10.0, "commit_every": 1.0}
"""The workloads' defaults of options that make a client stand still for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """Since when clients promise progress, when each kind is stopped, and on which clusters."""

    since: int
    settles: int
    ends: int
    broken: int
    clusters: frozenset[str]


def awaited(
    run: Run,
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
        found = _of(name, spec, run, events, wait)
        if found is None:
            continue
        if spec.kind == "relay":  # it consumes in a group, and produces under its own name
            yield replace(found, client=name, kind="producer", until=found.since, group="")
            found = replace(found, produces=False)
        if not found.group or (found.group, found.home) not in seen:  # members are one client
            seen.add((found.group, found.home))
            yield found


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
    name: str, spec: WorkloadSpec, run: Run, events: Sequence[Event], wait: _Wait
) -> Awaited | None:
    kind = _kind(spec)
    if kind is None:
        return None
    within = _within(spec, run)
    cluster, until = _cluster(spec, events), wait.ends if _reads_only(spec) else wait.settles
    if not within or cluster not in wait.clusters:
        until = wait.since
    group = group_of(spec)
    client = f"group {group}" if _reads_only(spec) and group else name
    stalled = [e for e in of_kind(events, ClientStalled) if e.client == client]
    return Awaited(
        client=client,
        kind="group" if kind == "program" and group else kind,
        cluster=cluster,
        home=spec.home,
        since=wait.since,
        until=until,
        within=_nanoseconds(within + _stands_still(spec)),
        group=group,
        isolation=str(spec.options.get("isolation", "read_committed")),
        topics=_full_names(spec, spec.reads),
        outputs=_full_names(spec, spec.writes),
        produces=spec.kind in ("transactional", "idempotent", "relay"),
        timeout=_nanoseconds(_number(spec, "timeout")),
        broken=wait.broken,
        exits=_exits(events, name),
        said=stalled[-1].coordinator if stalled else "",
        last_words=stalled[-1].last_words if stalled else (),
    )


def _within(spec: WorkloadSpec, run: Run) -> float:
    """Seconds in which it has to make progress: its own, or the scenario's."""
    own = spec.progress_within
    return run.scenario.progress_within if own is None else own


def _full_names(spec: WorkloadSpec, topics: Iterable[str]) -> frozenset[str]:
    return frozenset(topic_name(spec.home, topic) for topic in topics)


def _exits(events: Sequence[Event], name: str) -> tuple[int, ...]:
    """When it ended by itself."""
    return tuple(
        e.time for e in of_kind(events, ClientDied) if e.process == name and e.by == "itself"
    )


def _kind(spec: WorkloadSpec) -> Kind | None:
    if spec.command:
        return "program" if spec.writes or group_of(spec) else None
    if spec.kind in _PRODUCERS:
        return "producer"
    if spec.kind == "readers":
        return "group" if group_of(spec) else "reader"
    if spec.kind == "relay":
        return "group"
    return "share" if spec.kind == "share-group" else None


def _reads_only(spec: WorkloadSpec) -> bool:
    return spec.kind in ("readers", "share-group")


def _cluster(spec: WorkloadSpec, events: Sequence[Event]) -> str:
    """Where it is in the end: it moves with the others, but for readers that stay."""
    cluster = str(spec.options.get("cluster", spec.home))
    if spec.options.get("follow", not spec.options.get("assign", False)):
        for moved in of_kind(events, ClientsMoved):
            if moved.cluster == cluster:
                cluster = moved.to
    return cluster


def _stands_still(spec: WorkloadSpec) -> float:
    """Seconds for which its options let it stand still: between two operations, with a transaction
    held open, between two commits."""
    if _reads_only(spec):
        return _number(spec, "commit_every")
    if spec.kind in _PRODUCERS or spec.kind == "relay":
        rate = _number(spec, "rate")
        return _number(spec, "hold") + (1 / rate if rate > 0 else 0.0)
    return 0.0


def _number(spec: WorkloadSpec, name: str) -> float:
    given = spec.options.get(name, _OPTIONS[name])
    return float(min(given, _LONGEST)) if isinstance(given, int | float) else _OPTIONS[name]


def _nanoseconds(seconds: float) -> int:
    return int(min(seconds, _LONGEST) * 1e9)
