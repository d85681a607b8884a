"""The first half of linkflap on one page: runs a scenario, and records everything.

    Scenario -> deployment -> topics -> mirrors and workloads -> schedule -> drain -> capture -> run
    directory

Judging the record is the other half (`spark_verify.verify`); the two share nothing but the run
directory. Whatever happens in here, the directory stays readable, and no started process is left
running.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from linkflap.chaos.schedule import (
    Player,
    check_attached,
    check_in_sync,
    check_losses,
    check_partitions,
    check_recorded,
    check_runtime,
    check_scenario,
)
from linkflap.chaos.triggers import counted
from linkflap.harness import mirrors, runtimes, workloads
from linkflap.harness.capture import logs, samplers
from linkflap.harness.capture.live.captures import DiskOrFetchCaptures, FetchedCaptures
from linkflap.harness.capture.logs import Since
from linkflap.harness.capture.samplers import SettingsSampler
from linkflap.harness.machine import client_properties
from linkflap.harness.machine.user_programs import holds
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.events import Phase
from linkflap.harness.model.protocols import Deployment, WireRecording
from linkflap.harness.model.scenario import Record, Scenario, WorkloadSpec, through_recorders
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.threads import Background, side_by_side, stop_all
from linkflap.harness.model.wait import now, patient, until
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads import jvms
from linkflap.harness.workloads.clients import WorkloadClients, check_all, make_all
from linkflap.recording.run_end import (
    await_progress,
    broken_off,
    drain,
    ended,
    remove_data,
    stop_mirrors,
    with_room,
    written,
)
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.recording.unexpected_exits import Ticker, UnexpectedExits
from linkflap.recording.world import RunWorld
from linkflap.report.progress import Progress

AFTERWARDS = 60.0
LONGEST_FAULT = 180.0
"""Seconds that the schedule may take after the duration; heals have their own, shorter
deadlines."""
ENDS_WITHIN = 5.0
"""Seconds that faults may take to end when a run breaks off and all brokers are gone."""


def check(scenario: Scenario, runtime: str) -> None:
    """Raises InputError when a scenario cannot be run, as far as that can be known without starting
    anything."""
    topics = scenario.topics
    if topics.partitions < 1 or topics.replicas < 1:
        raise InputError(
            f"topics cannot have {topics.partitions} partitions and {topics.replicas} replicas; "
            "give 1 or more of each"
        )
    check_attached(scenario)
    _check_secrets(scenario)
    check_scenario(scenario)
    check_in_sync(scenario)
    check_partitions(scenario)
    _check_times(scenario)
    check_all(scenario.workloads)
    workloads.check_topics(scenario.workloads)
    mirrors.check(
        scenario.mirror, reversible=any(fault.name.reverses for fault in scenario.schedule)
    )
    runtimes.check(runtime, scenario.topology)
    check_recorded(scenario)
    mirrors.check_played(scenario, runtime)
    check_runtime(scenario.schedule, runtime)
    check_losses(scenario.schedule, mirrors.resolve(scenario.mirror).guarantee)


def _check_secrets(scenario: Scenario) -> None:
    """Raises InputError where a command of the user's has a password of client properties in its
    words: everybody on the machine sees them, and they are in the run directory."""
    for cluster in scenario.topology.clusters:
        for secret in client_properties.read(cluster.properties).secrets:
            for what, words in commands(scenario).items():
                if any(holds(word, secret) for word in words):
                    raise InputError(
                        f"a word of the command for {what} has a password of {cluster.properties}, "
                        "and everybody on this machine sees command lines; let the command read "
                        "it from a file or from its environment"
                    )


def _check_times(scenario: Scenario) -> None:
    """Raises InputError for a fault that would not be played any more."""
    last = scenario.duration + LONGEST_FAULT
    for spec in scenario.schedule:
        if spec.at + spec.duration > last:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) ends after {spec.at + spec.duration:g} s, and "
                f"the run waits for faults until {last:g} s; make duration longer"
            )


_WIRE: Final[Mapping[str, Record]] = {"wire": "wire", "none": ""}


def recorded(how: str) -> Record:
    """The scenario's value for a user's `wire` or `none`. Raises InputError."""
    if how not in _WIRE:
        raise InputError(f"record is {how!r}{nearest(how, _WIRE)}; it must be wire or none")
    return _WIRE[how]


def with_programs_recorded(scenario: Scenario, how: str) -> Scenario:
    """The scenario with its programs recorded on the wire, or not (none). Raises InputError where
    it has none that names topics."""
    record = recorded(how)
    programs = [w for w in scenario.workloads if w.command and (w.reads or w.writes)]
    if not programs:
        raise InputError(
            f"record (--record) applies to programs of your own, and {scenario.name} has none "
            "whose topics are named; leave it out"
        )
    return replace(
        scenario,
        workloads=tuple(
            replace(w, record=record) if w in programs else w for w in scenario.workloads
        ),
    )


def on_the_wire(scenario: Scenario, root: Path) -> WireRecording | None:
    """The clients that are recorded on the wire; None: no client connects through recorders."""
    if not any(map(through_recorders, scenario.workloads)):
        return None
    return WireRecording(
        root=root,
        topics=scenario.recorded_topics,
        reads=scenario.fetched_topics,
        groups=scenario.recorded_groups,
        share_groups=scenario.recorded_share_groups,
        counted=counted(scenario.schedule),
    )


def by_proxies(scenario: Scenario) -> Sequence[WorkloadSpec]:
    """The workloads of a scenario. On clusters that linkflap did not start they use the proxied
    path, unless they say otherwise: it is all that can be broken there."""
    if not scenario.topology.attached:
        return scenario.workloads
    return [replace(w, options={"via": "proxy", **w.options}) for w in scenario.workloads]


def commands(scenario: Scenario) -> dict[str, Sequence[str]]:
    """The user's own commands that a run of a scenario starts, each with what it is for. Raises
    InputError."""
    programs = [spec for spec in scenario.workloads if spec.command]
    return {
        **{f"mirror, {name}": words for name, words in mirrors.commands(scenario.mirror).items()},
        **{
            f"workload {number} at {spec.home}": spec.command
            for number, spec in enumerate(programs, start=1)
        },
        **{
            f"{verb} of a broker of {cluster.name}": words
            for cluster in scenario.topology.clusters
            for verb, words in cluster.commands.items()
        },
        **{
            what: words
            for cluster in scenario.topology.clusters
            for name, service in cluster.services.items()
            for what, words in (
                (f"service {name} of {cluster.name}", service.command),
                (f"service {name} of {cluster.name}, ready", service.ready),
            )
            if words
        },
    }


def record(
    scenario: Scenario,
    *,
    runtime: str,
    folder: Path,
    command: str,
    progress: Progress,
    keep: bool = False,
    wire: WireRecording | None = None,
) -> Path:
    """Runs a scenario and returns its run directory, `folder`, which must not exist yet.

    Brokers' data folders are removed at the end, because the judged logs were captured; `keep`
    leaves them. `wire` is what recorders write, if it is not what the scenario says. Raises
    InputError before anything is started, EnvironmentFailure or FaultError if the machine or a
    process failed, and passes KeyboardInterrupt on. In every case run.json has the status at the
    end; but wrong input, and a failed start before which nothing ran, leave no directory.
    """
    check(scenario, runtime)
    scenario = replace(
        scenario,
        mirror=mirrors.resolve(scenario.mirror),
        workloads=jvms.resolve(by_proxies(scenario), scenario.topology),
    )
    run = replace(
        Run.begun(scenario, runtime, command),
        leaders_only=scenario.topology.attached,
        environment=surroundings(scenario.topology, runtime, scenario.workloads),
    )
    with written(folder, run) as (writer, exits), ExitStack() as stack, with_room(writer):
        _phase(writer, progress, "starting clusters and links")
        deployment = runtimes.runtime(runtime)(
            scenario.topology,
            folder=writer.logs,
            recorder=writer,
            wire=wire or on_the_wire(scenario, folder),
        )
        if not keep:
            stack.callback(remove_data, deployment)
        stack.callback(ended, writer, "deployment", deployment.close)
        writer.describe(java_inside(deployment))
        perform(scenario, deployment, writer, stack, progress, exits)
        _phase(writer, progress, "stopping")
    return folder


def _phase(writer: RunWriter, progress: Progress, name: str) -> None:
    writer.write(Phase(name=name))
    progress.phase(name)


def perform(
    scenario: Scenario,
    deployment: Deployment,
    writer: RunWriter,
    stack: ExitStack,
    progress: Progress,
    exits: list[str],
    *,
    since: Since | None = None,
) -> None:
    """Plays a scenario on clusters that serve, and captures their logs; of Kafka's own topics what
    they have from `since` on."""
    topics = make_topics(scenario, deployment)
    bootstraps = {name: cluster.bootstrap for name, cluster in deployment.clusters.items()}
    guarantee = mirrors.resolve(scenario.mirror).guarantee
    # Brokers that are the mirror truncate logs by themselves: every replica is watched. Where a
    # mirror leads partitions, replicas are sampled beside its high watermarks.
    in_brokers = guarantee.describes_itself
    of_replicas = samplers.replica_samplers(
        deployment, topics, writer, again=samplers.AGAIN if in_brokers else 0
    )
    shares = samplers.share_group_samplers(deployment, scenario.recorded_share_groups, writer)
    others: list[Background] = [*(of_replicas.values() if in_brokers else ()), *shares]
    leads = guarantee.keeps_journal and not in_brokers
    runs = samplers.runs_in(deployment)
    sampler = samplers.WatermarkSampler(
        bootstraps,
        topics,
        writer,
        groups=workloads.groups(scenario.workloads),
        finds=scenario.topology.any_names,
        beside={name: each.beside for name, each in of_replicas.items() if leads},
        runs=runs,
    )
    settings = SettingsSampler(bootstraps, topics, writer, runs=runs)
    clients = WorkloadClients(
        make_all(
            scenario.workloads,
            deployment=deployment,
            topics=topics,
            writer=writer,
            seed=scenario.seed,
        ),
        writer,
    )
    world = RunWorld(
        deployment=deployment,
        mirrors={
            link.name: make_mirror(scenario.mirror, link, deployment, writer)
            for link in scenario.topology.links
        },
        clients=clients,
        recorder=writer,
        sampler=sampler,
        captures=_captures(scenario, deployment)(
            deployment, writer, lambda cluster: sampler.clusters[cluster].latest, since=since
        ),
        topics=topics,
    )
    player = Player(scenario.schedule, world, progress)
    bystanders = UnexpectedExits(world, player.under_way, exits)
    watch = Ticker(world, progress, bystanders)
    stack.callback(ended, writer, "watermarks", sampler.stop)
    for each in others:
        stack.callback(ended, writer, "samplers", each.stop)
    stack.callback(ended, writer, "settings", settings.stop)
    stack.callback(ended, writer, "clients", clients.stop)
    stack.callback(
        ended, writer, "faults", lambda: player.join(within=ENDS_WITHIN, tick=lambda: None)
    )
    stack.push(partial(broken_off, world, progress, [sampler, settings, *others]))
    sampler.start()
    if guarantee.restores_settings or guarantee.syncs_topics:
        settings.start()
    for each in others:
        each.start()
    clients.prepare()
    _phase(writer, progress, "starting mirrors")
    side_by_side(mirror.start for mirror in world.mirrors.values())
    bystanders.all_started()
    _phase(writer, progress, "breaking things")
    clients.start()
    _play(scenario, world, player, watch, progress)
    _phase(writer, progress, "waiting for progress")
    await_progress(world, scenario, watch, since=player.last_ended)
    _phase(writer, progress, "settling")
    clients.stop_producers()
    drain(world, _made_before(scenario, world), watch, died=bystanders.mirrors)
    clients.stop()
    settings.ask_to_stop()
    # Before the watermarks: what a replica had counts only before the last sample of its leader.
    stop_all(others)
    sampler.stop()
    settings.stop()
    watch()
    stop_mirrors(world)
    _phase(writer, progress, "capturing logs")
    world.capture_rest(bystanders.clusters)
    if clients.crashes:
        raise EnvironmentFailure(
            f"a client of the workload failed: {clients.crashes[0]}; report it with {writer.root}"
        )


def _captures(scenario: Scenario, deployment: Deployment) -> Callable[..., logs.Captures]:
    """How logs are captured: from brokers' folders, or where there are none here, by Fetch."""
    if deployment.topology.attached:
        return FetchedCaptures
    return partial(DiskOrFetchCaptures, from_fetch=scenario.topics.capture == "fetch")


def make_topics(scenario: Scenario, deployment: Deployment) -> dict[str, int]:
    """Creates the topics of the workloads, replicated as far as their cluster goes; topic ->
    partitions."""
    topics = workloads.topics(scenario.workloads)
    for topic, home in topics.items():
        spec = scenario.topics
        deployment.clusters[home].create_topic(
            topic, partitions=spec.partitions, replicas=spec.replicas, config=spec.config
        )
    return dict.fromkeys(topics, scenario.topics.partitions)


def _made_before(scenario: Scenario, world: RunWorld) -> dict[str, int]:
    """The topics that the run's own readers have; programs may have made others since."""
    return {name: world.topics[name] for name in workloads.topics(scenario.workloads)}


def _play(
    scenario: Scenario, world: RunWorld, player: Player, watch: Ticker, progress: Progress
) -> None:
    """Plays the schedule under load for the scenario's duration, or until its programs that run
    once have ended, and on until the last fault has ended. Ends these programs when a recorder has
    died: the run has failed."""
    player.start()
    deadline = now() + int(scenario.duration * 1e9)

    def over() -> bool:
        watch()
        if watch.recorders_died:
            world.clients.end_programs()
        return world.clients.all_ended or now() >= deadline

    until(
        over,
        within=scenario.duration + 1,
        what="the workload's duration",
        every=0.1,
    )
    world.clients.end_programs()
    player.join(within=patient(LONGEST_FAULT), tick=watch)
    _work_on(scenario, world, watch, since=player.last_ended)
    for failure in player.failures:
        progress.note(f"not healed: {failure}")


def _work_on(scenario: Scenario, world: RunWorld, watch: Ticker, *, since: int | None) -> None:
    """Lets clients work after the last fault, which ended at `since`, until they have written
    enough to be judged; on a dead machine, for a while. Returns at once if all writers are on dead
    clusters (after a refused failover): no more records can come."""
    least = scenario.minimums

    def enough() -> bool:
        done = world.clients.progress()
        written = (
            least.afterwards
            if since is None
            else sum(
                world.clients.acknowledged_since(since, name) for name in world.running_clusters
            )
        )
        read = done.read_committed + done.read_uncommitted
        return (
            written >= least.afterwards
            and done.commits >= least.committed
            and done.aborts >= least.aborted
            and read >= least.reads
        )

    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: watch() or enough() or not world.clients.can_write(world.running_clusters),
            within=AFTERWARDS,
            what="clients to have done enough to be judged",
            every=0.1,
        )
