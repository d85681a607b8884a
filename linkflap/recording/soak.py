"""`python -m linkflap.recording.soak`: the process that owns the clusters of a soak. It
records rounds on request.

It inherits an open file, and each line of that file requests one round: the scenario file and the
run directory, as JSON. It answers with a file that has the size of the clusters. It ends when that
file ends, when its parent dies, or after a round that breaks clusters.

Rounds of a soak: run after run on the same clusters and links. Each round has its own run
directory.

Before the next round, the topics, groups and mirrors of a round are removed from the clusters. A
cluster that a forced failover killed is started again on its data; one that died in any other way
is not used again. Kafka's other state stays and ages: transactional ids and their epochs, producer
ids, leader epochs of the brokers, the internal topics, the metadata log. A round captures the part
of those logs that was written since the round began, as a log that begins there.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.chaos import scenario_file
from linkflap.harness import mirrors, runtimes
from linkflap.harness.capture.logs import Since, replicas_of
from linkflap.harness.capture.replicas import log_end
from linkflap.harness.mirrors.shadow.settings import folder_at
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import INTERRUPTED, EnvironmentFailure, LinkflapError
from linkflap.harness.model.events import Kind
from linkflap.harness.model.guarantee import Seconds
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import (
    CANARY,
    INTERNAL_TOPICS,
    Topology,
    is_data_topic,
    is_recreated,
)
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import EventLog, Run, RunWriter, write_whole
from linkflap.harness.wire.offsets import quiet, settings_on_topics
from linkflap.harness.workloads import jvms
from linkflap.recording.run import check, perform
from linkflap.recording.run_end import with_room, written
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.report.progress import Progress, shown_on

CLEARED_WITHIN: Final = 60.0
_ASK_SECONDS: Final = 20.0


class Current:
    """A Recorder: events of clusters and links go into the current round, and between rounds into a
    file of their own."""

    def __init__(self, between: EventLog) -> None:
        self._between = between
        self.round: RunWriter | None = None

    def write(self, event: Kind, /) -> Kind:
        return (self.round or self._between).write(event)


class LivingClusters:
    """Clusters and links that live through rounds; a context manager that ends them. Not safe from
    several threads."""

    def __init__(self, topology: Topology, *, runtime: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.topology, self._runtime = folder, topology, runtime
        self._killed: frozenset[str] = frozenset()
        self._stack = ExitStack()
        self._current = Current(
            self._stack.enter_context(closing(EventLog(folder / "events.jsonl")))
        )
        try:
            self.deployment: Deployment = runtimes.runtime(runtime)(
                topology, folder=folder, recorder=self._current
            )
        except BaseException:
            self._stack.close()
            raise
        self._stack.callback(self.deployment.close)

    def close(self) -> None:
        self._stack.close()

    def record(self, scenario: Scenario, folder: Path, *, command: str, progress: Progress) -> None:
        """One round, into a run directory. Raises as `run.record` does; the clusters are of no more
        use then."""
        check(scenario, self._runtime)
        scenario = replace(
            scenario,
            mirror=mirrors.resolve(scenario.mirror),
            workloads=jvms.resolve(scenario.workloads, scenario.topology),
        )
        self._clear()
        self._killed = killed_by(scenario)
        run = replace(
            Run.begun(scenario, self._runtime, command),
            environment=surroundings(scenario.topology, self._runtime, scenario.workloads),
        )
        with written(folder, run) as (writer, exits), ExitStack() as stack, with_room(writer):
            self._current.round = writer
            stack.callback(self._no_round)
            writer.describe(java_inside(self.deployment))
            for link in self.deployment.links.values():
                link.prove()
            perform(scenario, self.deployment, writer, stack, progress, exits, since=self._ends())

    def _no_round(self) -> None:
        self._current.round = None

    def _clear(self) -> None:
        """Takes away what the round before has left. Raises EnvironmentFailure where it does not
        go, or a broker is down."""
        for cluster in self.deployment.clusters.values():
            if cluster.name in self._killed:
                side_by_side(
                    broker.start for broker in cluster.brokers.values() if broker.state == "stopped"
                )
        for cluster in self.deployment.clusters.values():
            down = [f"{b.cluster}/{b.id}" for b in cluster.brokers.values() if b.state != "running"]
            if down:
                raise EnvironmentFailure(
                    f"broker {', '.join(down)} does not run after a round; look into {self.folder}"
                )
            self._remove_topics(cluster)
            _remove_groups(cluster)
            for left in folder_at(cluster).glob("shadow-*"):
                shutil.rmtree(left, ignore_errors=True)

    def _remove_topics(self, cluster: Cluster) -> None:
        admin = AdminClient(quiet(cluster.bootstrap))
        homes = tuple(each.name for each in self.topology.clusters)

        def left() -> list[str]:
            names = admin.list_topics(timeout=_ASK_SECONDS).topics
            return sorted(
                n
                for n in names
                if is_data_topic(n, homes) or n.endswith(f".{CANARY}") or is_recreated(n)
            )

        def gone() -> bool:
            if names := left():
                _unset(admin, names)
                for topic in admin.delete_topics(names, operation_timeout=_ASK_SECONDS).values():
                    with suppress(KafkaException):  # it may be gone by now; asked again otherwise
                        topic.result(_ASK_SECONDS)
            return not left() and not any(
                r.topic not in INTERNAL_TOPICS for r in replicas_of(cluster, homes)
            )

        until(
            gone,
            within=patient(CLEARED_WITHIN),
            every=0.2,
            what=f"the topics of the last round to be gone from {cluster.name}",
        )

    def _ends(self) -> Since:
        """Where the internal topics end now: a round captures what comes after that."""
        ends: dict[tuple[str, str, int], int] = {}
        for cluster in self.deployment.clusters.values():
            for replica in replicas_of(cluster, ()):
                key = (cluster.name, *replica.tp)
                ends[key] = max(ends.get(key, 0), log_end(replica.folder))
        return ends

    def size(self) -> tuple[int, int]:
        """Bytes on disk, and bytes of memory (resident) of all brokers."""
        return disk_of(self.folder), sum(memory_of(self.deployment).values())


def _unset(admin: AdminClient, topics: Sequence[str]) -> None:
    """Takes their settings from topics that are about to be deleted. Else a broker that starts
    again gives them to the next topics of these names (seen with Kafka 4.3.1)."""
    found = settings_on_topics(admin, topics, within=_ASK_SECONDS, all_answer=False)
    changes = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE)
                for name in settings
            ],
        )
        for topic, settings in found.items()
        if settings
    ]
    for answer in admin.incremental_alter_configs(changes).values() if changes else ():
        with suppress(KafkaException):  # the topic may be gone by now
            answer.result(_ASK_SECONDS)


def killed_by(scenario: Scenario) -> frozenset[str]:
    """The clusters that forced failovers of a scenario kill."""
    return frozenset(fault.on.source for fault in scenario.schedule if fault.name.forced)


def _remove_groups(cluster: Cluster) -> None:
    """Removes the groups: their offsets were of topics that are deleted, and would be wrong for new
    topics of the same name."""
    admin = AdminClient(quiet(cluster.bootstrap))

    def gone() -> bool:
        names = [
            group.group_id
            for group in admin.list_consumer_groups(request_timeout=_ASK_SECONDS)
            .result(_ASK_SECONDS)
            .valid
        ]
        if names:
            for group in admin.delete_consumer_groups(names, request_timeout=_ASK_SECONDS).values():
                # of a member that was killed, until its session is over
                with suppress(KafkaException):
                    group.result(_ASK_SECONDS)
        return not names

    until(
        gone,
        within=patient(CLEARED_WITHIN),
        every=0.2,
        what=f"the groups of the last round to be gone from {cluster.name}",
    )


def disk_of(folder: Path) -> int:
    """Bytes of all files below a folder; a file that disappears meanwhile does not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue
    return total


def memory_of(deployment: Deployment) -> Mapping[str, int]:
    """Resident bytes of each broker's process."""
    found: dict[str, int] = {}
    for cluster in deployment.clusters.values():
        for broker in cluster.brokers.values():
            try:
                found[f"{broker.cluster}/{broker.id}"] = (
                    psutil.Process(broker.pid).memory_info().rss if broker.pid else 0
                )
            except psutil.NoSuchProcess:
                found[f"{broker.cluster}/{broker.id}"] = 0
    return found


CLUSTERS: Final = "clusters"


class RoundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One round to record; `answer` is the file that is written when it has ended."""

    scenario: str
    folder: str
    answer: str


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What the clusters took after a round: bytes of disk, resident bytes of all brokers.

    `round` counts from 1 on these clusters; `age`: seconds since they were started.
    """

    round: int
    age: Seconds
    disk: int
    memory: int


def serve(handle: int, folder: Path, runtime: str) -> None:
    """Records the requested rounds, on clusters in `folder`, which is created anew: the clusters of
    a killed soak are dead."""
    shutil.rmtree(folder, ignore_errors=True)
    living, began, count = None, time.monotonic(), 0
    try:
        with os.fdopen(handle) as asked:
            for line in asked:
                what = msgspec.json.decode(line, type=RoundRequest)
                scenario = scenario_file.read(Path(what.scenario), seed=0)
                if living is None:
                    living = LivingClusters(scenario.topology, runtime=runtime, folder=folder)
                count += 1
                with shown_on() as progress:
                    living.record(
                        scenario,
                        Path(what.folder),
                        command=f"linkflap run {what.scenario}",
                        progress=progress,
                    )
                disk, memory = living.size()
                size = Size(
                    round=count, age=round(time.monotonic() - began, 1), disk=disk, memory=memory
                )
                write_whole(Path(what.answer), msgspec.json.encode(size))
    finally:
        if living is not None:
            living.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    interrupts.obey()
    handle, folder, runtime = sys.argv[1:]
    try:
        serve(int(handle), Path(folder), runtime)
    except KeyboardInterrupt:
        return INTERRUPTED
    except LinkflapError as failure:
        sys.stderr.write(f"linkflap: {failure}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
