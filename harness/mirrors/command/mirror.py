"""The kind `command`: a user's own replicator, run by the commands of a manifest (option
manifest=FILE; docs/own-mirror.md).

The command `start` runs as long as the mirror does, in a process group that is killed as one. The
mirror has started once `ready`, if there is one, has exited with 0 and a canary record has arrived
on the destination. The lag that the mirror itself reports is recorded beside the measured one, and
never used. If a failover reports no promotion offsets, they are the ends of the mirrored
partitions, read after the mirror has ended and before a client writes.

A failback is a mirror over the reverse link. It begins with the command `failback`, which prepares
the old cluster for mirroring. linkflap measures the records that its partitions lose by that, and
records them as truncations.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from msgspec import Meta

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import Foreign
from linkflap.harness.mirrors.base import MirrorBase
from linkflap.harness.mirrors.command import manifest as manifests
from linkflap.harness.mirrors.topics import (
    Canary,
    MirroredEnds,
    copy_topics,
    data_topics,
    partitions_of,
    reader,
)
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    SetupError,
)
from linkflap.harness.model.events import MirrorLag, MirrorStopped
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.payload import FOREIGN, uid_in
from linkflap.harness.model.protocols import Deployment, FailoverKind, Mirror, Recorder, is_running
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.security import entered_by, security_of
from linkflap.harness.model.topology import (
    LinkSpec,
    TopicPartition,
    topic_pattern,
)
from linkflap.harness.model.wait import until
from linkflap.harness.wire.librdkafka import Bound, bounds, quiet

_BATCH: Final = 5000
_ASK: Final = 2.0
_READ_WITHIN: Final = 20.0


class _Side:
    """One cluster's data topics, read from their beginning. Not thread-safe."""

    def __init__(self, bootstrap: str, homes: tuple[str, ...], isolation: Isolation) -> None:
        self._homes, self._isolation = homes, isolation
        self._admin = AdminClient(quiet(bootstrap))
        self._reader: Consumer = reader(bootstrap, isolation)
        self._positions: dict[TopicPartition, int] = {}

    def read(self, take: Callable[[TopicPartition, int], None]) -> None:
        """Reads the new records up to the current ends, and passes the key of each to `take`, in
        order. Raises KafkaException when the cluster does not answer, DeadlineExceeded when records
        do not arrive."""
        partitions = partitions_of(data_topics(self._admin, self._homes, within=_ASK))
        which: Bound = "stable" if self._isolation == "read_committed" else "high"
        ends = bounds(self._admin, partitions, which, within=_ASK)
        if new := [partition for partition in partitions if partition not in self._positions]:
            self._positions |= dict.fromkeys(new, 0)
            known = {partition: at or OFFSET_BEGINNING for partition, at in self._positions.items()}
            self._reader.assign([KafkaPartition(t, p, at) for (t, p), at in known.items()])

        def read_on() -> bool:
            for message in self._reader.consume(_BATCH, timeout=0.05 if self._missing(ends) else 0):
                self._took(message, take)
            return not self._missing(ends)

        until(read_on, within=_READ_WITHIN, every=0.0, what="the ends of partitions to be read")

    def _missing(self, ends: dict[TopicPartition, int]) -> bool:
        return any(self._positions[partition] < end for partition, end in ends.items())

    def _took(self, message: Message, take: Callable[[TopicPartition, int], None]) -> None:
        partition, offset = (str(message.topic()), cast(int, message.partition())), message.offset()
        if partition not in self._positions or offset is None:
            return
        if message.error() is not None:  # partition end; before it only markers and aborted records
            self._positions[partition] = max(self._positions[partition], offset)
            return
        take(partition, _key(message))
        self._positions[partition] = offset + 1

    def close(self) -> None:
        self._reader.close()


def _key(message: Message) -> int:
    """The identity of a record on both sides: its payload id, else a digest of its key, value and
    timestamp."""
    uid = uid_in(cast("list[tuple[str, bytes | None]] | None", message.headers()))
    if uid != FOREIGN:
        return uid
    content = (message.key() or b"", message.value() or b"", message.timestamp()[1])
    return -2 - int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=7).digest())


class Order:
    """The records of one partition that have not arrived yet, in the source's order."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._among: set[int] = set()
        self._ahead: set[int] = set()
        """Records that arrived before they were read at the source, and repeated records."""

    def sent(self, key: int) -> None:
        self._waiting.append(key)
        self._among.add(key)
        if key in self._ahead:
            self._ahead.discard(key)
            self.arrived(key)

    def arrived(self, key: int) -> None:
        """Removes this record and all earlier ones."""
        if key not in self._among:
            self._ahead.add(key)
            return
        while self._waiting:
            earlier = self._waiting.popleft()
            self._among.discard(earlier)
            if earlier == key:
                return

    @property
    def behind(self) -> int:
        return len(self._waiting)


class Behind:
    """Both sides of one link. Thread-safe."""

    def __init__(
        self, source: str, destination: str, homes: tuple[str, ...], isolation: Isolation
    ) -> None:
        self._source = _Side(source, homes, isolation)
        self._destination = _Side(destination, homes, isolation)
        self._orders: dict[TopicPartition, Order] = defaultdict(Order)
        self._lock = threading.Lock()

    def count(self) -> int | None:
        """The lag in records; None while a side does not answer."""
        with self._lock:
            try:
                self._source.read(lambda partition, key: self._orders[partition].sent(key))
                self._destination.read(lambda partition, key: self._orders[partition].arrived(key))
            except (KafkaException, DeadlineExceeded):
                return None
            return sum(order.behind for order in self._orders.values())

    def close(self) -> None:
        with self._lock:
            self._source.close()
            self._destination.close()


class _Lag(msgspec.Struct, frozen=True):
    lag: Annotated[int, Meta(ge=0)]


class _Promoted(msgspec.Struct, frozen=True):
    promoted: Mapping[str, list[Annotated[int, Meta(ge=0)]]] = {}


def answer_of(printed: str) -> str:
    """The last line that is a JSON object; an empty object where there is none."""
    return next(
        (line for line in reversed(printed.splitlines()) if line.lstrip().startswith("{")), "{}"
    )


def printed_lag(printed: str) -> int | None:
    """The lag that the command `lag` printed; None if it is unreadable."""
    try:
        return msgspec.json.decode(answer_of(printed), type=_Lag).lag
    except msgspec.DecodeError:
        return None


def printed_promotion(printed: str, name: str) -> dict[TopicPartition, int]:
    """The promotion that a failover reported: (topic, partition) -> the first offset of the
    destination's own records. Empty if it reported none. Raises EnvironmentFailure if the report is
    malformed."""
    try:
        offsets_of = msgspec.json.decode(answer_of(printed), type=_Promoted).promoted
    except msgspec.DecodeError as error:
        raise EnvironmentFailure(
            f"the failover of mirror {name} printed a malformed promotion ({error}); see "
            "linkflap docs own-mirror"
        ) from None
    return {
        (topic, number): offset
        for topic, offsets in offsets_of.items()
        for number, offset in enumerate(offsets)
    }


def refuse_impossible(
    name: str, promoted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Raises EnvironmentFailure if a report names a partition that the link does not mirror, or an
    offset beyond the log end."""
    for (topic, number), offset in promoted.items():
        report = f"{name} reports that it promoted {topic}-{number} at {offset}"
        if (topic, number) not in ends:
            raise EnvironmentFailure(f"{report}, but the link mirrors no such partition")
        if offset > ends[topic, number]:
            raise EnvironmentFailure(f"{report}, but the log ends at {ends[topic, number]}")


_READY_EVERY: Final = 0.2


def environment_of(
    deployment: Deployment, link: LinkSpec, homes: tuple[str, ...], folder: Path
) -> dict[str, str]:
    """The environment variables of every command of a link's mirror (docs/own-mirror.md). The
    mirror may keep files in `folder`."""
    source = deployment.links[link.name].bootstrap
    destination = deployment.clusters[link.destination].bootstrap
    return {
        "LINKFLAP_LINK": link.name,
        "LINKFLAP_SOURCE": link.source,
        "LINKFLAP_DESTINATION": link.destination,
        "LINKFLAP_SOURCE_BOOTSTRAP": source,
        "LINKFLAP_DESTINATION_BOOTSTRAP": destination,
        "LINKFLAP_TOPIC_PATTERN": topic_pattern(homes),
        "LINKFLAP_FOLDER": str(folder.absolute()),
        **_entered("SOURCE", source),
        **_entered("DESTINATION", entered_by(destination, "mirror")),
        **_entered("DESTINATION_SAMPLER", entered_by(destination, "sampler")),
    }


def _entered(side: str, address: str) -> dict[str, str]:
    """The files with the login of a secured cluster: one with Java's names, one with
    librdkafka's."""
    security = security_of(address)
    if not security.file:
        return {}
    return {
        f"LINKFLAP_{side}_PROPERTIES": security.file,
        f"LINKFLAP_{side}_CONFIG": security.librdkafka_file,
    }


SETTLE_SECONDS: Final = 90.0
_ASK_SECONDS: Final = 5.0


class CommandMirror(MirrorBase):
    """Raises InputError for an invalid manifest. Its methods may be called from several threads."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: CommandMirror | None = None,
    ) -> None:
        super().__init__(spec, link, deployment, recorder, reverses=reverses)
        path = manifests.path_of(spec.options)
        self._manifest = manifests.read(path)
        if reverses is not None:  # both copy the same topics, so they have one canary topic
            self._canary = reverses._canary
        self._ends = MirroredEnds(
            admin=self._here,
            destination=link.destination,
            homes=self._homes,
            answers_within=_ASK_SECONDS,
        )
        state = (
            next(iter(self._destination.brokers.values())).log.parent
            / f"{self._manifest.name}-{link.source}-{link.destination}"
        )
        self._foreign = Foreign(
            name=f"mirror {self._manifest.name} of {link.name}",
            folder=path.parent,
            log=state / "output.log",
            environment={
                **environment_of(deployment, link, self._homes, state),
                **manifests.java_of(self._manifest, path),
            },
            secrets=self._manifest.environment,
        )
        self._state = state
        self._behind = Behind(
            self._source.bootstrap,
            self._destination.bootstrap,
            self._homes,
            self._manifest.guarantee.isolation,
        )
        self._child: Child | None = None
        self._lost: frozenset[int] = frozenset()
        self._promoted: dict[TopicPartition, int] = {}
        self._lock = threading.RLock()
        deployment.at_close(self._end)

    @property
    def alive(self) -> bool:
        """Whether the mirror runs, and none of its processes crashed since its last start."""
        child = self._child
        return child is not None and child.end_group() is None and not self._lost

    def _await_ready(self, began: float) -> None:
        seconds = self._manifest.seconds.ready
        left = max(1.0, seconds - (time.monotonic() - began))
        canary = Canary(self._source.bootstrap, self._destination.bootstrap, self._canary)
        said_so = self._manifest.commands.ready is None

        def through() -> bool:
            nonlocal said_so
            if not self.alive:
                raise SetupError(
                    f"{self._foreign.name} ended while it started; it "
                    f"printed:\n{self._foreign.last_words()}"
                )
            said_so = said_so or self._command("ready", within=seconds) == 0
            return said_so and canary.arrived()

        try:
            what = f"{self._foreign.name} to be ready and a record to cross {self.link.name}"
            until(
                through,
                within=left,
                every=_READY_EVERY,
                what=what,
                state=lambda: "ready" if said_so else "its command ready has not succeeded",
            )
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"{error}; it printed:\n{self._foreign.last_words()}") from error
        finally:
            canary.close()

    def _command(self, name: str, *, within: float) -> int:
        """The exit status of a command. A command that does not end in time is killed and counts as
        failed (-1)."""
        with contextlib.suppress(DeadlineExceeded):
            return self._foreign.run(
                self._manifest.every_command[name],
                what=name,
                within=within,
                **self._variables(name),
            ).status
        return -1

    def _variables(self, name: str) -> dict[str, str]:
        child = self._child
        return {"LINKFLAP_COMMAND": name, "LINKFLAP_PID": str(child.pid if child else 0)}

    def _ask(self, name: str, *, within: float) -> str:
        """The output of a command. Raises EnvironmentFailure if the command failed."""
        words = self._manifest.every_command[name]
        ran = self._foreign.run(words, what=name, within=within, **self._variables(name))
        if ran.status:
            what = f"command {name} of {self._foreign.name} ended with status {ran.status}"
            raise EnvironmentFailure(f"{what}; it printed:\n{self._foreign.last_words()}")
        return ran.output

    def start(self) -> None:
        """Creates the topics, runs `start`, and waits until it mirrors.

        Raises SetupError when it ends, DeadlineExceeded when no record arrives; both with the last
        lines that it printed.
        """
        self._state.mkdir(parents=True, exist_ok=True)
        if self._reverses is not None:
            self._fail_back()
        copy_topics(self._source, self._destination, self._homes, canary=self._canary)
        self._run("start")

    def _fail_back(self) -> None:
        """Runs `failback`, and records what it truncated. Raises EnvironmentFailure if it failed,
        or left a log that this mirror cannot continue."""
        before = self._ends.known(SETTLE_SECONDS)
        self._ask("failback", within=self._manifest.seconds.failback)
        after = self._ends.known(SETTLE_SECONDS)
        for (topic, number), end in sorted(before.items()):
            left = after.get((topic, number), 0)
            if left and not self._manifest.guarantee.offsets_kept:
                raise EnvironmentFailure(
                    f"command failback of {self._foreign.name} left {topic}-{number} of "
                    f"{self.link.destination} ending at {left}; a mirror that changes offsets "
                    "needs an empty log: let it delete the topic, which is created again"
                )
            if left < end:
                self._record_truncation((topic, number), left, end)

    def restart(self) -> None:
        again = self._manifest.commands.restart
        if self._lost and again:  # some processes still run; the command restarts the others
            self._ask("restart", within=self._manifest.seconds.ready)
            self._lost = frozenset()
            self._await_ready(time.monotonic())
            return
        self._end()
        self._run("restart" if again else "start")

    def _run(self, name: Literal["start", "restart"]) -> None:
        began = time.monotonic()
        words = self._manifest.every_command[name]
        with self._lock:
            self._lost = frozenset()
            self._child = self._foreign.start(words)
        self._await_ready(began)
        self._record_start({"manifest": self._manifest.name}, began)

    def crash(self) -> None:
        """Kills the process group with SIGKILL, or runs the command `crash`, which kills at least
        one of its processes."""
        child = self._child
        if self._manifest.commands.crash and child is not None:
            before = child.group()
            self._ask("crash", within=self._manifest.seconds.crash)
            with contextlib.suppress(DeadlineExceeded):
                until(
                    lambda: before - child.group(),
                    within=self._manifest.seconds.crash,
                    what="one of its processes to end",
                )
            self._lost = before - child.group()
            by = "its command"
        else:
            self._end()
            by = "SIGKILL"
        self._record_crash(by)

    def stop(self) -> None:
        """Ends the mirror. Returns when the destination's mirrored partitions have stopped growing.
        Safe to call twice."""
        with self._lock:
            drained = self.alive and self._compared()
            if self.alive and self._manifest.commands.stop:
                self._command("stop", within=self._manifest.seconds.stop)
            if self._child is not None:
                self._foreign.end(self._child, within=self._manifest.seconds.stop)
            if is_running(self._destination):
                # Also waits for its open transactions, and for requests of a killed process in a
                # broker's socket buffer.
                self._ends.await_unchanged(SETTLE_SECONDS, closed=True)
            self._recorder.write(MirrorStopped(link=self.link.name, drained=drained))

    def fail_over(self, kind: FailoverKind) -> None:
        """Runs the failover command of this kind, if there is one, and ends the remaining
        processes. Raises EnvironmentFailure if it failed."""
        name = f"failover {kind}"
        if name in self._manifest.every_command:
            printed = self._ask(name, within=self._manifest.seconds.failover)
            self._promoted = printed_promotion(printed, self._manifest.name)
        self.stop()

    def _compared(self) -> bool:
        """Whether the measured lag is zero. Records the mirror's own report beside it."""
        measured = self.lag()
        if self._manifest.commands.lag:
            reported: int | None = None
            with contextlib.suppress(EnvironmentFailure):
                reported = printed_lag(self._ask("lag", within=self._manifest.seconds.lag))
            self._recorder.write(
                MirrorLag(link=self.link.name, reported=reported, measured=measured)
            )
        return measured == 0

    def promotion(self) -> Mapping[TopicPartition, int]:
        """The offsets that the failover reported, and log ends for the other partitions. Called
        after `fail_over`, before a client writes. Raises EnvironmentFailure for an impossible
        report, DeadlineExceeded."""
        ends = self._ends.known(SETTLE_SECONDS)
        refuse_impossible(self._foreign.name, self._promoted, ends)
        return {**ends, **self._promoted}

    def reversed(self) -> Mirror:
        if self._manifest.commands.failback is None:
            raise InputError(
                f"mirror {self._manifest.name} has no command failback; give its manifest one, or "
                "use --mirror shadow"
            )
        return self._back()

    def lag(self) -> int | None:
        return self._behind.count() if is_running(self._source) else None

    def _end(self) -> None:
        """Kills the process group with SIGKILL."""
        with self._lock:
            if self._child is not None:
                self._foreign.kill(self._child)
