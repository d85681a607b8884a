"""The shadow mirror as the harness sees it: a Mirror (`harness.model.protocols`) in front of one shadow process.

`stop` is the failover: it returns when real brokers lead every partition, and nothing of the mirror's is appended after that.
A shadow that was killed, or whose source is dead, is started again to do it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from harness.mirrors.shadow import control, settings
from harness.mirrors.shadow.journal import Notes
from harness.mirrors.topics import create, data_topics
from harness.model.errors import DeadlineExceeded, InputError, SetupError
from harness.model.protocols import Cluster, Deployment, Recorder
from harness.model.scenario import MirrorSpec
from harness.model.topology import CANARY, LinkSpec, topic_name
from harness.model.wait import until
from harness.runtimes import children
from harness.wire.offsets import Partition, bounds, quiet

START_SECONDS: Final = 60.0
FAILOVER_SECONDS: Final = 150.0
_ASK_SECONDS: Final = 2.0
_ROOT: Final = Path(__file__).resolve().parents[3]


def make(spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder) -> ShadowMirror:
    """The factory; InputError for an unknown option or value. Nothing is started."""
    return ShadowMirror(spec, link, deployment, recorder)


class ShadowMirror:
    """A Mirror. Its methods may be called from several threads."""

    def __init__(self, spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder) -> None:
        self.spec, self.link = spec, link
        self._options = settings.options(spec.options)
        self._deployment, self._recorder = deployment, recorder
        self._source, self._destination = deployment.clusters[link.source], deployment.clusters[link.destination]
        self._homes = deployment.topology.homes_over(link)
        self._there = AdminClient(quiet(self._source.bootstrap))
        self._folder = next(iter(self._destination.brokers.values())).log.parent / f"shadow-{link.source}-{link.destination}"
        self._child: children.Child | None = None
        self._port = deployment.free_port()
        self._closed = False
        self._starting = threading.Lock()
        deployment.at_close(self._close)

    @property
    def log(self) -> Path:
        """What the process printed."""
        return self._folder / "shadow.log"

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.alive else None

    @property
    def expected_order_level(self) -> Literal["bytes", "records", "order"]:
        return "bytes"

    def start(self) -> None:
        """Starts the process and waits until it leads every partition and a record went through.

        Raises SetupError when the process ends, InputError when the destination has such topics already.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        settings.write(self._config(), self._folder)
        # On named brokers: in a chain a shadow is registered there, and would be given a replica.
        replicas = sorted(self._source.brokers)[:3]
        create(self._there, [NewTopic(topic_name(self.link.source, CANARY), 1, replica_assignment=[replicas])])
        self.restart()

    def restart(self) -> None:
        began = time.monotonic()
        self._spawn()
        wanted = self._write_canary()
        what = f"{self.link.name} to mirror"
        until(lambda: self._through(wanted), within=START_SECONDS, every=0.05, what=what, state=self._state)
        self._recorder.event(
            "mirror-started",
            self.link.name,
            mirror="shadow",
            options={name: getattr(self._options, name) for name in settings.NAMES},
            seconds=round(time.monotonic() - began, 3),
        )

    def _close(self) -> None:
        """The deployment ends: so does the process, and no thread may start it again."""
        with self._starting:
            self._closed = True
        self._kill()

    def _spawn(self) -> None:
        with self._starting:
            if self._closed:
                raise SetupError(f"the shadow of {self.link.name} is not started: its deployment has ended")
            if not self.alive:
                self._start_process()

    def _start_process(self) -> None:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._child = children.spawn(
            [sys.executable, "-m", "harness.mirrors.shadow", str(self._folder)],
            name=f"shadow {self.link.name}",
            folder=self._folder,
            output=self.log,
            environment={"PYTHONPATH": path},
        )

    def _config(self) -> settings.Config:
        topology = self._deployment.topology
        number = [link.name for link in topology.links].index(self.link.name)
        told = broker_settings(self._destination)
        any_broker = next(iter(told.values()))
        followers = any_broker["inter.broker.listener.name"]
        real: dict[str, dict[int, str]] = {}
        for broker, values in told.items():
            for listener, address in _listeners(values["advertised.listeners"]).items():
                real.setdefault(listener, {})[broker] = address
        joined = list(real) if self._options.clients == "visible" else [followers]
        return settings.Config(
            link=self.link.name,
            source=tuple(self._deployment.links[self.link.name].bootstrap.split(",")),
            source_cluster_id=self._source.id,
            homes=self._homes,
            cluster_id=self._destination.id,
            real=real,
            controllers=tuple(voter.partition("@")[2] for voter in any_broker["controller.quorum.voters"].split(",")),
            broker_id=settings.FIRST_BROKER_ID + number,
            followers=followers,
            listeners={name: self._deployment.free_port() for name in joined},
            control_port=self._port,
            options=self._options,
        )

    def _write_canary(self) -> int:
        """Writes a record to the source directly; the offset after it. Not idempotent: it draws no producer id."""
        topic = topic_name(self.link.source, CANARY)
        producer = Producer(quiet(self._source.bootstrap) | {"enable.idempotence": False, "acks": "all", "linger.ms": 0})
        ends: list[int] = []
        producer.produce(
            topic, b"canary", partition=0, on_delivery=lambda error, m: ends.append(0 if error else (m.offset() or 0) + 1)
        )
        until(lambda: producer.flush(0.1) == 0, within=20, what=f"the canary to be written to {topic}")
        if not ends or not ends[0]:
            raise SetupError(f"the canary could not be written to {topic}; is cluster {self.link.source} whole?")
        return ends[0]

    def _through(self, canary: int) -> bool:
        self._raise_if_ended()
        status = self._ask()
        if status is None or status.fenced:
            return False
        seen = {(p.topic, p.partition): p.replicated for p in status.partitions}
        topics = data_topics(self._there, self._homes)
        everything = all(seen.get((topic, number), -1) >= 0 for topic, count in topics.items() for number in range(count))
        return everything and seen.get((topic_name(self.link.source, CANARY), 0), -1) >= canary

    def _raise_if_ended(self) -> None:
        if not self.alive:
            last = _tail(self.log, 1).partition("ended: ")
            kind = InputError if "exists on the destination" in last[2] or "is in use" in last[2] else SetupError
            raise kind(f"the shadow of {self.link.name} ended: {last[2] or _tail(self.log)}")

    def _ask(self, verb: control.Verb = "status") -> control.Status | None:
        return control.ask(self._port, verb, within=_ASK_SECONDS)

    def _state(self) -> str:
        return f"process {'alive' if self.alive else 'dead'}, {self._ask()}; its log ends:\n{_tail(self.log)}"

    def crash(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._recorder.event("mirror-crashed", self.link.name, by="SIGKILL")

    def pause(self) -> None:
        """SIGSTOP."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    def stop(self) -> None:
        """Fails over: see the module. Safe to call twice. Raises DeadlineExceeded when the destination does not settle."""
        if self._handed_over():
            self._end()
            return
        drained = self.alive and self.lag() == 0
        if not any(broker.state == "running" for broker in self._destination.brokers.values()):
            self._kill()
        else:
            self.resume()
            self._fail_over()
        details = [
            {"topic": topic, "partition": number, **msgspec.to_builtins(note)}
            for topic, partitions in self.notes().partitions.items()
            for number, note in sorted(partitions.items())
        ]
        self._recorder.event("mirror-stopped", self.link.name, drained=drained, partitions=details)

    def _fail_over(self) -> None:
        self._spawn()

        def done() -> bool:
            if self._handed_over():
                return True
            self._raise_if_ended()
            self._ask("fail-over")
            return False

        try:
            until(done, within=FAILOVER_SECONDS, every=0.05, what=f"the failover of {self.link.name}", state=self._state)
        except DeadlineExceeded:
            self._kill()
            raise
        self._end()

    def _end(self) -> None:
        """A process that has handed over ends by itself."""
        until(lambda: not self.alive, within=30, what=f"the shadow of {self.link.name} to end")

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _handed_over(self) -> bool:
        return self.notes().phase == "handed-over"

    def notes(self) -> Notes:
        """The shadow's journal."""
        try:
            return msgspec.json.decode((self._folder / settings.JOURNAL).read_bytes(), type=Notes)
        except FileNotFoundError:
            return Notes(directory_id="", incarnation_id="")

    def promotion(self) -> Mapping[Partition, int]:
        canary = topic_name(self.link.source, CANARY)
        return {
            # The markers that a failover appends are the destination's own: the source never had them.
            (topic, number): min(note.promoted, note.mirrored)
            for topic, partitions in self.notes().partitions.items()
            for number, note in partitions.items()
            if topic != canary
        }

    def lag(self) -> int | None:
        """Offsets that the source has and not every live replica of the destination; the source is asked directly."""
        if not any(broker.state == "running" for broker in self._source.brokers.values()):
            return None
        try:
            topics = data_topics(self._there, self._homes, within=_ASK_SECONDS)
            places = [(topic, number) for topic, count in topics.items() for number in range(count)]
            which: Literal["stable", "high"] = "stable" if self._options.bound == "lso" else "high"
            ends = bounds(self._there, places, which, within=_ASK_SECONDS)
        except KafkaException:
            return None
        status = self._ask()
        if status is None:
            return None
        have = {(p.topic, p.partition): p.replicated for p in status.partitions}
        return sum(max(0, end - max(0, have.get(place, 0))) for place, end in ends.items())


def broker_settings(cluster: Cluster) -> dict[int, dict[str, str]]:
    """Each broker's own settings as it tells them."""
    admin = AdminClient(quiet(cluster.bootstrap))
    found: dict[int, dict[str, str]] = {}
    for broker in cluster.brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        try:
            told = admin.describe_configs([resource], request_timeout=20)[resource].result(20)
        except KafkaException as error:
            raise SetupError(f"broker {cluster.name}/{broker} did not tell its settings ({error.args[0].str()})") from error
        found[broker] = {name: entry.value for name, entry in told.items() if entry.value is not None}
    return found


def _listeners(advertised: str) -> dict[str, str]:
    """`NAME://host:port,…` as listener -> address."""
    return {name: address for name, _, address in (one.partition("://") for one in advertised.split(","))}


def _tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error.strerror})"
