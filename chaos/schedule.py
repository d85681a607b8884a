"""Checks whether a schedule can be played, and plays it: the only timeline of a run. Every fault is
injected, measured, held, healed and recorded.

Each fault has a thread, because windows overlap. The order within a fault is fixed (inject, bite,
hold, heal), and heal runs even if an earlier step failed. An error of a fault is recorded as an
event: without a bite the verdict is unknown. The Python API plays one fault window alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from linkflap.chaos.faults import (
    BEYOND_ITS_OWN,
    BY_COMMAND,
    BY_FAKETIME,
    FAULTS,
    IN_CONTAINERS,
    IN_PROCESSES,
    OF_CERTIFICATES,
    OF_CLIENTS,
    ON_ATTACHED,
    ON_THE_WIRE,
    check_options,
)
from linkflap.chaos.faults.base import FaultBase
from linkflap.chaos.faults.programs import there_are_recorded
from linkflap.chaos.triggers import (
    MIRRORED_AT_ONCE,
    MIRRORED_LATER,
    Condition,
    condition,
    known,
    recorded_only,
    unknown,
)
from linkflap.chaos.triggers import counted as counted_requests
from linkflap.harness import mirrors
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.events import FaultBite, FaultEnd, FaultHeal, FaultStart, Trigger
from linkflap.harness.model.faults import KILL, REVERSE, UNCLEAN
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.protocols import Administered, Bite, FaultWorld, Recorder
from linkflap.harness.model.scenario import (
    IN,
    IN_SYNC,
    OWN_GROUPS,
    FaultSpec,
    Scenario,
    WorkloadSpec,
    clusters_of,
    group_of,
    through_recorders,
)
from linkflap.harness.model.security import secured
from linkflap.harness.model.texts import counted, nearest
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import now, patient, pause, until
from linkflap.harness.runtimes import faketime
from linkflap.harness.workloads import topics


def check(schedule: Sequence[FaultSpec], topology: Topology) -> None:
    """Raises InputError, with the name of the fault, if a topology cannot play the schedule."""
    ids = [spec.id for spec in schedule]
    for spec in schedule:
        if ids.count(spec.id) > 1:
            raise InputError(
                f"two faults of the schedule have the id {spec.id!r}; give each its own id"
            )
        if spec.fault not in FAULTS:
            raise InputError(
                f"fault {spec.id!r} has the unknown kind {spec.fault!r}"
                f"{nearest(spec.fault, FAULTS)}; known: {', '.join(sorted(FAULTS))}"
            )
        if unknown(condition(spec.when)) is not None:
            raise InputError(
                f"fault {spec.id!r} waits for an unknown trigger: {spec.when!r}; known: "
                f"{', '.join(known())}"
            )
        reason = FAULTS[spec.fault].applies_to(spec.target, topology)
        if reason:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) cannot be applied to {spec.target!r}: {reason}"
            )
        check_options(spec)
    before = {spec.id: _before(spec, schedule) for spec in schedule}
    for spec in schedule:
        if spec.name.fails_over:
            _check_nothing_restarted(spec, schedule, before)
        if spec.name.fails_over or spec.fault in (REVERSE, KILL):
            _check_reversed(spec, before[spec.id], topology)


def check_scenario(scenario: Scenario) -> None:
    """As `check`, and raises InputError for a fault of something that the scenario does not
    have."""
    check(scenario.schedule, scenario.topology)
    for spec in scenario.schedule:
        if lacking := FAULTS[spec.fault].lacks(spec, scenario):
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) cannot be played on {spec.target!r}: {lacking}"
            )
        if recorded_only(condition(spec.when)) and (
            lacking := there_are_recorded(spec.on.entered, scenario)
        ):
            raise InputError(f"fault {spec.id!r} waits for {spec.when!r}, and {lacking}")
    starts = {f"{IN}{spec.id}" for spec in scenario.schedule}
    for workload in scenario.workloads:
        if workload.starts and workload.starts not in starts:
            raise InputError(
                f"a workload starts {workload.starts!r}, and there is no such fault; write in: and "
                f"the id of a fault{nearest(workload.starts, starts)}"
            )
    _check_starts(scenario)


def check_partitions(scenario: Scenario) -> None:
    """Raises InputError for requests that name a partition which their topic has not, as far as the
    run makes the topic."""
    grows = [spec for spec in scenario.schedule if spec.fault == "partitions-added"]
    count = scenario.topics.partitions + sum(int(spec.options.get("add", 1)) for spec in grows)
    made = topics(scenario.workloads)
    for spec in scenario.schedule:
        named = [
            (spec.options.get("topic"), spec.options.get("partition", -1)),
            *((what.topic, what.partition) for what in counted_requests([spec])),
        ]
        for topic, partition in named:
            if topic in made and int(partition) >= count:
                raise InputError(
                    f"fault {spec.id!r} ({spec.fault}) names partition {partition} of {topic}, "
                    f"which has {counted(count, 'partition')}, numbered from 0; name one of them"
                )


def _check_starts(scenario: Scenario) -> None:
    """Raises InputError for a workload that starts during a fault which waits, itself or through
    others, for requests that only such workloads could send: neither would ever begin."""
    faults = {spec.id: spec for spec in scenario.schedule}
    started = _that_can_start(scenario)
    for workload in (w for w in scenario.workloads if w not in started):
        first = faults[workload.starts.removeprefix(IN)]
        every = (first, *_before(first, scenario.schedule))
        last = next(spec for spec in every if not _may_be_sent(spec, started, scenario))
        raise InputError(
            f"a workload {workload.kind} starts {workload.starts!r}, and fault {last.id!r}, which "
            f"begins before it, waits for {last.when!r}, which only clients that start later could "
            "send; let one of them start without waiting for the other"
        )


def _that_can_start(scenario: Scenario) -> Sequence[WorkloadSpec]:
    """The workloads that start with the run, or during a fault that can begin."""
    begun = {""}
    for _ in (*scenario.schedule, None):  # each round adds a fault, or is like all that follow it
        started = [w for w in scenario.workloads if w.starts.removeprefix(IN) in begun]
        begun |= {
            spec.id
            for spec in scenario.schedule
            if begun.issuperset(condition(spec.when).faults)
            and _may_be_sent(spec, started, scenario)
        }
    return started


def _may_be_sent(spec: FaultSpec, started: Sequence[WorkloadSpec], scenario: Scenario) -> bool:
    """Whether clients that have started can send the requests that a fault waits for, if it waits
    for any. A program has the addresses of all clusters."""
    there = [w for w in started if w.command or spec.on.entered in clusters_of(w, scenario)]
    return not recorded_only(condition(spec.when)) or any(map(through_recorders, there))


_TIMES: Final = "message.timestamp.type"


def check_recorded(scenario: Scenario) -> None:
    """Raises InputError where what is to be recorded on the wire could not be read there, or not be
    found in the logs again."""
    through = next(filter(through_recorders, scenario.workloads), None)
    if through is None:
        return
    given = 'record = "wire"' if through.record else 'via = "wire"'
    for cluster in scenario.topology.clusters:
        if secured(cluster.security).certificates:
            raise InputError(
                f"{given} cannot show cluster {cluster.name} the certificates of its "
                "clients, because the recorder ends their TLS; leave it out (`linkflap exec`: "
                f"--record none), or secure the cluster without them: {cluster.name}{{tls+scram}}"
            )
    for spec in scenario.schedule:
        if spec.fault in OF_CERTIFICATES and spec.target.startswith("*->"):
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) has no effect on {spec.target}, where {given} "
                "puts a recorder with a certificate of its own; leave one of them out, or give "
                "the fault the link of a mirror"
            )
    kept = mirrors.resolve(scenario.mirror).guarantee.offsets_kept
    times = {scenario.topics.config.get(_TIMES)}
    times |= {cluster.config.get(f"log.{_TIMES}") for cluster in scenario.topology.clusters}
    if scenario.fetched_topics and not kept and "LogAppendTime" in times:
        raise InputError(
            f'record = "wire" cannot follow records through the mirror {scenario.mirror.kind} in '
            f"topics with {_TIMES} = LogAppendTime, whose copies have times of their own; leave "
            "one of them out"
        )


def check_in_sync(scenario: Scenario) -> None:
    """Raises InputError for topics that need more replicas in sync than they have: no record would
    ever be acknowledged."""
    homes = {workload.home for workload in scenario.workloads}
    for cluster in scenario.topology.clusters:
        if cluster.bootstrap:
            continue  # how many brokers it has is not known yet
        replicas = min(scenario.topics.replicas, cluster.brokers)
        own = scenario.topics.config.get(IN_SYNC) if cluster.name in homes else None
        needed = cluster.config.get(IN_SYNC, "") if own is None else own
        if needed.isdecimal() and int(needed) > replicas:
            raise InputError(
                f"{IN_SYNC} is {needed}, and topics on cluster {cluster.name} have "
                f"{counted(replicas, 'replica')}, so that no write would be acknowledged; lower "
                "it, or give the cluster more brokers (A:3) and topics more replicas"
            )


def check_replicas(scenario: Scenario) -> None:
    """Raises InputError if no cluster has as many brokers as topics are to have replicas."""
    clusters = scenario.topology.clusters
    most, replicas = max(cluster.brokers for cluster in clusters), scenario.topics.replicas
    if replicas > most and not scenario.topology.attached:
        raise InputError(
            f"replicas is {replicas}, and no cluster has more than {counted(most, 'broker')}; "
            f"lower it, or give a cluster {replicas} brokers ({clusters[0].name}:{replicas})"
        )


def check_attached(scenario: Scenario) -> None:
    """Raises InputError if a fault or a consumer group would affect other applications on a cluster
    that linkflap did not start.
    """
    if not scenario.topology.attached:
        return
    for spec in scenario.schedule:
        if spec.fault in FAULTS and spec.fault not in ON_ATTACHED:
            _check_by_command(spec, scenario.topology)
    for workload in scenario.workloads:
        group = group_of(workload)
        if group and not group.startswith(OWN_GROUPS):
            raise InputError(
                f"group {group!r} of workload {workload.kind} may belong to another application "
                f"on clusters that linkflap did not start; let its name begin with {OWN_GROUPS}"
            )


def _check_by_command(spec: FaultSpec, topology: Topology) -> None:
    """Raises InputError for a fault of a broker without the commands that do it and undo it, and
    for every other one."""
    cluster = spec.on.entered
    needed = BY_COMMAND.get(spec.fault, ())
    if needed and not set(needed) - set(topology.cluster(cluster).commands):
        return
    usual = f"it needs more of cluster {cluster} than its addresses"
    if needed:
        usual += f": commands to {' and '.join(needed)} a broker ([cluster.{cluster}.commands])"
    raise InputError(
        f"fault {spec.id!r} ({spec.fault}) cannot be played on {spec.target}, because linkflap did "
        f"not start cluster {cluster}: {BEYOND_ITS_OWN.get(spec.fault, usual)}; faults of links, "
        "clients and topics can"
    )


def check_runtime(schedule: Sequence[FaultSpec], runtime: str) -> None:
    """Raises InputError, with the name of the fault, if a runtime cannot play the schedule."""
    for spec in schedule:
        if spec.fault in IN_CONTAINERS and runtime != "docker":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs containers, and the runtime {runtime} has "
                "none; run it with --runtime docker"
            )
        if spec.fault in IN_PROCESSES and runtime != "process":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs brokers that are processes, and the "
                f"runtime {runtime} has containers; run it with --runtime process"
            )
        if spec.fault in BY_FAKETIME:
            faketime.library()


def check_losses(schedule: Sequence[FaultSpec], guarantee: Guarantee) -> None:
    """Raises InputError for an unclean election with a mirror that does not keep offsets: the lost
    records could not be found among the mirror's copies."""
    for spec in schedule:
        if spec.fault == UNCLEAN and not guarantee.offsets_kept:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) does not apply: this mirror does not keep "
                "offsets, so copies of records that the source has lost cannot be found; use a "
                "mirror that keeps offsets, for example --mirror shadow"
            )


def _before(spec: FaultSpec, schedule: Sequence[FaultSpec]) -> list[FaultSpec]:
    """The faults that a fault follows, directly or through others, nearest first. Raises InputError
    for an unknown fault or a cycle."""
    known = {other.id: other for other in schedule}
    found: list[FaultSpec] = []
    asked = [spec]
    while asked:
        one = asked.pop(0)
        for name in condition(one.when).faults:
            if name not in known:
                raise InputError(
                    f"fault {spec.id!r} follows unknown fault {name!r}; known: {', '.join(known)}"
                )
            if name == spec.id:
                raise InputError(
                    f"fault {spec.id!r} follows itself through {one.id!r}; let one of them start "
                    "without waiting for the other"
                )
            if known[name] not in found:
                found.append(known[name])
                asked.append(known[name])
    return found


def _check_nothing_restarted(
    failover: FaultSpec, schedule: Sequence[FaultSpec], before: Mapping[str, Sequence[FaultSpec]]
) -> None:
    """Refuses a fault whose heal would restart the mirror that a failover has ended, or a broker of
    the source that it has killed. Raises InputError.

    Such a fault is allowed after the mirror was reversed.
    """
    for spec in (spec for spec in schedule if spec.fault not in OF_CLIENTS):
        if (
            not _restarts_what_ended(spec, failover)
            or spec in before[failover.id]
            or _reversed_between(failover, before[spec.id])
        ):
            continue
        timed = not before[spec.id] and not before[failover.id]
        if not timed or spec.at + spec.duration > failover.at:
            when = f" at {spec.at + spec.duration:g} s" if timed else ""
            raise InputError(
                f"fault {spec.id!r} would start {spec.target} again{when}, after failover "
                f"{failover.id!r} {f'at {failover.at:g} s ' if timed else ''}has ended it; let the "
                "fault end before the failover"
            )


def _restarts_what_ended(spec: FaultSpec, failover: FaultSpec) -> bool:
    """Whether the heal of a fault starts the mirror that the failover ends, or a broker of the
    source that the failover kills."""
    mirror = spec.fault == KILL and spec.target == failover.target
    broker = failover.name.forced and spec.on.cluster == failover.on.source
    return mirror or broker


def _reversed_between(failover: FaultSpec, before: Sequence[FaultSpec]) -> bool:
    """Whether `before` (nearest first) has this failover, and after it a reversal of its mirror."""
    if failover not in before:
        return False
    return any(
        other.fault == REVERSE and other.target == failover.target
        for other in before[: before.index(failover)]
    )


def _check_reversed(spec: FaultSpec, before: Sequence[FaultSpec], topology: Topology) -> None:
    """Refuses a failover or kill of a mirror that has ended, and a reversal of a mirror that has
    not failed over. Raises InputError."""
    turned = spec.on.back
    alive, over = any(link.name == spec.target for link in topology.links), False
    for other in reversed(before):
        if other.target == spec.target and (other.name.reverses or other.name.fails_over):
            alive, over = False, other.fault != REVERSE
        elif other.target == turned and other.fault == REVERSE:
            alive, over = True, False
    if spec.fault == REVERSE and not over:
        raise InputError(
            f"fault {spec.id!r} reverses the mirror of {spec.target}, which has not failed over at "
            "that time; let it follow a failover"
        )
    if spec.fault != REVERSE and not alive:
        does = "kills the mirror of" if spec.fault == KILL else "fails over"
        raise InputError(
            f"fault {spec.id!r} {does} {spec.target}, which has no mirror at that time; let it "
            f"follow a {REVERSE} of {turned}"
        )


class FaultWindow:
    """The steps of one fault."""

    def __init__(self, spec: FaultSpec, fault: FaultBase, recorder: Recorder) -> None:
        self.spec, self.fault = spec, fault
        self._recorder = recorder

    def start(self) -> None:
        """Records that the fault begins, before anything is broken."""
        spec = self.spec
        self._recorder.write(
            FaultStart(
                target=spec.target,
                id=spec.id,
                fault=spec.fault,
                options=dict(spec.options),
                restores=self.fault.restores,
                duration=spec.duration,
            )
        )

    def inject(self) -> LinkflapError | None:
        """Injects the fault. Returns the error if that failed, and records it as a missing bite."""
        try:
            self.fault.inject()
        except LinkflapError as error:
            self._not_applied(error)
            return error
        return None

    def bite(self) -> Bite | LinkflapError:
        """Measures and records the bite, after `inject`. Returns the error if that failed."""
        try:
            bite = self.fault.bite()
        except LinkflapError as error:
            self._not_applied(error)
            return error
        self._bite(bite)
        return bite

    def _not_applied(self, error: LinkflapError) -> None:
        self._bite(Bite(bit=False, observable="injection", measured=str(error), expected="applied"))

    def _bite(self, bite: Bite) -> None:
        self._recorder.write(
            FaultBite(
                target=self.spec.target,
                id=self.spec.id,
                bit=bite.bit,
                observable=bite.observable,
                measured=bite.measured,
                expected=bite.expected,
                lost=bite.lost,
            )
        )

    def heal(self) -> LinkflapError | None:
        """Heals the fault and checks the result. Returns the error if it is not healed."""
        try:
            checked = list(self.fault.heal())
        except LinkflapError as error:
            self._healed(False, str(error))
            return error
        self._healed(True, *checked)
        return None

    def _healed(self, healed: bool, *checked: str) -> None:
        self._recorder.write(
            FaultHeal(target=self.spec.target, id=self.spec.id, healed=healed, checked=checked)
        )

    def end(self) -> None:
        """Records that the fault has ended."""
        self._recorder.write(FaultEnd(target=self.spec.target, id=self.spec.id))


TRIGGER_DEADLINE = 60.0
"""Seconds that a fault waits for its condition, more on a busy machine. After that the fault is not
played, and the verdict is unknown."""
ARRIVES_WITHIN = 10.0
"""Seconds in which what a dead mirror had brought is committed and read, more on a busy machine."""
FOLLOWS_WITHIN = 600.0
"""Seconds that a fault waits for the fault that it follows, more on a busy machine."""
HELD_FOR = 30.0
"""Seconds that a fault is held longer for faults that must begin during it and still wait for their
conditions; more on a busy machine."""


class Watcher(Protocol):
    """Is notified when a fault starts or ends (the live display)."""

    def fault_started(self, id: str, fault: str, target: str, seconds: float) -> None: ...
    def fault_ended(self, id: str) -> None: ...


class Player:
    """Plays the faults of one run in its own threads."""

    def __init__(self, schedule: Sequence[FaultSpec], world: FaultWorld, watcher: Watcher) -> None:
        self._world = world
        self._watcher = watcher
        self._began = now()
        # Daemons: a heal that hangs (dead brokers, say) must not delay the end of the process.
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(spec,), name=f"fault {spec.id}", daemon=True
            )
            for spec in schedule
        ]
        self._lasting = {spec.id for spec in schedule if spec.duration}
        self._within = {
            spec.id: [other.id for other in schedule if spec.id in condition(other.when).during]
            for spec in schedule
        }
        self._schedule = tuple(schedule)
        self._under_way: dict[str, FaultSpec] = {}
        self._begun = {spec.id: threading.Event() for spec in schedule}
        self._begun_at: dict[str, int] = {}
        self._measured = {spec.id: threading.Event() for spec in schedule}
        self._ended = {spec.id: threading.Event() for spec in schedule}
        self._healed_at: dict[str, int] = {}
        self.last_ended: int | None = None
        """When the latest fault ended, played or not: nanoseconds since the epoch. None before the
        first."""
        self.failures: list[LinkflapError] = []
        """Errors of heals. If there is one, the verdict of the run is unknown at best."""
        self.crashes: list[BaseException] = []
        """Exceptions that are defects in the code of a fault; `join` raises them."""

    def start(self) -> None:
        self._began = now()
        for thread in self._threads:
            thread.start()

    def under_way(self) -> Sequence[FaultSpec]:
        """The faults that may be in effect now. A fault that is never healed (a failover) stays
        among them."""
        return list(self._under_way.values())

    @property
    def playing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, *, within: float, tick: Callable[[], object]) -> None:
        """Waits up to `within` seconds until every fault has ended, and calls `tick` meanwhile.
        Raises the exception of a fault whose code has a defect."""

        def over() -> bool:
            tick()
            return not self.playing

        until(
            over,
            within=within,
            what="the schedule to end",
            every=0.1,
            state=lambda: [t.name for t in self._threads if t.is_alive()],
        )
        for crash in self.crashes:
            raise crash

    def _guarded(self, spec: FaultSpec) -> None:
        try:
            self._play(spec)
        except BaseException as crash:  # noqa: BLE001  (handed to the main thread by join)
            self.crashes.append(crash)
        finally:
            self.last_ended = now()
            self._ended[spec.id].set()

    def _play(self, spec: FaultSpec) -> None:
        if not self._wait_until_due(spec):
            return
        window = FaultWindow(spec, FAULTS[spec.fault](spec, self._world), self._world.recorder)
        window.start()
        self._watcher.fault_started(spec.id, spec.fault, spec.target, spec.duration)
        self._begun_at[spec.id] = now()
        self._begun[spec.id].set()
        self._under_way[spec.id] = spec
        try:
            self._inject_and_hold(window)
        finally:
            if self._heal(window):
                self._healed_at[spec.id] = now()
                if spec.fault == REVERSE:
                    self._undo_failovers(spec.target)
            if window.fault.restores:
                del self._under_way[spec.id]
            window.end()
            self._watcher.fault_ended(spec.id)

    def _undo_failovers(self, target: str) -> None:
        """Removes the failovers of a reversed link from the faults in effect: after the reversal,
        the source's brokers run again, so that no later death follows from these failovers."""
        for name, other in list(self._under_way.items()):
            if other.target == target and other.name.fails_over:
                del self._under_way[name]

    def _wait_until_due(self, spec: FaultSpec) -> bool:
        """Waits for the fault's time and condition. False if the condition did not come true or the
        run ended first; then there is no bite, and the verdict is unknown at best."""
        world, waits = self._world, condition(spec.when)
        waited = now()
        try:
            began = max(
                [
                    self._began,
                    *(self._wait_for_end_of(spec, name) for name in waits.after),
                    *(self._wait_for_start_of(spec, name) for name in waits.during),
                ]
            )
            pause((began - now()) / 1e9 + spec.at, self._too_late)
            waited, holds = now(), waits.watch(spec, world)
            hopeless = self._mirror_gone(spec, waits)
            until(
                lambda: (
                    self._too_late() or holds() or self._ended_among(waits.during) or hopeless()
                ),
                within=patient(TRIGGER_DEADLINE),
                what=f"{spec.when} before fault {spec.id}",
                every=0.005,
            )
            self._check_still_under_way(spec, waits.during)
            if world.clients.all_ended and not world.stopping:
                raise FaultError("every writing program had exited before the fault began")
        except LinkflapError as error:
            self._triggered(spec, waited, hit=False)
            self._world.recorder.write(
                FaultBite(
                    target=spec.target,
                    id=spec.id,
                    bit=False,
                    observable=spec.when,
                    measured=str(error),
                    expected=spec.when,
                )
            )
            return False
        if not world.stopping:
            self._triggered(spec, waited, hit=True)
        return not world.stopping

    def _mirror_gone(self, spec: FaultSpec, waits: Condition) -> Callable[[], bool]:
        """A function that is false, and raises FaultError once a trigger can no longer come true:
        the target's mirror has died, and no fault starts it again.

        Not if another fault ends that mirror, or follows it with another: its death may be the
        fault's. What the mirror had brought may still be read for a while, and longer while a fault
        holds it up.
        """
        names = {name for name, _ in waits.triggers}
        on = {spec.target, spec.on.back} if spec.on.link else {spec.target}
        others = [other for other in self._schedule if other.target in on and other is not spec]
        ends = any(other.name.fails_over or other.name.of_mirror for other in others)
        if ends or not names & (MIRRORED_AT_ONCE | MIRRORED_LATER):
            return lambda: False
        since = 0.0

        def look() -> bool:
            nonlocal since
            mirror = self._world.mirrors.get(spec.target)
            busy = not names & MIRRORED_AT_ONCE and set(self._under_way) - {spec.id}
            if mirror is None or isinstance(mirror, Administered) or mirror.alive or busy:
                since = 0.0
                return False
            since = since or time.monotonic()
            if names & MIRRORED_AT_ONCE or time.monotonic() - since >= patient(ARRIVES_WITHIN):
                raise FaultError(
                    f"the mirror of {spec.target} has died and nothing starts it again, so "
                    f"{spec.when} cannot come true"
                )
            return False

        return look

    def _too_late(self) -> bool:
        """Whether no fault is to begin any more."""
        return self._world.stopping or self._world.clients.all_ended

    def _triggered(self, spec: FaultSpec, since: int, *, hit: bool) -> None:
        if spec.when != "always":
            seconds = round((now() - since) / 1e9, 3)
            self._world.recorder.write(
                Trigger(target=spec.target, id=spec.id, when=spec.when, hit=hit, seconds=seconds)
            )

    def _wait_for_end_of(self, spec: FaultSpec, before: str) -> int:
        """Waits until the fault `before` has ended, and returns the time. Raises FaultError if it
        was not played or not healed."""
        ended = self._ended[before]
        until(
            lambda: ended.is_set() or self._world.stopping,
            within=patient(FOLLOWS_WITHIN),
            what=f"fault {before} to end before fault {spec.id}",
        )
        if before not in self._healed_at and not self._world.stopping:
            raise FaultError(f"fault {before}, which it follows, was not played or not healed")
        return self._healed_at.get(before, self._began)

    def _wait_for_start_of(self, spec: FaultSpec, other: str) -> int:
        """Waits until the fault `other`, which this one overlaps, has begun, and returns the time.
        Raises FaultError if it was not played.

        If `other` has a duration, its bite is measured first: once this fault has killed a cluster,
        no bite can be measured on a link to it. Without a duration (a failover), the bite is known
        only at the end."""
        begun, ended = self._begun[other], self._ended[other]
        began = self._measured[other] if other in self._lasting else begun
        until(
            lambda: began.is_set() or ended.is_set() or self._world.stopping,
            within=patient(FOLLOWS_WITHIN),
            what=f"fault {other} to begin before fault {spec.id}",
        )
        if not begun.is_set() and not self._world.stopping:
            raise FaultError(f"fault {other}, which it must overlap, was not played")
        return self._begun_at.get(other, self._began)

    def _check_still_under_way(self, spec: FaultSpec, during: Sequence[str]) -> None:
        """Raises FaultError if a fault that this one must overlap has already ended."""
        if over := self._ended_among(during):
            raise FaultError(f"fault {over[0]}, which {spec.id} must overlap, had already ended")

    def _ended_among(self, faults: Sequence[str]) -> list[str]:
        return [fault for fault in faults if self._ended[fault].is_set()]

    def _inject_and_hold(self, window: FaultWindow) -> None:
        """Injects the fault, measures its bite and holds it for its duration.

        It is then held until faults that must begin during it have begun, and for its duration once
        more. Otherwise the timing of their conditions would decide whether they are played."""
        injected, lasts, clients = now(), window.spec.duration, self._world.clients
        on_the_wire = window.spec.fault in ON_THE_WIRE
        if not lasts and not on_the_wire:  # a failover is under way until it has been injected
            clients.start_in(window.spec.id)
        injected_well = window.inject() is None
        if injected_well and on_the_wire:  # theirs may be the requests that it waits for
            clients.start_in(window.spec.id)
        if injected_well and not isinstance(window.bite(), LinkflapError):
            if lasts and not on_the_wire:
                clients.start_in(window.spec.id)
            self._measured[window.spec.id].set()
            pause((injected - now()) / 1e9 + lasts, lambda: self._world.stopping)
            if not self._all_overlaps_settled(window.spec.id):
                pause(
                    patient(HELD_FOR),
                    lambda: self._world.stopping or self._all_overlaps_settled(window.spec.id),
                )
                pause(lasts, lambda: self._world.stopping)

    def _all_overlaps_settled(self, fault: str) -> bool:
        """Whether each fault that must begin during this one has begun, or will not be played."""
        return all(
            self._begun[other].is_set() or self._ended[other].is_set()
            for other in self._within[fault]
        )

    def _heal(self, window: FaultWindow) -> bool:
        """Heals the fault, and notes a failure. Returns whether it is healed."""
        failure = window.heal()
        if failure is not None:
            self.failures.append(failure)
        return failure is None


def untouched_links(scenario: Scenario) -> Mapping[str, bool]:
    """Name of a link -> whether clients write records that pass over it. Only links that no fault
    targets, nor their clusters; empty if the schedule is empty."""
    targets = [spec.target for spec in scenario.schedule]
    written = {workload.home for workload in scenario.workloads}
    if not targets:
        return {}
    hit = {spec.on.entered for spec in scenario.schedule if not spec.on.link}
    return {
        link.name: not written.isdisjoint(scenario.topology.homes_over(link))
        for link in scenario.topology.links
        if link.name not in targets
        and link.reverse.name not in targets
        and hit.isdisjoint((link.source, link.destination))
    }


def describe(schedule: Sequence[FaultSpec]) -> Mapping[str, str]:
    """id -> one line that describes the fault, for `linkflap run --dry-run`."""
    return {
        spec.id: (
            f"at {spec.at:4.1f} s {f'for {spec.duration:4.1f} s' if spec.duration else '':10}  "
            f"{spec.fault} on {spec.target}{_condition_text(spec.when)}"
            + (f"  {dict(spec.options)}" if spec.options else "")
        )
        for spec in schedule
    }


def _condition_text(when: str) -> str:
    waits = condition(when)
    once = str(replace(waits, after=(), during=()))
    conditions = [
        *(f"{fault} has ended" for fault in waits.after),
        *(f"{fault} is under way" for fault in waits.during),
        *([f"{once} {'are' if ' and ' in once else 'is'} true"] if once != "always" else []),
    ]
    return f" when {' and '.join(conditions)}" if conditions else ""
