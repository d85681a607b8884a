"""The shadow mirror of the harness: mirrors into unmodified brokers, with the source's bytes at the
source's offsets, and supports failover and failback (docs/shadow.md).

`ShadowMirror` is a Mirror (`harness.model.protocols`) that controls one shadow process. `stop` is
the failover. It returns once real brokers lead every partition; after that the mirror appends
nothing. If the shadow was killed, or its source is dead, `stop` restarts the shadow for the
failover. `reversed` is the failback: a mirror over the reverse link, whose shadow takes the topics
over at their former source (`failback`). That mirror can be reversed in turn.

The shadow's process, seen from the harness: start it, ask for its status, pause it, kill it, and
read its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from linkflap.harness.mirrors.base import MirrorBase, tail
from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.destination.client import (
    MetadataSnapshot,
    follower_bounds,
    picture,
)
from linkflap.harness.mirrors.shadow.destination.topics import shadows_into
from linkflap.harness.mirrors.shadow.group_offsets import PATIENCE_SECONDS
from linkflap.harness.mirrors.shadow.journal import JournalNotes, read_notes
from linkflap.harness.mirrors.shadow.settings import ShadowOptions, folder_at
from linkflap.harness.mirrors.topics import create, data_topics, partitions_of, write_record
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.events import TopicGivenUp
from linkflap.harness.model.protocols import (
    Cluster,
    Deployment,
    MirrorStage,
    Recorder,
    Running,
    Sidecar,
    is_running,
)
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import (
    LinkSpec,
    TopicPartition,
    hyphen_free,
    is_data_topic,
    is_recreated,
)
from linkflap.harness.model.wait import patient, until
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf, Connections
from linkflap.harness.wire.librdkafka import bounds, quiet
from linkflap.harness.wire.requests import LATEST, replica_offsets

FAILOVER_SECONDS: Final = 150.0
END_SECONDS: Final = 30.0
ASK_SECONDS: Final = 2.0


class ShadowProcess:
    """A sequence of processes, one at a time, that share one folder. `port` is their control
    port."""

    def __init__(self, link: str, folder: Path, port: int) -> None:
        self._link, self._folder, self._port = link, folder, port
        self._sidecar: Sidecar | None = None
        self._child: Running | None = None
        self._closed = False
        self._starting = threading.Lock()

    @property
    def log(self) -> Path:
        """The output of the processes."""
        return self._folder / "shadow.log"

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.alive else None

    def notes(self) -> JournalNotes:
        """The shadow's journal."""
        return read_notes(self._folder / settings.JOURNAL) or JournalNotes(
            directory_id="", incarnation_id=""
        )

    def _handed_over(self) -> bool:
        return self.notes().phase == "handed-over"

    def _spawn(self) -> None:
        with self._starting:
            if self._closed:
                raise SetupError(
                    f"the shadow of {self._link} is not started: its deployment has ended"
                )
            if not self.alive:
                self._start_process()

    def _start_process(self) -> None:
        if self._sidecar is None:
            raise SetupError(f"the shadow of {self._link} was never started; start it first")
        self._child = self._sidecar.spawn()

    def _raise_if_ended(self) -> None:
        if not self.alive:
            last = tail(self.log, 1).partition("ended: ")
            wrong = self._child is not None and self._child.poll() == InputError.exit_code
            kind = InputError if wrong else SetupError
            raise kind(f"the shadow of {self._link} ended: {last[2] or tail(self.log)}")

    def _ask(self, verb: control.Verb = "status") -> control.Status | None:
        return control.ask(self._port, verb, folder=self._folder, within=ASK_SECONDS)

    def _state(self) -> str:
        return (
            f"process {'alive' if self.alive else 'dead'}, {self._ask()}; its log "
            f"ends:\n{tail(self.log)}"
        )

    def pause(self) -> None:
        """SIGSTOP."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    def _fail_over(self) -> None:
        """Returns once the process has handed over and ended. Restarts it if it is killed
        meanwhile. Raises DeadlineExceeded."""
        self._spawn()

        def done() -> bool:
            if self._handed_over():
                return True
            if self._killed():
                self._spawn()  # each step of a failover is repeatable
            self._raise_if_ended()
            self._ask("fail-over")
            return False

        try:
            until(
                done,
                within=FAILOVER_SECONDS,
                every=0.05,
                what=f"the failover of {self._link}",
                state=self._state,
            )
        except DeadlineExceeded:
            self._kill()
            raise
        self._end()

    def _killed(self) -> bool:
        return self._child is not None and (self._child.poll() or 0) < 0

    def _end(self) -> None:
        """A process that has handed over ends by itself. If it does not end in time, it is killed,
        which loses nothing."""
        self.resume()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: not self.alive,
                within=END_SECONDS,
                what=f"the shadow of {self._link} to end",
            )
        self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _close(self) -> None:
        """Kills the process at the end of the deployment, and prevents that another thread starts
        it again."""
        with self._starting:
            self._closed = True
        self._kill()


def remove_canary(admin: AdminClient, name: str) -> None:
    """Deletes the canary topic of an earlier mirror over the same link, which a new mirror creates
    again. Raises SetupError, DeadlineExceeded."""
    try:
        if name in admin.list_topics(timeout=20).topics:
            admin.delete_topics([name], operation_timeout=20)[name].result(20)
            until(
                lambda: name not in admin.list_topics(timeout=20).topics,
                within=20,
                what=f"topic {name} to be gone",
            )
    except KafkaException as error:
        raise SetupError(
            f"topic {name} could not be deleted ({error.args[0].str()}); see the brokers' logs"
        ) from error


def source_ends(
    source: Cluster,
    admin: AdminClient,
    homes: tuple[str, ...],
    options: ShadowOptions,
    *,
    within: float,
) -> dict[TopicPartition, int]:
    """The ends of all partitions of these homes' data topics at the source: the high watermark, or
    the last stable offset with the option bound=lso. Makes up to three requests, each with a
    timeout of `within` seconds.

    Raises KafkaException or Unanswered when an end is unknown.
    """
    topics = data_topics(admin, homes, within=within)
    stable = options.bound == "lso"
    leaderless: set[str] = set()
    if options.clients == "hidden":
        leaderless = {name for notes in shadows_into(folder_at(source)) for name in notes.topics}
    followed = partitions_of({name: n for name, n in topics.items() if name in leaderless})
    led = partitions_of({name: n for name, n in topics.items() if name not in leaderless})
    ends = bounds(admin, led, "stable" if stable else "high", within=within)
    return ends | (replica_ends(source, followed, stable=stable, within=within) if followed else {})


def replica_ends(
    cluster: Cluster, tps: Sequence[TopicPartition], *, stable: bool, within: float
) -> dict[TopicPartition, int]:
    """The log end offset of the longest live replica of each partition. Raises Unanswered when one
    is unknown.

    `stable`: returns the last stable offset (LSO) of that replica instead. A replica caps its LSO
    at the high watermark it knows. When both are equal and below its log end, its real LSO may be
    higher. Then its log end is returned, so that the lag is never underestimated.
    """
    running = [
        broker.client_address for broker in cluster.brokers.values() if broker.state == "running"
    ]
    return asyncio.run(_replica_ends(running, tps, stable=stable, within=within))


async def _replica_ends(
    addresses: Sequence[str], tps: Sequence[TopicPartition], *, stable: bool, within: float
) -> dict[TopicPartition, int]:
    nodes, brokers = AnyOf(addresses), Connections()
    try:
        async with asyncio.timeout(within):
            found = await picture(nodes, {topic for topic, _ in tps})
            ends = {a: await replica_offsets(brokers.at(a), tps, LATEST) for a in addresses}
            longest = {p: max(addresses, key=lambda a, p=p: ends[a].get(p, -1)) for p in tps}  # type: ignore[misc]
            furthest = {p: ends[longest[p]].get(p, -1) for p in tps}
            if min(furthest.values(), default=0) < 0:
                raise Unanswered(
                    "no live replica reported its log end for"
                    f" {min(furthest, key=lambda p: furthest[p])}; is its cluster healthy?"
                )
            return await _stable(found, brokers, longest, furthest) if stable else furthest
    except TimeoutError as error:
        raise Unanswered(
            f"not all of {', '.join(addresses)} answered within {within:g} s"
        ) from error
    finally:
        nodes.close()
        brokers.close()


async def _stable(
    found: MetadataSnapshot,
    brokers: Connections,
    longest: Mapping[TopicPartition, str],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    ids = {name: topic.id for name, topic in found.topics.items()}
    stable = dict(ends)
    for address in {*longest.values()}:
        asked = {tp: ends[tp] for tp, at in longest.items() if at == address}
        found_there = await follower_bounds(brokers.at(address), ids, asked)
        for tp, (mark, last_stable) in found_there.items():
            if last_stable < mark or mark >= ends[tp]:
                stable[tp] = last_stable
    return stable


START_SECONDS: Final = 150.0
HANDING_OVER: Final = ("settling", "ending", "handing-over")
"""The phases of a failover, without its last."""


def broker_settings(cluster: Cluster) -> dict[int, dict[str, str]]:
    """Broker id -> its configs (name -> value), for each broker that is not stopped.

    Raises SetupError when a broker does not answer, or when all are stopped.
    """
    admin = AdminClient(quiet(cluster.bootstrap))
    found: dict[int, dict[str, str]] = {}
    for number, broker in cluster.brokers.items():
        if broker.state == "stopped":
            continue
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        try:
            described = admin.describe_configs([resource], request_timeout=patient(20))[
                resource
            ].result()
        except KafkaException as error:
            raise SetupError(
                f"broker {cluster.name}/{number} did not report its configs"
                f" ({error.args[0].str()}); see its log"
            ) from error
        found[number] = {
            name: entry.value for name, entry in described.items() if entry.value is not None
        }
    if not found:
        raise SetupError(
            f"no broker of cluster {cluster.name} is running; start one before its mirror"
        )
    return found


def listeners(advertised: str) -> dict[str, str]:
    """Listener name -> host:port, from `advertised.listeners` (`NAME://host:port,…`)."""
    return {
        name: address
        for name, _, address in (one.partition("://") for one in advertised.split(","))
    }


def taken_topics(notes: JournalNotes, *, but: str) -> dict[str, settings.TakenTopic]:
    """The topics that a mirror promoted, as the mirror that reverses it needs them: that mirror's
    source is this one's destination.

    Leaves out the canary topic `but` and the topics of the fault topic-recreated, which no mirror
    takes over.
    """
    return {
        name: settings.TakenTopic(
            source_id=topic.destination_id,
            destination_id=topic.source_id,
            partitions={
                number: settings.TakenPartition(
                    end=max(0, note.kept), epochs=tuple(note.source_epochs)
                )
                for number, note in notes.partitions.get(name, {}).items()
            },
        )
        for name, topic in notes.topics.items()
        if topic.destination_id and name != but and not is_recreated(name)
    }


class ShadowMirror(MirrorBase, ShadowProcess):
    """The kind `shadow`. Its methods may be called from several threads. Raises InputError for an
    unknown option or value."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: ShadowMirror | None = None,
    ) -> None:
        MirrorBase.__init__(self, spec, link, deployment, recorder, reverses=reverses)
        self._options = settings.options(spec.options)
        self._truncations_recorded: set[TopicPartition] = set()
        self._given_up: set[str] = set()
        self._settings: dict[str, dict[int, dict[str, str]]] = (
            {} if reverses is None else reverses._settings
        )
        nth = f"-{self._nth}" if self._nth else ""
        name = f"shadow-{hyphen_free(link.source)}-{hyphen_free(link.destination)}{nth}"
        ShadowProcess.__init__(
            self, link.name, settings.folder_at(self._destination) / name, deployment.free_port()
        )
        self._stopping = threading.Lock()
        deployment.at_close(self._close)

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
            real={
                name: {broker: sidecar.reach(address) for broker, address in them.items()}
                for name, them in real.items()
            },
            controllers=tuple(
                voter.partition("@")[2]
                for voter in any_broker["controller.quorum.voters"].split(",")
            ),
            broker_id=self._broker_id(),
            followers=followers,
            listeners=ports,
            control_port=self._port,
            options=self._options,
            host=sidecar.address,
            advertised_hosts={
                name: sidecar.advertised_host(next(iter(real[name].values()))) for name in joined
            },
            takes_over={} if self._reverses is None else self._reverses._left(),
            source_notes=str(settings.folder_at(self._source)),
            entries=entries,
        )

    def _settings_of(self, cluster: Cluster) -> dict[int, dict[str, str]]:
        """The configs of all brokers of a cluster. For brokers that are down, those that they
        reported when an earlier mirror was started."""
        known = self._settings.setdefault(cluster.name, {})
        known |= broker_settings(cluster)
        return known

    def _broker_id(self) -> int:
        """A broker id that no other shadow of the run has: one per link, and a new one for each
        reversal."""
        links = [link.name for link in self._deployment.topology.links]
        first = self
        while first._reverses is not None:
            first = first._reverses
        return settings.FIRST_BROKER_ID + self._nth * len(links) + links.index(first.link.name)

    def _left(self) -> dict[str, settings.TakenTopic]:
        """The topics that this mirror promoted, for the mirror that reverses it and takes them
        over."""
        return taken_topics(self.notes(), but=self._canary)

    def start(self) -> None:
        """Starts the process, and waits until it leads every partition and has mirrored the canary.

        Raises SetupError when the process ends, InputError when the destination already has topics
        of these names that the mirror does not take over, and DeadlineExceeded.
        """
        if self._nth:
            remove_canary(self._here, self._canary)
        self._folder.mkdir(parents=True, exist_ok=True)
        settings.write(self._config(), self._folder)
        # Kept for the mirror that reverses this one: some source brokers may be down by then.
        self._settings_of(self._source)
        # Explicit replicas: in a chain a shadow is registered at the source too, and the controller
        # would place a replica on it.
        replicas = sorted(self._source.brokers)[:3]
        try:
            create(self._there, [NewTopic(self._canary, 1, replica_assignment=[replicas])])
        except KafkaException as error:
            raise SetupError(
                f"topic {self._canary} could not be created on {self.link.source}"
                f" ({error.args[0].str()}); see the brokers' logs"
            ) from error
        self.restart()

    def restart(self) -> None:
        began = time.monotonic()
        self._spawn()
        failed, offset = write_record(self._source.bootstrap, self._canary, b"canary")
        if failed or offset < 0:
            raise SetupError(
                f"the canary could not be written to {self._canary}; is cluster "
                f"{self._source.name} healthy?"
            )
        patient = began + PATIENCE_SECONDS if self._nth else began
        what = f"{self.link.name} to mirror"
        try:
            until(
                lambda: self._through(offset + 1, patient),
                within=START_SECONDS,
                every=0.05,
                what=what,
                state=self._state,
            )
        except DeadlineExceeded:
            self._kill()
            raise
        self._record_truncations()
        self._record_start({name: getattr(self._options, name) for name in settings.ABOUT}, began)

    def reversed(self) -> ShadowMirror:
        """See the protocol. Raises InputError before this mirror has failed over."""
        if not self._handed_over():
            raise InputError(
                f"the mirror of {self.link.name} cannot be reversed before it has failed over; stop"
                " it first"
            )
        return self._back()

    def _record_truncations(self) -> None:
        """Records each truncation that a takeover made in the destination's logs, once."""
        if not self._nth:
            return
        for topic, partitions in self.notes().partitions.items():
            for number, note in sorted(partitions.items()):
                if note.truncated_from >= 0 and (topic, number) not in self._truncations_recorded:
                    self._truncations_recorded.add((topic, number))
                    self._record_truncation((topic, number), note.truncated_to, note.truncated_from)

    def _tell_given_up(self, topics: Mapping[str, str]) -> None:
        """Records each topic into which nothing is mirrored any more, with the reason, once."""
        for topic, reason in topics.items():
            if topic not in self._given_up:
                self._given_up.add(topic)
                self._recorder.write(TopicGivenUp(link=self.link.name, topic=topic, reason=reason))

    def _through(self, canary: int, patient: float) -> bool:
        self._raise_if_ended()
        self._record_truncations()
        status = self._ask()
        if status is None or status.fenced:
            return False
        seen = {(p.topic, p.partition): p.replicated for p in status.partitions}
        self._tell_given_up(status.given_up)
        try:
            topics = {
                name: n
                for name, n in data_topics(self._there, self._homes).items()
                if name not in status.given_up
            }
        except KafkaException:
            # A slow source is no reason to abort a mirror that has just started.
            return False
        everything = all(seen.get(tp, -1) >= 0 for tp in partitions_of(topics))
        if not status.synced and time.monotonic() < patient:
            return False
        return everything and seen.get((self._canary, 0), -1) >= canary

    def crash(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._record_crash()

    def stop(self) -> None:
        """Fails over (see the module docstring). Safe to call again, also concurrently. Raises
        DeadlineExceeded when the destination's logs do not settle."""
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
        self._tell_given_up(
            {name: topic.given_up for name, topic in notes.topics.items() if topic.given_up}
        )
        self._recorder.write(notes.stopped(self.link.name, drained=drained))

    def promotion(self) -> Mapping[TopicPartition, int]:
        return {
            # The source does not have the markers that the failover appends, so the promotion
            # offset excludes them.
            (topic, number): note.kept
            for topic, partitions in self.notes().partitions.items()
            for number, note in partitions.items()
            if is_data_topic(topic, self._homes)
        }

    def stage(self) -> MirrorStage | None:
        """See the protocol."""
        status = self._ask()
        if status is None:
            return None
        return MirrorStage(held=status.held, handing_over=status.phase in HANDING_OVER)

    def given_up(self) -> Mapping[str, str]:
        """See `ReportsGivenUpTopics`."""
        status = self._ask()
        return {} if status is None else status.given_up

    def lag(self) -> int | None:
        """Offsets that the source has and that some live replica of the destination lacks; all
        offsets of a topic that was given up. Asks the source directly, not over the link. None
        while it is unknown."""
        if not is_running(self._source):
            return None
        try:
            ends = source_ends(
                self._source, self._there, self._homes, self._options, within=ASK_SECONDS
            )
        except (KafkaException, Unanswered):
            return None
        status = self._ask()
        if status is None:
            return None
        self._tell_given_up(status.given_up)
        have = {
            (p.topic, p.partition): p.replicated
            for p in status.partitions
            if p.topic not in status.given_up
        }
        return sum(max(0, end - max(0, have.get(tp, 0))) for tp, end in ends.items())
