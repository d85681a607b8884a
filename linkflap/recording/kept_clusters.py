"""`python -m linkflap.recording.kept_clusters`: the process that owns the clusters that a suite
keeps. It records run after run on them, on request.

The process inherits an open file. Each line of that file requests one run (a round), as JSON: the
scenario file and the run directory. The answer to a round is a file with the size of the clusters
and, if they are not used again, the reason; then the process ends. It also ends when the inherited
file ends, when its parent dies, or after a run that could not be recorded.

After a round, a cluster that a forced failover killed is started again on its data, and the topics,
groups and mirrors of the round are removed. Then the rules of `recording.cleanliness` are checked,
and clusters that break one are not used again. For a soak only brokers, links and replicas are
checked. The process logs of a round, and its part of the metadata log, begin at the start of the
round.

The clusters of a soak age: Kafka's own topics stay (transactional ids and their epochs, offsets of
groups), and each cluster's producer ids go on by themselves. A round captures the part of those
topics that was written since the round began, as a log that begins there. In any other suite
Kafka's own topics are removed too, and the next producer ids of all clusters are made equal.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.chaos import scenario_file
from linkflap.harness import mirrors, runtimes
from linkflap.harness.capture.logs import Since, replicas_of
from linkflap.harness.capture.replicas import METADATA, log_end
from linkflap.harness.mirrors.shadow.settings import folder_at
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import INTERRUPTED, LinkflapError
from linkflap.harness.model.events import Kind
from linkflap.harness.model.guarantee import Seconds
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import EventLog, Run, RunWriter, process_logs, write_whole
from linkflap.harness.wire.access import NoAnswer, access_to, host_and_port
from linkflap.harness.wire.librdkafka import quiet, settings_on_topics
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.peer import BlockingConnection
from linkflap.harness.wire.requests import new_producer
from linkflap.harness.workloads import jvms
from linkflap.recording import cleanliness
from linkflap.recording.run import check, perform
from linkflap.recording.run_end import with_room, written
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.report.progress import Progress, shown_on

CLEARED_WITHIN: Final = 60.0
OF_KAFKA: Final = "__"
"""How the names of Kafka's own topics begin."""
_ASK_SECONDS: Final = 20.0
_DRAWS: Final = 500
"""The most producer ids that are drawn at once: half a block."""


class Current:
    """A Recorder: events of clusters and links go into the current round, and between rounds into a
    file of their own."""

    def __init__(self, between: EventLog) -> None:
        self._between = between
        self.round: RunWriter | None = None

    def write(self, event: Kind, /) -> Kind:
        return (self.round or self._between).write(event)


class KeptClusters:
    """Clusters and links that live through rounds; a context manager that ends them. `aging`: those
    of a soak. Not safe from several threads."""

    def __init__(
        self, topology: Topology, *, runtime: str, folder: Path, aging: bool = False
    ) -> None:
        folder.mkdir(parents=True)
        self.folder, self.topology, self._runtime, self._aging = folder, topology, runtime, aging
        self._stack = ExitStack()
        self._current = Current(
            self._stack.enter_context(closing(EventLog(folder / "events.jsonl")))
        )
        try:
            self.deployment: Deployment = runtimes.runtime(runtime)(
                topology, folder=folder, recorder=self._current
            )
            self._stack.callback(self.deployment.close)
            self._settings = {
                name: cleanliness.settings_of(each)
                for name, each in self.deployment.clusters.items()
            }
        except BaseException:
            self._stack.close()
            raise

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
        run = replace(
            Run.begun(scenario, self._runtime, command),
            environment=surroundings(scenario.topology, self._runtime, scenario.workloads),
        )
        with written(folder, run) as (writer, exits), ExitStack() as stack, with_room(writer):
            stack.callback(self._copy_logs, writer.logs, cleanliness.sizes_of(self._logs()))
            self._current.round = writer
            stack.callback(self._no_round)
            writer.describe(java_inside(self.deployment))
            services = self.deployment.cluster_services.values()
            for link in (*self.deployment.links.values(), *(each.link for each in services)):
                link.prove()
            perform(scenario, self.deployment, writer, stack, progress, exits, since=self._ends())

    def _no_round(self) -> None:
        self._current.round = None

    def _logs(self) -> Sequence[Path]:
        return process_logs.logs_in(self.folder)

    def _copy_logs(self, into: Path, before: Mapping[Path, int]) -> None:
        """Copies what was logged since the round began. A log that is shorter by now was begun
        again."""
        for path in self._logs():
            begin = before.get(path, 0)
            copy = into / path.relative_to(self.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as log, copy.open("wb") as copied:
                log.seek(begin if path.stat().st_size >= begin else 0)
                shutil.copyfileobj(log, copied)

    def clean(self, scenario: Scenario, run: Path) -> Sequence[str]:
        """Removes the leftovers of a round. Returns why the clusters cannot be used again; empty if
        they are like new ones."""
        try:
            if not self._aging and (
                found := cleanliness.changed_for_good(scenario) or cleanliness.unexplained(run)
            ):
                return found
            self._revive(killed_by(scenario))
            if found := cleanliness.stopped(self.deployment):
                return found
            for cluster in self.deployment.clusters.values():
                self._empty(cluster)
            found = cleanliness.broken(self.deployment)
            return found if self._aging else found or self._unlike_new()
        except (LinkflapError, KafkaException, OSError, NoAnswer) as error:
            return [f"they could not be cleaned: {error}"]

    def _revive(self, killed: frozenset[str]) -> None:
        """Starts killed clusters again. What their brokers log meanwhile is explained by the kill,
        as after every fault that ends a broker. Raises SetupError."""
        for name in killed:
            brokers = self.deployment.clusters[name].brokers.values()
            side_by_side(broker.start for broker in brokers if broker.state == "stopped")

    def _empty(self, cluster: Cluster) -> None:
        """Removes topics, groups, and what mirrors left. Raises DeadlineExceeded."""
        _remove_topics(cluster, lambda name: not name.startswith(OF_KAFKA))
        _remove_groups(cluster)
        if not self._aging:
            _remove_topics(cluster, lambda name: name != METADATA)
        for each in folder_at(cluster).glob("shadow-*"):
            shutil.rmtree(each, ignore_errors=True)

    def _unlike_new(self) -> Sequence[str]:
        """Makes the next producer ids equal. Returns the other differences between these clusters
        and new ones."""
        if not several_brokers(self.topology):
            align_producer_ids(self.deployment)
        return [
            *(
                text
                for name, cluster in self.deployment.clusters.items()
                for text in cleanliness.left(cluster, self._settings[name])
            ),
            *cleanliness.too_large(self.deployment),
        ]

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
        return disk_of(self.folder), sum(cleanliness.memory_of(self.deployment).values())


def several_brokers(topology: Topology) -> bool:
    """Whether a cluster has more than one broker. Each takes a block of producer ids when a client
    first needs one, so that clusters differ in which of their brokers has which ids."""
    return any(cluster.brokers > 1 for cluster in topology.clusters)


def align_producer_ids(deployment: Deployment) -> None:
    """Moves each cluster, of one broker, on to the highest producer id that any of them has handed
    out.

    On new clusters all ids begin at 0, so a cluster's own producers have the same ids as mirrored
    ones. Only that reveals a mirror that mixes them up. A failover, and the shadow
    (`producer_ids=jump`), move one cluster ahead by thousands. Raises DeadlineExceeded, and
    Unanswered.
    """
    drawn = dict.fromkeys(deployment.clusters, -1)
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(_connected(cluster))
            for name, cluster in deployment.clusters.items()
        }

        def behind() -> int | None:
            return None if -1 in drawn.values() else max(drawn.values()) - min(drawn.values())

        def equal() -> bool:
            goal = max(0, *drawn.values())
            for name, at in drawn.items():
                if at < goal:
                    times = min(max(goal - at, 1), _DRAWS)
                    drawn[name] = max(at, _last_of(brokers[name], times))
            return behind() == 0

        until(
            equal,
            within=patient(_ASK_SECONDS),
            every=0.01,
            what="the clusters to hand out the same producer ids",
            state=lambda: drawn,
            remaining=behind,
        )


def _connected(cluster: Cluster) -> BlockingConnection:
    address = cluster.bootstrap
    return BlockingConnection(
        host_and_port(address), within=_ASK_SECONDS, access=access_to(address)
    )


def _last_of(broker: BlockingConnection, times: int) -> int:
    """The last of so many producer ids that a broker hands out; -1 if it hands out none, while it
    waits for its next block."""
    broker.extend(patient(_ASK_SECONDS))
    answers = broker.ask_times(times, "init_producer_id", 4, new_producer())
    return max((int(a.producer_id) for a in answers if a.error_code == Error.none), default=-1)


def _remove_topics(cluster: Cluster, which: Callable[[str], bool]) -> None:
    """Removes the topics of a cluster for whose names `which` is true. Raises DeadlineExceeded."""
    admin = AdminClient(quiet(cluster.bootstrap))

    def left() -> list[str]:
        return sorted(filter(which, admin.list_topics(timeout=_ASK_SECONDS).topics))

    def gone() -> bool:
        if names := left():
            _unset(admin, [name for name in names if not name.startswith(OF_KAFKA)])
            for topic in admin.delete_topics(names, operation_timeout=_ASK_SECONDS).values():
                with suppress(KafkaException):  # it may be gone by now; asked again otherwise
                    topic.result(_ASK_SECONDS)
        return not left() and not any(map(which, _on_disk(cluster)))

    until(
        gone,
        within=patient(CLEARED_WITHIN),
        every=0.05,
        what=f"the topics of the last round to be gone from {cluster.name}",
    )


def _on_disk(cluster: Cluster) -> Iterator[str]:
    """The topics that have a folder on a broker which the broker is not about to delete."""
    for broker in cluster.brokers.values():
        for folder in broker.log_dir.iterdir():
            topic, _, number = folder.name.rpartition("-")
            if number.isdigit():
                yield topic


def _unset(admin: AdminClient, topics: Sequence[str]) -> None:
    """Removes the settings of topics that are about to be deleted. Otherwise a restarted broker
    gives them to the next topics of these names (seen with Kafka 4.3.1)."""
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
        try:
            names = cleanliness.groups_of(admin)
        except KafkaException:  # a coordinator that does not answer yet
            return False
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


CLUSTERS: Final = "clusters"
AGING: Final = "aging"
AS_NEW: Final = "as-new"
ROUNDS: Final = 25
"""The most rounds on the same clusters, except in a soak: what no rule looks at may grow."""
SHOWN: Final = 3


class RoundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One round to record; `answer` is the file that is written when it has ended."""

    scenario: str
    folder: str
    answer: str


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of the clusters after a round: bytes of disk, resident bytes of all brokers.

    `round` counts from 1 on these clusters; `age`: seconds since they were started. `ended`: why
    they are not used again, in words; empty if they are. `instead`: why those before them, which
    had been clean after their last round, were not used.
    """

    round: int
    age: Seconds
    disk: int
    memory: int
    ended: str = ""
    instead: str = ""


def serve(handle: int, folder: Path, runtime: str, *, aging: bool) -> None:
    """Records the requested rounds, on clusters in `folder`, which is created anew: the clusters of
    a killed suite are dead."""
    kept, began, count, ended, instead = None, time.monotonic(), 0, "", ""
    try:
        with os.fdopen(handle) as asked:
            for line in asked:
                what = msgspec.json.decode(line, type=RoundRequest)
                scenario = scenario_file.read(Path(what.scenario), seed=0)
                if kept is not None and (instead := _joined(cleanliness.stopped(kept.deployment))):
                    kept.close()
                    kept = None
                if kept is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    kept = KeptClusters(
                        scenario.topology, runtime=runtime, folder=folder, aging=aging
                    )
                    began, count = time.monotonic(), 0
                count += 1
                with shown_on() as progress:
                    kept.record(
                        scenario,
                        Path(what.folder),
                        command=f"linkflap run {shlex.quote(str(what.scenario))}",
                        progress=progress,
                    )
                disk, memory = kept.size()
                ended = _joined(kept.clean(scenario, Path(what.folder)))
                if not (ended or aging) and count >= ROUNDS:
                    ended = f"they had {ROUNDS} rounds"
                size = Size(
                    round=count,
                    age=round(time.monotonic() - began, 1),
                    disk=disk,
                    memory=memory,
                    ended=ended,
                    instead=instead,
                )
                write_whole(Path(what.answer), msgspec.json.encode(size))
                if ended:
                    return
    finally:
        if kept is not None:
            kept.close()
        shutil.rmtree(folder, ignore_errors=True)


def _joined(reasons: Sequence[str]) -> str:
    """The first reasons, in one text."""
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return "; ".join(reasons[:SHOWN]) + more


def main() -> int:
    interrupts.obey()
    handle, folder, runtime, how = sys.argv[1:]
    try:
        serve(int(handle), Path(folder), runtime, aging=how == AGING)
    except KeyboardInterrupt:
        return INTERRUPTED
    except LinkflapError as failure:
        sys.stderr.write(f"linkflap: {failure}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
