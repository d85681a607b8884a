"""The workload `command`: a user's own program, with the clusters' addresses in its environment,
judged by the bytes.

It writes no history: the logs of the topics that it names in `writes` show its records, and its
groups show its progress. A failover moves it: linkflap restarts it with the other address, or sends
a signal after which it reads its address again. If it ends by itself, linkflap restarts it, as a
supervisor would, unless it runs `once`. It runs in a process group that is killed as one
(`harness.machine.user_programs`).
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import Foreign, reason_not_to_start
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import ITSELF, ClientDied, ClientRestarted, ProgramStarted
from linkflap.harness.model.protocols import Deployment, DiedProcess
from linkflap.harness.model.scenario import WorkloadSpec, full_names, libraries
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import (
    ANY_NAME,
    TopicPartition,
    is_among,
    is_data_topic,
    topic_name,
)
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import RunWriter
from linkflap.harness.wire.librdkafka import Bound, bounds, quiet
from linkflap.harness.workloads import COMMAND_OPTIONS, jvms
from linkflap.harness.workloads.client import value_of
from linkflap.harness.workloads.crew import Producers, WorkloadProgress
from linkflap.harness.workloads.worker import Member, signal_name

_ASK: Final = 2.0


class WrittenOffsets:
    """Samples of the ends of some topics, by cluster: the time, and the number of offsets."""

    def __init__(self, topics: Sequence[str], deployment: Deployment) -> None:
        self.topics = topics
        self._deployment = deployment
        self._admins: dict[str, AdminClient] = {}
        self._samples: dict[str, list[tuple[int, int]]] = {}

    def sample(self, cluster: str) -> None:
        """Samples the ends of the topics on a cluster; does nothing while the cluster does not
        answer."""
        try:
            ends = self._bounds(cluster, "high")
        except KafkaException:
            return
        self._samples.setdefault(cluster, []).append((now(), sum(ends.values())))

    def total(self, cluster: str) -> int:
        """The number of offsets on a cluster at the last sample."""
        samples = self._samples.get(cluster)
        return samples[-1][1] if samples else 0

    def everywhere(self) -> int:
        """The number of offsets on all clusters."""
        return sum(self.total(cluster) for cluster in list(self._samples))

    def since(self, cluster: str, time: int) -> int:
        """The number of offsets written on a cluster since a time."""
        samples = self._samples.get(cluster, [])
        before = [total for at, total in samples if at <= time] or [
            total for _, total in samples[:1]
        ]
        return self.total(cluster) - before[-1] if samples else 0

    def open_transactions(self, cluster: str) -> int:
        """Partitions of the topics that have an open transaction there."""
        if not self.topics:
            return 0
        try:
            high, stable = self._bounds(cluster, "high"), self._bounds(cluster, "stable")
        except KafkaException:
            return 0
        return sum(stable.get(partition, end) < end for partition, end in high.items())

    def _bounds(self, cluster: str, which: Bound) -> Mapping[TopicPartition, int]:
        admin = self._admins.setdefault(
            cluster, AdminClient(quiet(self._deployment.clusters[cluster].bootstrap))
        )
        known = admin.list_topics(timeout=_ASK).topics if self.topics else {}
        partitions = [
            (topic, number)
            for topic in known
            if is_among(topic, self.topics)
            for number in known[topic].partitions
        ]
        return bounds(admin, partitions, which, within=_ASK)


_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_FULL_TOPIC: Final = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
"""All that Kafka takes (`org.apache.kafka.common.internals.Topic`)."""


def check(spec: WorkloadSpec) -> None:
    """Raises InputError for unknown options, or a missing program."""
    if not spec.command:
        raise InputError(
            'workload command has no command; give it one: command = ["python3", "app.py"]'
        )
    if spec.clients != 1:
        raise InputError(
            f"workload command cannot have {spec.clients} clients; name the command once for each"
        )
    for name in spec.options:
        value_of(spec, name, COMMAND_OPTIONS)
    _check_topics(spec)
    if spec.record and not (spec.writes or spec.reads):
        raise InputError(
            'record = "wire" records what a program writes to the topics that it names, and reads '
            "of them; add writes = […] or reads = […], or leave record out"
        )
    if spec.options.get("share_group") and not spec.record:
        raise InputError(
            "workload command with share_group is judged by what crossed the wire; add record = "
            '"wire", or leave share_group out'
        )
    if spec.exactly_once:
        _check_exactly_once(spec)
    if len(libraries(spec.library)) > 1:
        raise InputError(
            f"workload command cannot have library={spec.library!r}; a program takes no turns: "
            "name one"
        )
    _check_program(spec.command[0], Path(spec.folder or ".").absolute())


def _check_topics(spec: WorkloadSpec) -> None:
    home = topic_name(spec.home, "")
    anything = ANY_NAME in spec.writes
    for topic in {*spec.reads, *spec.writes} - {ANY_NAME if anything else ""}:
        if not (_FULL_TOPIC if anything else _TOPIC).fullmatch(topic):
            raise InputError(
                f"workload command cannot have the topic {topic!r}; name it "
                f"{'' if anything else 'without its home, '}in Kafka's characters, "
                f"{249 if anything else 200} at most"
            )
        if anything and not is_data_topic(topic, (ANY_NAME,)):
            raise InputError(
                f"workload command cannot have the topic {topic!r}, as Kafka or mirrors use names "
                "like it for themselves, and no mirror carries it; give it another name"
            )
        if topic.startswith(home) and not anything:
            raise InputError(
                f"workload command names the topic {topic!r} with its home; name it "
                f"{topic.removeprefix(home)!r}"
            )


def _check_program(name: str, folder: Path) -> None:
    if reason := reason_not_to_start(name, folder):
        raise InputError(f"workload command: {reason}")


def _check_exactly_once(spec: WorkloadSpec) -> None:
    needed = {"reads": spec.reads, "writes": spec.writes, "group": spec.options.get("group")}
    if lacking := [name for name, given in needed.items() if not given]:
        raise InputError(
            f"workload command with exactly_once lacks {' and '.join(lacking)}; outputs are held "
            "against those"
        )


ENDS_WITHIN: Final = 15.0
LOOKS_EVERY: Final = int(0.25e9)
AGAIN_AFTER: Final = int(1e9)
MOST_STARTS: Final = 20
_WORDS: Final = 3


class Command(Producers):
    """One program. Called by the run's thread and those of faults."""

    def __init__(
        self, spec: WorkloadSpec, name: str, deployment: Deployment, writer: RunWriter
    ) -> None:
        """Raises InputError where it is to be recorded and nothing there records."""
        if spec.record and not deployment.recorders:
            raise InputError(
                'record = "wire" is of linkflap run, which starts recorders, and these clusters '
                "have none; leave it out"
            )
        super().__init__(spec, (), {})
        self.name, self.cluster = name, spec.home
        self._deployment, self._writer = deployment, writer
        self._written = WrittenOffsets(full_names(spec, spec.writes), deployment)
        folder = writer.logs / "commands" / name
        self._address_file = folder / "address"
        self._foreign = Foreign(
            name=f"program {name}",
            folder=Path(spec.folder or ".").absolute(),
            log=folder / "output.log",
            environment=self._given(),
        )
        self._child: Child | None = None
        self._wanted = False
        self._starts = self._started_at = self._looked_at = self._before = 0
        self._lock = threading.RLock()

    def _given(self) -> dict[str, str]:
        topics = {
            name: ",".join(t for t in full_names(self.spec, named) if t != ANY_NAME)
            for name, named in (("reads", self.spec.reads), ("writes", self.spec.writes))
        }
        return {
            **{
                f"LINKFLAP_BOOTSTRAP_{name}": self._bootstrap(name)
                for name in self._deployment.clusters
            },
            **self._secured(),
            **jvms.given(libraries(self.spec.library)[0]),
            "LINKFLAP_READS": topics["reads"],
            "LINKFLAP_WRITES": topics["writes"],
            "LINKFLAP_ADDRESS_FILE": str(self._address_file.absolute()),
        }

    def _secured(self) -> dict[str, str]:
        """The files with the logins of secured clusters: with Java's names, and with
        librdkafka's."""
        entries = {
            name: security_of(entered_by(cluster.bootstrap, "client"))
            for name, cluster in self._deployment.clusters.items()
        }
        return {
            f"LINKFLAP_{kind}_{name}": path
            for name, entry in entries.items()
            for kind, path in (("PROPERTIES", entry.file), ("CONFIG", entry.librdkafka_file))
            if path
        }

    def _bootstrap(self, cluster: str) -> str:
        if self.spec.options.get("via") == "proxy":
            return self._deployment.links[f"*->{cluster}"].bootstrap
        if self.spec.record:
            return self._deployment.recorders[cluster].bootstrap
        return self._deployment.clusters[cluster].bootstrap

    # The steps of a run, in order.

    @property
    def clusters(self) -> frozenset[str]:
        return frozenset({self.cluster})

    def prepare(self) -> None:
        """Does nothing: the program starts with the workload."""

    def _start(self) -> None:
        self.started = True
        with self._lock:
            self._wanted = True
            self._begin()

    def _begin(self) -> None:
        self._address_file.parent.mkdir(parents=True, exist_ok=True)
        self._address_file.write_text(self._bootstrap(self.cluster) + "\n")
        self._starts, self._started_at = self._starts + 1, now()
        self._written.sample(self.cluster)
        self._before = self._written.total(self.cluster)
        self._child = self._foreign.start(
            self.spec.command,
            LINKFLAP_CLUSTER=self.cluster,
            LINKFLAP_BOOTSTRAP=self._bootstrap(self.cluster),
        )
        self._writer.write(
            ProgramStarted(
                program=self.name,
                cluster=self.cluster,
                command=tuple(self.spec.command),
                pid=self._child.pid,
            )
        )

    def look(self, *, cluster: str = "", since: int = 0) -> int:
        """Restarts it if it has ended by itself; returns the number of records written to its
        topics on a cluster since a time."""
        with self._lock:
            child = self._child
            if (
                self._wanted
                and child is not None
                and child.end_group() is not None
                and (self.once or now() >= self._started_at + AGAIN_AFTER)
            ):
                self._died(child, by=ITSELF, again=not self.once and self._starts < MOST_STARTS)
                if self._wanted:
                    self._begin()
            if now() >= self._looked_at + LOOKS_EVERY:
                self._looked_at = now()
                self._written.sample(self.cluster)
            return self._written.since(cluster, since) if cluster else 0

    def _died(self, child: Child, *, by: str, again: bool) -> DiedProcess:
        status = child.end_group() or 0
        died = ClientDied(
            process=self.name,
            by=by,
            pid=child.pid,
            clients=(self.name,),
            clusters=(self.cluster,),
            status=status,
            signal=signal_name(status),
            in_flight=(),
            torn_bytes=0,
            last_words=tuple(self._foreign.last_words().splitlines()[-_WORDS:]),
            again=again,
        )
        death = DiedProcess(event=self._writer.write(died), expected=0)
        self._wanted = again
        self._child = None
        return death

    @property
    def crashes(self) -> list[str]:
        if self._starts >= MOST_STARTS and not self._wanted:
            return [
                f"{self.name} ended {MOST_STARTS} times and is not started again; see "
                f"{self._foreign.log}"
            ]
        return []

    @property
    def alive(self) -> bool:
        child = self._child
        return child is not None and child.end_group() is None

    def pause(self, cluster: str) -> None:
        """Ends the program until it is moved. One that moves by a signal is asked to stop writing
        instead (SIGUSR2)."""
        with self._lock:
            if self.cluster != cluster or self._child is None:
                return
            if self._by_signal:
                self._child.signal(signal.SIGUSR2)
            elif not self.once:
                self._end(gently=True)

    @property
    def _by_signal(self) -> bool:
        return self.spec.options.get("move", "restart") == "signal"

    @property
    def once(self) -> bool:
        """Whether it is not started again when it ends."""
        return self.spec.options.get("once") is True

    @property
    def ended(self) -> bool:
        """Whether it runs once and has ended."""
        return self.once and self._starts > 0 and not self._wanted

    def ask_to_move(self, source: str, destination: str, *, drained: bool) -> Sequence[Member]:
        with self._lock:
            if self.cluster != source:
                return []
            self.cluster = destination
            if (self._by_signal or self.once) and self._child is not None and self.alive:
                self._written.sample(destination)
                self._address_file.write_text(self._bootstrap(destination) + "\n")
                if self._by_signal:
                    self._child.signal(signal.SIGUSR1)
            elif self._wanted and not self.once:
                self._end(gently=drained)
                self._begin()
        return []

    def ask_to_stop(self) -> None:
        with self._lock:
            if self._wanted and self._child is not None:
                self._child.signal(signal.SIGTERM)
            self._wanted = False

    def stop(self) -> None:
        with self._lock:
            self._wanted = False
            self._end(gently=True)

    def _end(self, *, gently: bool) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if gently:
            self._foreign.end(child, within=ENDS_WITHIN)
        else:
            self._foreign.kill(child)

    # Calls of faults.

    def kill(self, *, by: str) -> DiedProcess:
        """Kills its process group (SIGKILL) and starts it again. Raises InputError when it does not
        run."""
        with self._lock:
            child = self._child
            if child is None or not self.alive:
                raise InputError(f"{self.name} does not run, so it cannot be killed")
            self._foreign.kill(child)
            death = self._died(child, by=by, again=True)
            self._begin()
            pid = self._child.pid if self._child else 0
            self._writer.write(ClientRestarted(process=self.name, pid=pid, clients=(self.name,)))
            return death

    def done_since_restart(self) -> int:
        """Offsets written to its topics since its last start; for a program without topics, whether
        it runs."""
        if not self._written.topics:
            return int(self.alive)
        with self._lock:
            self._written.sample(self.cluster)
            return self._written.total(self.cluster) - self._before if self.alive else 0

    @property
    def frozen(self) -> bool:
        """Whether the program is suspended."""
        child = self._child
        return child is not None and child.paused

    @property
    def any_suspended(self) -> bool:
        """Whether any of its processes is suspended."""
        child = self._child
        return child is not None and child.any_suspended

    def freeze(self) -> None:
        """SIGSTOP of its process group; returns when it is suspended. Raises InputError if it does
        not run."""
        child = self._child
        if child is None or not self.alive:
            raise InputError(f"{self.name} does not run, so it cannot be paused")
        child.pause()

    def thaw(self) -> None:
        """SIGCONT. Safe to call again, and after it has ended."""
        child = self._child
        if child is not None and self.alive:
            child.resume()

    def open_transactions(self, cluster: str) -> int:
        """Partitions of its topics with an open transaction: the program does not report its
        own."""
        return self._written.open_transactions(cluster) if cluster == self.cluster else 0

    def commits_in_flight(self, cluster: str) -> int:
        del cluster
        return 0

    def written(self) -> int:
        """Offsets written to its topics on its cluster, by the last sample."""
        return self._written.total(self.cluster)

    def last_words(self) -> str:
        """The last lines of its log."""
        return self._foreign.last_words()

    def progress(self) -> WorkloadProgress:
        self.look()
        return WorkloadProgress(acknowledged=self._written.everywhere())
