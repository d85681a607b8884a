"""The first half of linkflap on one page: make things happen, and write down everything.

    Scenario -> deployment -> topics -> mirrors and workloads -> schedule -> settle -> capture -> run directory

Judging what was written is the other half (`spark_verify.verify`); the two share nothing but the run directory. Whatever
happens in here, the directory is left readable and nothing that was started is left running.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.schedule import Player, check
from harness import runtimes, workloads
from harness.capture import logs, watermarks
from harness.mirrors import make_mirror
from harness.model.clock import now
from harness.model.errors import DeadlineExceeded, EnvironmentFailure, LinkflapError, SetupError
from harness.model.protocols import Deployment, Mirror
from harness.model.scenario import Scenario
from harness.model.topology import topic_name
from harness.model.wait import until
from harness.report.progress import Counters, Progress
from harness.rundir import FORMAT, Run, RunWriter, Status
from harness.version import VERSION
from harness.wire.offsets import bounds, quiet
from harness.workloads.clients import WorkloadClients

LAG_EVERY = 1_000_000_000
LONGEST_FAULT = 180.0
"""Seconds that the schedule may go on after the duration: heals have deadlines of their own within this."""
SETTLE = 60.0
"""Seconds that mirrors and readers may take to reach the end once producers have stopped."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The World that faults see, and what the run itself needs of it."""

    deployment: Deployment
    mirrors: Mapping[str, Mirror]
    clients: WorkloadClients
    recorder: RunWriter
    captures: logs.Captures
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def stopping(self) -> bool:
        return self.ending.is_set()

    def capture(self, moment: str, cluster: str) -> None:
        self.captures.take(moment, cluster)


def record(scenario: Scenario, *, runtime: str, folder: Path, command: str, progress: Progress) -> Path:
    """Runs a scenario and returns its run directory, `folder`, which must not exist yet.

    Raises InputError before anything is started, EnvironmentFailure or FaultError when the machine or a process failed, and
    KeyboardInterrupt as it is; in every case run.json says how it ended.
    """
    check(scenario.schedule, scenario.topology)
    deploy = runtimes.runtime(runtime)
    run = Run(
        format=FORMAT,
        linkflap=VERSION,
        command=command,
        runtime=runtime,
        status="running",
        started=now(),
        ended=0,
        scenario=scenario,
    )
    with _written(folder, run) as writer, ExitStack() as stack:
        _phase(writer, progress, "starting clusters and links")
        deployment = stack.enter_context(deploy(scenario.topology, folder=writer.logs, recorder=writer))
        _perform(scenario, deployment, writer, stack, progress)
        _phase(writer, progress, "stopping")
    return folder


def _phase(writer: RunWriter, progress: Progress, name: str) -> None:
    writer.event("phase", name)
    progress.phase(name)


def _perform(scenario: Scenario, deployment: Deployment, writer: RunWriter, stack: ExitStack, progress: Progress) -> None:
    topics = make_topics(scenario, deployment)
    groups = sorted({str(w.options["group"]) for w in scenario.workloads if "group" in w.options})
    bootstraps = {name: cluster.bootstrap for name, cluster in deployment.clusters.items()}
    sampler = watermarks.WatermarkSampler(bootstraps, topics, writer, groups=groups)
    processes = workloads.Processes()
    clients = WorkloadClients(
        [
            workloads.make(spec, addresses=deployment, topics=topics, writer=writer, seed=scenario.seed, processes=processes)
            for spec in scenario.workloads
        ],
        writer,
    )
    stage = Stage(
        deployment=deployment,
        mirrors={link.name: make_mirror(scenario.mirror, link, deployment, writer) for link in scenario.topology.links},
        clients=clients,
        recorder=writer,
        captures=logs.Captures(deployment, writer, lambda cluster: sampler.clusters[cluster].latest),
    )
    stack.callback(sampler.stop)
    stack.callback(clients.stop)
    sampler.start()
    _phase(writer, progress, "starting mirrors")
    side_by_side([mirror.start for mirror in stage.mirrors.values()])
    _phase(writer, progress, "breaking things")
    clients.start()
    _play(scenario, stage, stack, progress)
    _phase(writer, progress, "settling")
    clients.stop_producers()
    _settle(stage, topics, progress)
    clients.stop()
    sampler.stop()
    for mirror in _running_mirrors(stage):
        mirror.stop()
    _phase(writer, progress, "capturing logs")
    for name in living(deployment):
        stage.capture("2-end", name)
    if clients.crashes:
        raise EnvironmentFailure(f"a client of the workload failed: {clients.crashes[0]}; report it with {writer.root}")


def make_topics(scenario: Scenario, deployment: Deployment) -> dict[str, int]:
    """Creates one topic per home of the workloads, replicated as far as its cluster goes; topic -> partitions."""
    topics = {topic_name(home, "orders"): home for home in dict.fromkeys(w.home for w in scenario.workloads)}
    for topic, home in topics.items():
        cluster = deployment.clusters[home]
        replicas = min(3, len(cluster.brokers))
        config = {"min.insync.replicas": str(max(1, replicas - 1))}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wanted = NewTopic(topic, scenario.partitions, replicas, config=config)
        try:
            admin.create_topics([wanted], operation_timeout=30)[topic].result(60)
        except KafkaException as error:
            raise SetupError(f"topic {topic} could not be created on cluster {home}: {error.args[0].str()}") from error
    return dict.fromkeys(topics, scenario.partitions)


def _play(scenario: Scenario, stage: Stage, stack: ExitStack, progress: Progress) -> None:
    """Plays the schedule under load for the scenario's duration, and on until the last fault has ended."""
    player = Player(scenario.schedule, stage, progress)
    show = Ticker(stage, progress)

    def end() -> None:
        stage.ending.set()
        player.join(within=SETTLE, tick=show)

    stack.callback(end)
    player.start()
    over = now() + int(scenario.duration * 1e9)
    until(lambda: show() or now() >= over, within=scenario.duration + 1, what="the workload's duration", every=0.1)
    player.join(within=LONGEST_FAULT, tick=show)
    for failure in player.failures:
        progress.note(f"not healed: {failure}")


def _settle(stage: Stage, topics: Mapping[str, int], progress: Progress) -> None:
    """Mirrors that still run catch up, then readers read to the end of what there is.

    A deadline that passes here is not an error: what was not read or mirrored is for the verdict to say.
    """
    show = Ticker(stage, progress)
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: show() or all(mirror.lag() == 0 for mirror in _running_mirrors(stage)),
            within=SETTLE,
            what="mirrors to catch up",
            every=0.1,
        )
    with contextlib.suppress(DeadlineExceeded):
        stage.clients.drain(
            {name: stable_ends(stage.deployment, name, topics) for name in living(stage.deployment)}, within=SETTLE
        )


def stable_ends(deployment: Deployment, cluster: str, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """The high watermarks of a cluster's partitions, once no transaction is open below them (or the deadline has passed)."""
    admin = AdminClient(quiet(deployment.clusters[cluster].bootstrap))
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]

    def settled() -> dict[tuple[str, int], int] | None:
        stable = bounds(admin, places, "stable", within=5.0)
        high = bounds(admin, places, "high", within=5.0)
        return high if stable == high else None

    try:
        return until(settled, within=SETTLE, every=0.1, what=f"open transactions on {cluster} to end")
    except DeadlineExceeded:
        return dict(bounds(admin, places, "stable", within=5.0))


def living(deployment: Deployment) -> list[str]:
    """Clusters of which some broker runs."""
    return [name for name, c in deployment.clusters.items() if any(b.state == "running" for b in c.brokers.values())]


def _running_mirrors(stage: Stage) -> list[Mirror]:
    return [mirror for mirror in stage.mirrors.values() if mirror.alive]


class Ticker:
    """Tells the display what clients have done so far, and how far mirrors are behind; cheap enough to be called in a wait."""

    def __init__(self, stage: Stage, progress: Progress) -> None:
        self._stage, self._progress = stage, progress
        self._asked = 0

    def __call__(self) -> bool:
        """Always False, so that it can stand in a condition."""
        done = self._stage.clients.progress()
        read = done.read_committed + done.read_uncommitted
        self._progress.counters(Counters(acknowledged=done.acknowledged, aborted=done.aborted, open=done.open, read=read))
        if now() - self._asked >= LAG_EVERY:
            self._asked = now()
            for name, mirror in self._stage.mirrors.items():
                self._progress.lag(name, mirror.lag() if mirror.alive else None)
        return False


def side_by_side(tasks: Sequence[Callable[[], None]]) -> None:
    """Runs all tasks at once, waits for all, and raises the first error."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


@contextmanager
def _written(folder: Path, run: Run) -> Iterator[RunWriter]:
    """A run directory that says how the run ended, whatever happened."""
    writer = RunWriter(folder, run)
    status: Status = "failed"
    error = ""
    try:
        yield writer
        status = "finished"
    except KeyboardInterrupt:
        status, error = "interrupted", "interrupted by the user"
        writer.event("interrupted", "run", by="signal")
        raise
    except LinkflapError as failure:
        error = str(failure)
        raise
    except BaseException as defect:
        error = repr(defect)
        raise
    finally:
        writer.close(status, error=error)
