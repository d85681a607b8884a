"""Faults of one broker: killed, restarted, suspended, disconnected, without disk, memory or time.

A broker is healed when its process runs, its own listener answers, and it is in the ISR of every
partition that has a replica on it, by the metadata. Partitions with only a mirror in the ISR are
skipped. Other brokers are not checked, because other faults may hold them.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.base import (
    BITES_WITHIN,
    Answering,
    FaultBase,
    milliseconds,
    number,
)
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    FaultError,
    InputError,
    LinkflapError,
    SetupError,
)
from linkflap.harness.model.faults import Target
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, Broker, Confines, FaultWorld
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import faketime, probe
from linkflap.harness.runtimes.disks import SlowDisk, SmallDisk
from linkflap.harness.wire.librdkafka import quiet

ANSWERS_WITHIN: Final = 10.0
UNANSWERED_WITHIN: Final = 1.0
HEALS_WITHIN: Final = 90.0


def broker_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is `A/1`, broker 1 of a cluster A of the topology that has at least so many
    brokers; otherwise the reason."""
    on = Target.parse(target)
    cluster = next((cluster for cluster in topology.clusters if cluster.name == on.cluster), None)
    if cluster is not None and (1 <= on.broker <= cluster.brokers or cluster.bootstrap):
        return None
    known = ", ".join(
        f"{c.name}/1" + (f" to {c.name}/{c.brokers}" if c.brokers > 1 else "")
        for c in topology.clusters
    )
    return f"{target!r} is not a broker; this topology has {known}"


class BrokerParts(Answering):
    """One broker as the target of one fault."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        try:
            self.cluster = world.deployment.clusters[spec.on.cluster]
            self.broker = self.cluster.brokers[spec.on.broker]
        except KeyError:
            raise InputError(
                f"fault {spec.id!r} targets {spec.target!r}, which is no broker of this deployment"
            ) from None
        super().__init__(world)
        self._target = spec.target
        self._holds = 0

    def answers(self, *, within: float) -> float | None:
        """Seconds of a round trip on the broker's own CLIENT listener; None without an answer."""
        return probe.reach(self.broker.client_address, within=within)

    def measure_before(self) -> None:
        """Before the fault: measures the round trip, and notes the partitions that the broker
        replicates."""
        self.before = self.answers(within=ANSWERS_WITHIN)
        with contextlib.suppress(KafkaException):
            self._holds = len(self._held(AdminClient(quiet(self.cluster.bootstrap))))

    def shut_down(self) -> None:
        """Shuts the broker down gracefully, from any state."""
        if self.broker.state == "paused":
            self.broker.resume()
        if self.broker.state != "stopped":
            self.broker.stop()

    def unanswered(self) -> tuple[bool, object]:
        """A measurement: whether the broker no longer answers."""
        seconds = self.answers(within=UNANSWERED_WITHIN)
        return seconds is None, {
            "before_ms": milliseconds(self.before),
            "during_ms": milliseconds(seconds),
        }

    def heal(self, *, still_cut_by: Sequence[str] = ()) -> list[str]:
        """Runs the broker again from any state, and checks that it is healthy. Raises FaultError.

        `still_cut_by`: network partitions of its cluster that still last and may keep it out of the
        ISR.
        """
        try:
            if self.broker.state == "paused":
                self.broker.resume()
            if self.broker.state == "stopped":
                self.broker.start()
            until(
                lambda: self.answers(within=5.0),
                within=HEALS_WITHIN,
                what=f"broker {self._target} to answer",
            )
            held = 0 if still_cut_by else self._wait_until_in_sync()
        except LinkflapError as error:
            raise FaultError(
                f"broker {self._target} was not healed: {error}; see {self.broker.log}"
            ) from error
        in_sync = f"in the ISR of all {held} partitions that it holds and its cluster leads"
        if still_cut_by:
            in_sync = f"ISR not checked: {', '.join(still_cut_by)} still cuts its cluster"
        return [f"process of {self._target} runs", "its listener answers", in_sync]

    def _wait_until_in_sync(self) -> int:
        """Waits until the broker is in the ISR of every partition that it replicates and that one
        of the cluster's own brokers has in sync. Returns their number. Raises DeadlineExceeded.
        """
        admin = AdminClient(quiet(self.cluster.bootstrap))
        missing: list[str] = ["metadata"]
        held = 0

        def in_sync() -> bool:
            nonlocal missing, held
            with contextlib.suppress(KafkaException):
                missing, held = self._missing(admin)
            return not missing

        until(
            in_sync,
            within=HEALS_WITHIN,
            what=f"{self._target} to be in the ISR again",
            every=0.1,
            state=lambda: missing[:5],
        )
        return held

    def _missing(self, admin: AdminClient) -> tuple[list[str], int]:
        held = self._held(admin)
        if len(held) < self._holds:  # a restarted broker may first report an empty cluster
            return ["metadata"], 0
        # If only a mirror is in the ISR, its followers are never in the ISR, even if they are up to
        # date. The checks compare their bytes.
        mine = {
            name: isr for name, isr in held.items() if not isr or self.cluster.brokers.keys() & isr
        }
        return [name for name, isr in mine.items() if self.broker.id not in isr], len(mine)

    def _held(self, admin: AdminClient) -> dict[str, set[int]]:
        """The partitions with a replica on this broker, each with its ISR; of a cluster that
        linkflap did not start only the run's own. Raises KafkaException."""
        topology = self._world.deployment.topology
        own = tuple(cluster.name for cluster in topology.clusters)
        return {
            f"{name}-{number}": set(partition.isrs)
            for name, topic in admin.list_topics(timeout=5).topics.items()
            for number, partition in topic.partitions.items()
            if self.broker.id in partition.replicas
            and (not topology.attached or is_data_topic(name, own))
        }


class BrokerFault(FaultBase, ABC):
    """A fault of one broker. A fault with another effect overrides the measurement."""

    observable = "round trip at the broker's own listener"
    expected = "no answer"
    bites_within = BITES_WITHIN

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._parts = BrokerParts(spec, world)

    reason = staticmethod(broker_reason)

    @abstractmethod
    def take_down(self, broker: Broker) -> None:
        """Breaks the broker, and returns when it is broken."""

    def inject(self) -> None:
        self._parts.measure_before()
        self.take_down(self._parts.broker)

    def measure(self) -> tuple[bool, object]:
        return self._parts.unanswered()

    def bite(self) -> Bite:
        return self._parts.bite(
            self.observable, self.expected, self.measure, within=self.bites_within
        )

    def heal(self) -> Sequence[str]:
        return self._parts.heal()


def confines_of(broker: Broker, spec: FaultSpec) -> Confines:
    """Raises InputError if the broker is not in a container."""
    if broker.confines is None:
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) needs brokers in containers;"
            " run it with --runtime docker"
        )
    return broker.confines


class ConfinedFault(BrokerFault):
    """A fault of one broker's container. `undo` reverts it, and returns what it has checked."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self.confines, self._id = confines_of(self._parts.broker, spec), spec.id

    def cut_by_others(self) -> list[str]:
        """Other partition faults of the cluster that are in effect now."""
        every = [
            broker.confines.blocks
            for broker in self._parts.cluster.brokers.values()
            if broker.confines
        ]
        return sorted({owner for blocks in every for owner in blocks} - {self._id})

    def undo(self) -> Sequence[str]:
        """Undoes the fault; may be called again. Raises LinkflapError."""
        raise AssertionError("each fault says how")

    def heal(self) -> Sequence[str]:
        try:
            undone = self.undo()
        except LinkflapError as error:
            broker = self._parts.broker
            raise FaultError(
                f"the container of {broker.cluster}/{broker.id} was not healed: {error}; see "
                f"{broker.log}"
            ) from error
        return [*undone, *self._parts.heal(still_cut_by=self.cut_by_others())]


class BrokerKill(BrokerFault):
    """Kills a broker with SIGKILL, and starts it again at the end.

    Breaks    leadership, coordinators and open connections of that broker; an unclean start with
              log recovery follows.
    Bite      the broker answered a round trip before and does not in the window.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds.
    """

    def take_down(self, broker: Broker) -> None:
        broker.kill()


class BrokerRestart(BrokerFault):
    """Shuts a broker down gracefully, and starts it again at the end.

    Breaks    leadership moves first, connections end afterwards, as in a rolling upgrade.
    Bite      the broker answered a round trip before and does not in the window.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds.
    """

    def take_down(self, broker: Broker) -> None:
        broker.stop()


class BrokerPause(BrokerFault):
    """Suspends a broker's process, and resumes it at the end.

    Breaks    every client and broker that waits for it. After its session timeout the controller
              fences it. On resuming it may still execute old requests: a produce that timed out can
              be written after the pause.
    Bite      the broker answered a round trip before; in the window a connection to it is accepted
              and stays silent.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds.
    """

    expected = "accepted and silent"

    def take_down(self, broker: Broker) -> None:
        broker.pause()

    def measure(self) -> tuple[bool, object]:
        start = time.monotonic()
        unanswered, seen = super().measure()
        silent = unanswered and time.monotonic() - start >= 0.9 * UNANSWERED_WITHIN
        return silent, {"silent": silent, "round_trip": seen}


class BrokerDisconnect(ConfinedFault):
    """Takes a broker's container off its network, and puts it back at the end.

    Breaks    every connection of the broker: to its peers, to its clients, over its links. To its
              process, the peers just stop answering.
    Bite      the broker answered a round trip before and does not in the window, and is on no
              network.
    Heal      it is on its network again with its address, its listener answers, it is in the ISR of
              every partition that it holds.
    """

    expected = "no answer, and on no network"

    def take_down(self, broker: Broker) -> None:
        self.confines.disconnect()

    def measure(self) -> tuple[bool, object]:
        silent, seen = super().measure()
        connected = self.confines.connected
        return silent and not connected, {"on_network": connected, "round_trip": seen}

    def undo(self) -> Sequence[str]:
        self.confines.reconnect()
        if not self.confines.connected:
            raise FaultError(
                "it is not on its network after it was connected; see docker network inspect"
            )
        return ["on its network again"]


_MEGABYTE: Final = 1 << 20
_ENDS_WITHIN: Final = 60.0


class _DiskFault(BrokerFault):
    """A fault of the disk of a broker's log directory: meanwhile its logs are on a disk of the
    fault's own."""

    _disk: SmallDisk

    def unlimit(self) -> None:
        """Ends the limit on the broker's writes, if the fault has set one."""

    @abstractmethod
    def shut_down(self) -> None:
        """Ends the broker, so that its logs can be moved back."""

    def heal(self) -> Sequence[str]:
        broker = self._parts.broker
        try:
            self.unlimit()
            if self._disk.mounted:
                self.shut_down()
                self._disk.take_back()
        except (LinkflapError, OSError) as error:
            raise FaultError(
                f"the logs of {broker.cluster}/{broker.id} are not back on their own disk: {error}"
            ) from error
        return ["its logs are back on their own disk", *self._parts.heal()]


class BrokerDiskFull(_DiskFault):
    """Fills the disk of a broker's log directory; option spare (MB left free for its start, then
    filled too). Needs root.

    Breaks    every append and every roll of a segment: the broker marks its only log directory as
              offline and exits; started again, it exits again. When it recovers its logs after the
              heal, it truncates incomplete batches.
    Bite      no byte is free; the broker answered before, exited by itself, and exited again when
              it was started in the window.
    Heal      its logs are back on the large disk, its process runs, its listener answers, it is in
              the ISR of every partition that it holds.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "spare": OptionAbout(
            default=64.0, about="MB left free while the broker starts; then filled too"
        ),
    }
    expected = "no byte free, and exited after every start"

    observable = "room on the disk of its log directory"
    bites_within = _ENDS_WITHIN

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._spare = int(number(self._values, "spare") * _MEGABYTE)
        self._disk = SmallDisk(self._parts.broker.log_dir)
        self._ended_again: bool | None = None

    def take_down(self, broker: Broker) -> None:
        if broker.state != "stopped":
            broker.stop()
        try:
            self._disk.put(spare=self._spare)
        finally:
            broker.start()
        self._disk.fill()

    def measure(self) -> tuple[bool, object]:
        broker = self._parts.broker
        ended = self._disk.mounted and broker.state == "stopped"
        if ended and self._ended_again is None:
            self._ended_again = _exits_by_itself(broker)
        free = self._disk.free if self._disk.mounted else None
        return free == 0 and bool(self._ended_again), {
            "free_bytes": free,
            "ended": ended,
            "ended_again": self._ended_again,
        }

    def shut_down(self) -> None:
        if self._parts.broker.state == "paused":
            self._parts.broker.resume()
        self._parts.broker.kill()


def _exits_by_itself(broker: Broker) -> bool:
    """Whether the broker exits by itself after a start."""
    try:
        broker.start()
        until(lambda: broker.state == "stopped", within=_ENDS_WITHIN / 2, what="it to end")
    except DeadlineExceeded:
        return False
    except SetupError:
        return broker.state == "stopped"
    return True


_KILOBYTE: Final = 1 << 10
_SPARE: Final = 256 << 20
_LEAST_RATE: Final = 16.0
_BITES_WITHIN: Final = 60.0


class BrokerDiskSlow(_DiskFault):
    """Slows down the disk of a broker's log directory; option rate (KB/s). Needs root.

    Breaks    every append waits: producers with acks=all wait for the slowest in-sync replica,
              until it leaves the ISR. Fetches, segment rolls and the controller's own log wait
              behind the appends. The broker still answers.
    Bite      a test process under the broker's limit writes at that rate, and one without the limit
              is at least twice as fast.
    Heal      its logs are back on their own disk, its process runs, its listener answers, it is in
              the ISR of every partition.

    During the window the log directory is on a small disk of its own, mounted for synchronous
    writes, and the kernel limits the broker's write rate (`harness.runtimes.disks`). The broker is
    shut down and started twice: to move its logs there, and back.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "rate": OptionAbout(default=256.0, low=_LEAST_RATE, about="KB that it writes in a second"),
    }

    observable = "writes to the disk of its log directory"
    bites_within = _BITES_WITHIN

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._rate = int(number(self._values, "rate") * _KILOBYTE)
        broker = self._parts.broker
        self._disk: SlowDisk = SlowDisk(broker.log_dir, f"{broker.cluster}-{broker.id}")
        self.expected = f"{self._rate // _KILOBYTE} KB/s"

    def take_down(self, broker: Broker) -> None:
        self._parts.shut_down()
        try:
            self._disk.put(spare=_SPARE)
        finally:
            broker.start()
        self._parts.heal()  # the bite must come from the slow disk and not from the restart
        pid = broker.pid
        if pid is None:
            raise FaultError(
                f"broker {broker.cluster}/{broker.id} exited before its disk was slow; see "
                f"{broker.log}"
            )
        self._disk.slow(pid, rate=self._rate)

    def measure(self) -> tuple[bool, object]:
        size = self._rate  # the bytes of one second
        try:
            free, limited = self._disk.unlimited(size), self._disk.seconds(size)
        except OSError as error:
            return False, str(error)
        answers = self._parts.answers(within=10.0) is not None
        seen = {
            "bytes": size,
            "seconds_limited": round(limited, 3),
            "seconds_without": round(free, 3),
            "answers": answers,
        }
        return bitten(limited, free) and answers, seen

    def unlimit(self) -> None:
        self._disk.fast()

    def shut_down(self) -> None:
        self._parts.shut_down()


def bitten(limited: float, free: float) -> bool:
    """Whether a write of one second's worth of data was slow because of its limit: the same write
    without the limit must be at least twice as fast."""
    return limited >= 0.5 and limited >= 2 * free


_MET_WITHIN: Final = 60.0
_ATTEMPTS: Final = 10


class BrokerMemoryLimit(ConfinedFault):
    """Limits the memory of a broker's container to what it uses; option spare (MB more than that).

    Breaks    the page cache of its logs first, so that reads and writes wait for the disk; when its
              heap grows, it is killed (OOM).
    Bite      the container has reached the limit since, or the kernel has killed the broker for it.
    Heal      the limit is gone, its process runs, its listener answers, it is in the ISR of every
              partition that it holds.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "spare": OptionAbout(
            default=4.0, about="MB above what the container uses when it is limited"
        ),
    }
    expected = "the limit reached, or the broker killed by it"

    observable = "memory of its control group"
    bites_within = _MET_WITHIN

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._spare = int(number(self._values, "spare") * _MEGABYTE)
        self._hits_before = 0

    def take_down(self, broker: Broker) -> None:
        before = self.confines.memory()
        self._hits_before = before.hits or 0
        # the kernel cannot reclaim its own part of this memory, and does not report its size
        # beforehand
        for more in range(1, _ATTEMPTS + 1):
            try:
                self.confines.limit_memory(before.used + more * self._spare)
                return
            except EnvironmentFailure:
                if more == _ATTEMPTS:
                    raise

    def measure(self) -> tuple[bool, object]:
        use = self.confines.memory()
        met = 0 if use.hits is None else use.hits - self._hits_before
        seen = {
            "limit_mb": (use.limit or 0) // _MEGABYTE,
            "used_mb": use.used // _MEGABYTE,
            "met": met,
            "killed": use.killed,
        }
        return use.limit is not None and (met > 0 or use.killed), seen

    def undo(self) -> Sequence[str]:
        self.confines.limit_memory(None)
        if limit := self.confines.memory().limit:
            raise FaultError(f"it still has a memory limit of {limit >> 20} MB; see docker inspect")
        return ["no memory limit"]


_OPENED: Final = "["
_LAST: Final = 1 << 16
_LEAST: Final = 2.0
_MOST: Final = 3000.0


class ClockSkew(BrokerFault):
    """Restarts a broker with a wrong time of day; options seconds, clock. Process runtime with
    libfaketime.

    Breaks    everything that depends on the time of day: LogAppendTime, retention, timeouts of
              transactions that another broker began, expiry of producers and groups. The fault
              shuts the broker down and starts it twice; its monotonic clock stays right.
    Bite      the broker answers, and the times in its own log differ by that much from the file
              system's.
    Heal      its process runs with the right time, its listener answers, it is in the ISR of every
              partition that it holds.

    The clock is set by libfaketime, which is loaded into the broker's process
    (`harness.runtimes.faketime`).
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "seconds": OptionAbout(
            default=30.0,
            low=_LEAST,
            high=_MOST,
            about="how far its clock is off; an hour ahead, brokers refuse new records",
        ),
        "clock": OptionAbout.one_of("behind", "ahead", about="whether it is behind or ahead"),
    }

    observable = "times in its own log"

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        seconds = number(self._values, "seconds")
        self._off = seconds if self._values["clock"] == "ahead" else -seconds
        self.expected = f"a clock {self._off:+g} s off"

    def take_down(self, broker: Broker) -> None:
        self._restart(broker, self._off)

    def _restart(self, broker: Broker, seconds: float) -> None:
        self._parts.shut_down()
        self._world.deployment.skew_clock(broker.cluster, broker.id, seconds)
        try:
            broker.start()
        finally:
            faketime.forget(broker.pid)

    def measure(self) -> tuple[bool, object]:
        answers = self._parts.answers(within=5.0) is not None
        off = clock_of(self._parts.broker.log)
        return answers and is_near(off, self._off), {"answers": answers, "seconds_off": off}

    def heal(self) -> Sequence[str]:
        broker = self._parts.broker
        try:
            self._restart(broker, 0.0)
        except LinkflapError as error:
            raise FaultError(
                f"the clock of {broker.cluster}/{broker.id} was not set right: {error}; see "
                f"{broker.log}"
            ) from error
        off = clock_of(broker.log)
        if is_near(off, self._off):
            raise FaultError(
                f"the clock of {broker.cluster}/{broker.id} is {off:+g} s off after its heal; see "
                f"{broker.log}"
            )
        return [f"its clock is {off} s off", *self._parts.heal()]


def clock_of(log: Path) -> float | None:
    """Seconds by which the time in a log's last line is after the file's modification time. None if
    no line has a time."""
    try:
        with log.open("rb") as file:
            written = log.stat()
            file.seek(max(0, written.st_size - _LAST))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    stamped = (_time(line) for line in reversed(lines))
    last = next((time for time in stamped if time is not None), None)
    return None if last is None else round(last - written.st_mtime, 3)


def _time(line: str) -> float | None:
    try:
        return (
            datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
            if line.startswith(_OPENED)
            else None
        )
    except ValueError:
        return None


def is_near(off: float | None, wanted: float) -> bool:
    """Whether a clock is off by the requested amount, with a margin for the time that a busy
    machine takes to write a line."""
    return off is not None and abs(off - wanted) <= abs(wanted) / 2
