"""The shadow mirror as the harness sees it: a Mirror (`harness.model.protocols`) in front of one shadow process.

`stop` is the failover: it returns when real brokers lead every partition, and nothing of the mirror's is appended after that.
A shadow that was killed, or whose source is dead, is started again to do it. `reversed` is the failback: a mirror over the
reverse link whose shadow takes the topics over where they came from (`takeover`); it can be reversed in its turn.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.addresses import broker_settings, listeners
from linkflap.harness.mirrors.shadow.group_offsets import PATIENCE_SECONDS
from linkflap.harness.mirrors.shadow.journal import Notes, read_notes
from linkflap.harness.mirrors.shadow.lag import source_ends
from linkflap.harness.mirrors.topics import create, data_topics
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.events import MirrorCrashed, MirrorStarted, TopicGivenUp, Truncation
from linkflap.harness.model.protocols import (
    Cluster,
    Deployment,
    FailoverKind,
    MirrorStage,
    Recorder,
    Running,
    Sidecar,
    is_running,
)
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import CANARY, LinkSpec, hyphen_free, topic_name
from linkflap.harness.model.wait import until
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.offsets import Partition, quiet

START_SECONDS: Final = 150.0
FAILOVER_SECONDS: Final = 150.0
END_SECONDS: Final = 30.0
HANDING_OVER: Final = ("settling", "ending", "handing-over")
"""Phases from the first step of a failover to the last but one."""
_ASK_SECONDS: Final = 2.0


def make(spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder) -> ShadowMirror:
    """The factory; InputError for an unknown option or value. Nothing is started."""
    return ShadowMirror(spec, link, deployment, recorder)


class ShadowMirror:
    """A Mirror. Its methods may be called from several threads. `reverses` is the mirror over the reverse link before it."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: ShadowMirror | None = None,
    ) -> None:
        self.spec, self.link = spec, link
        self._options = settings.options(spec.options)
        self._deployment, self._recorder = deployment, recorder
        self._source, self._destination = deployment.clusters[link.source], deployment.clusters[link.destination]
        self._reverses = reverses
        self._generation: int = 0 if reverses is None else reverses._generation + 1
        self._homes: tuple[str, ...] = deployment.topology.homes_over(link) if reverses is None else reverses._homes
        self._truncations_recorded: set[Partition] = set()
        self._given_up: set[str] = set()
        self._settings: dict[str, dict[int, dict[str, str]]] = {} if reverses is None else reverses._settings
        self._there = AdminClient(quiet(self._source.bootstrap))
        nth = f"-{self._generation}" if self._generation else ""
        name = f"shadow-{hyphen_free(link.source)}-{hyphen_free(link.destination)}{nth}"
        self._folder = settings.folder_at(self._destination) / name
        self._sidecar: Sidecar | None = None
        self._child: Running | None = None
        self._port = deployment.free_port()
        self._closed = False
        self._starting = threading.Lock()
        self._stopping = threading.Lock()
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

    def start(self) -> None:
        """Starts the process and waits until it leads every partition and a record went through.

        Raises SetupError when the process ends, InputError when the destination has such topics already that are not to be taken
        over.
        """
        if self._generation:
            _remove_topic(AdminClient(quiet(self._destination.bootstrap)), topic_name(self.link.source, CANARY))
        self._folder.mkdir(parents=True, exist_ok=True)
        settings.write(self._config(), self._folder)
        self._settings_of(self._source)  # for the mirror that reverses this one: it may find some of them down
        # On named brokers: in a chain a shadow is registered there, and would be given a replica.
        replicas = sorted(self._source.brokers)[:3]
        canary = topic_name(self.link.source, CANARY)
        try:
            create(self._there, [NewTopic(canary, 1, replica_assignment=[replicas])])
        except KafkaException as error:
            raise SetupError(
                f"topic {canary} could not be made on {self.link.source} ({error.args[0].str()}); see the brokers' logs"
            ) from error
        self.restart()

    def restart(self) -> None:
        began = time.monotonic()
        self._spawn()
        wanted = self._write_canary()
        patient = began + PATIENCE_SECONDS if self._generation else began
        what = f"{self.link.name} to mirror"
        try:
            until(lambda: self._through(wanted, patient), within=START_SECONDS, every=0.05, what=what, state=self._state)
        except DeadlineExceeded:
            self._kill()
            raise
        self._record_truncations()
        self._recorder.write(
            MirrorStarted(
                link=self.link.name,
                mirror="shadow",
                options={name: getattr(self._options, name) for name in settings.ABOUT},
                seconds=round(time.monotonic() - began, 3),
            )
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
        if self._sidecar is None:
            raise SetupError(f"the shadow of {self.link.name} was never started; start it first")
        self._child = self._sidecar.spawn()

    def _config(self) -> settings.Config:
        configs = self._settings_of(self._destination)
        any_broker = next(iter(configs.values()))
        followers = any_broker["inter.broker.listener.name"]
        real: dict[str, dict[int, str]] = {}
        for broker, values in configs.items():
            for listener, address in listeners(values["advertised.listeners"]).items():
                real.setdefault(listener, {})[broker] = address
        joined = list(real) if self._options.clients == "visible" else [followers]
        ports = {name: self._deployment.free_port() for name in joined}
        self._sidecar = sidecar = self._deployment.sidecar(
            f"shadow-{self._folder.name.removeprefix('shadow-')}",
            module="linkflap.harness.mirrors.shadow",
            folder=self._folder,
            log=self.log,
            ports=(self._port, *ports.values()),
        )
        link = self._deployment.links[self.link.name]
        entries = settings.Entries(
            source=security_of(link.bootstrap),
            inner=security_of(self._destination.inner_bootstrap),
            clients=security_of(entered_by(self._destination.bootstrap, "mirror")),
        )
        return settings.Config(
            link=self.link.name,
            source=tuple(str(link.bootstrap).split(",")),
            source_cluster_id=self._source.id,
            homes=self._homes,
            cluster_id=self._destination.id,
            real={name: {broker: sidecar.reach(address) for broker, address in them.items()} for name, them in real.items()},
            controllers=tuple(voter.partition("@")[2] for voter in any_broker["controller.quorum.voters"].split(",")),
            broker_id=self._broker_id(),
            followers=followers,
            listeners=ports,
            control_port=self._port,
            options=self._options,
            host=sidecar.address,
            advertised_hosts={name: sidecar.advertised_host(next(iter(real[name].values()))) for name in joined},
            takes_over={} if self._reverses is None else self._reverses._left(),
            source_notes=str(settings.folder_at(self._source)),
            entries=entries,
        )

    def _settings_of(self, cluster: Cluster) -> dict[int, dict[str, str]]:
        """Of all its brokers: what those that are down said while the mirrors before this one were started."""
        known = self._settings.setdefault(cluster.name, {})
        known |= broker_settings(cluster)
        return known

    def _broker_id(self) -> int:
        """One for each link, and others for each time that a link's mirror is reversed: no shadow of a run has another's id."""
        links = [link.name for link in self._deployment.topology.links]
        first = self
        while first._reverses is not None:
            first = first._reverses
        return settings.FIRST_BROKER_ID + self._generation * len(links) + links.index(first.link.name)

    def reversed(self) -> ShadowMirror:
        """See the protocol. Raises InputError while this one has not failed over."""
        if not self._handed_over():
            raise InputError(f"the mirror of {self.link.name} cannot be reversed before it has failed over; stop it first")
        back = LinkSpec(source=self.link.destination, destination=self.link.source)
        return ShadowMirror(self.spec, back, self._deployment, self._recorder, reverses=self)

    def _left(self) -> dict[str, settings.TakenTopic]:
        """What this mirror promoted, as the mirror that reverses it finds it: the source of this one is its destination."""
        notes = self.notes()
        return {
            name: settings.TakenTopic(
                source_id=topic.destination_id,
                destination_id=topic.source_id,
                partitions={
                    number: settings.TakenPartition(end=max(0, note.kept), epochs=tuple(note.source_epochs))
                    for number, note in notes.partitions.get(name, {}).items()
                },
            )
            for name, topic in notes.topics.items()
            if topic.destination_id and name != topic_name(self.link.source, CANARY)
        }

    def _record_truncations(self) -> None:
        """Records, once each, where a takeover has truncated the destination's logs."""
        if not self._generation:
            return
        for topic, partitions in self.notes().partitions.items():
            for number, note in sorted(partitions.items()):
                if note.truncated_from >= 0 and (topic, number) not in self._truncations_recorded:
                    self._truncations_recorded.add((topic, number))
                    self._recorder.write(
                        Truncation(
                            link=self.link.name,
                            cluster=self._destination.name,
                            topic=topic,
                            partition=number,
                            offset=note.truncated_to,
                            end=note.truncated_from,
                        )
                    )

    def _tell_given_up(self, topics: Mapping[str, str]) -> None:
        """Writes down, once each, topics into which nothing is mirrored any more, and why."""
        for topic, reason in topics.items():
            if topic not in self._given_up:
                self._given_up.add(topic)
                self._recorder.write(TopicGivenUp(link=self.link.name, topic=topic, reason=reason))

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
            raise SetupError(f"the canary could not be written to {topic}; is cluster {self.link.source} healthy?")
        return ends[0]

    def _through(self, canary: int, patient: float) -> bool:
        self._raise_if_ended()
        self._record_truncations()
        status = self._ask()
        if status is None or status.fenced:
            return False
        seen = {(p.topic, p.partition): p.replicated for p in status.partitions}
        self._tell_given_up(status.given_up)
        try:
            topics = {name: n for name, n in data_topics(self._there, self._homes).items() if name not in status.given_up}
        except KafkaException:  # the source has no time for this: that is no reason to give up what has just begun
            return False
        everything = all(seen.get((topic, number), -1) >= 0 for topic, count in topics.items() for number in range(count))
        if not status.synced and time.monotonic() < patient:
            return False
        return everything and seen.get((topic_name(self.link.source, CANARY), 0), -1) >= canary

    def _raise_if_ended(self) -> None:
        if not self.alive:
            last = _tail(self.log, 1).partition("ended: ")
            wrong = self._child is not None and self._child.poll() == InputError.exit_code
            kind = InputError if wrong else SetupError
            raise kind(f"the shadow of {self.link.name} ended: {last[2] or _tail(self.log)}")

    def _ask(self, verb: control.Verb = "status") -> control.Status | None:
        return control.ask(self._port, verb, within=_ASK_SECONDS)

    def _state(self) -> str:
        return f"process {'alive' if self.alive else 'dead'}, {self._ask()}; its log ends:\n{_tail(self.log)}"

    def crash(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._recorder.write(MirrorCrashed(link=self.link.name, by="SIGKILL"))

    def pause(self) -> None:
        """SIGSTOP."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    def stop(self) -> None:
        """Fails over: see the module. Safe to call twice, also at once. Raises DeadlineExceeded where B does not settle."""
        with self._stopping:
            self._stop()

    def _stop(self) -> None:
        if self._handed_over():
            self._end()
            return
        drained = self.alive and self.lag() == 0
        if not is_running(self._destination):
            self._kill()
        else:
            self.resume()
            self._fail_over()
        notes = self.notes()
        self._tell_given_up({name: topic.given_up for name, topic in notes.topics.items() if topic.given_up})
        self._recorder.write(notes.stopped(self.link.name, drained=drained))

    def _fail_over(self) -> None:
        self._spawn()

        def done() -> bool:
            if self._handed_over():
                return True
            if self._killed():
                self._spawn()  # each step of a failover can be done again
            self._raise_if_ended()
            self._ask("fail-over")
            return False

        try:
            until(done, within=FAILOVER_SECONDS, every=0.05, what=f"the failover of {self.link.name}", state=self._state)
        except DeadlineExceeded:
            self._kill()
            raise
        self._end()

    def _killed(self) -> bool:
        return self._child is not None and (self._child.poll() or 0) < 0

    def _end(self) -> None:
        """A process that has handed over ends by itself; one that does not in time has nothing left to do."""
        self.resume()
        with contextlib.suppress(DeadlineExceeded):
            until(lambda: not self.alive, within=END_SECONDS, what=f"the shadow of {self.link.name} to end")
        self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _handed_over(self) -> bool:
        return self.notes().phase == "handed-over"

    def notes(self) -> Notes:
        """The shadow's journal."""
        return read_notes(self._folder / settings.JOURNAL) or Notes(directory_id="", incarnation_id="")

    def fail_over(self, kind: FailoverKind) -> None:
        """Both kinds are a stop: a drained source has nothing more to give."""
        del kind
        self.stop()

    def promotion(self) -> Mapping[Partition, int]:
        canary = topic_name(self.link.source, CANARY)
        return {
            # The markers that a failover appends are the destination's own: the source never had them.
            (topic, number): note.kept
            for topic, partitions in self.notes().partitions.items()
            for number, note in partitions.items()
            if topic != canary
        }

    def stage(self) -> MirrorStage | None:
        """See the protocol."""
        status = self._ask()
        if status is None:
            return None
        return MirrorStage(held=status.held, handing_over=status.phase in HANDING_OVER)

    def lag(self) -> int | None:
        """Offsets that the source has and not every live replica of the destination; the source is asked directly.

        Of a topic that was given up it is all of them.
        """
        if not is_running(self._source):
            return None
        try:
            ends = source_ends(self._source, self._there, self._homes, self._options, within=_ASK_SECONDS)
        except (KafkaException, Unanswered):
            return None
        status = self._ask()
        if status is None:
            return None
        self._tell_given_up(status.given_up)
        have = {(p.topic, p.partition): p.replicated for p in status.partitions if p.topic not in status.given_up}
        return sum(max(0, end - max(0, have.get(tp, 0))) for tp, end in ends.items())


def _remove_topic(admin: AdminClient, name: str) -> None:
    """A canary of an earlier mirror over the same link: it is made again. Raises SetupError."""
    try:
        if name in admin.list_topics(timeout=20).topics:
            admin.delete_topics([name], operation_timeout=20)[name].result(20)
            until(lambda: name not in admin.list_topics(timeout=20).topics, within=20, what=f"topic {name} to be gone")
    except KafkaException as error:
        raise SetupError(f"topic {name} could not be removed ({error.args[0].str()}); see the brokers' logs") from error


def _tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error.strerror})"
