"""Faults that move the leadership of partitions: to another replica, or to one without records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from linkflap.chaos.faults.base import FaultBase, wait, watch
from linkflap.chaos.faults.brokers import HEALS_WITHIN
from linkflap.chaos.faults.clusters import cluster_of, cluster_reason
from linkflap.harness.capture.replicas import epochs_in, log_end
from linkflap.harness.log.layout import ABORT, COMMIT
from linkflap.harness.model.errors import FaultError, LinkflapError
from linkflap.harness.model.events import LostRange
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.payload import FOREIGN
from linkflap.harness.model.protocols import Bite, Broker, Cluster, FaultWorld
from linkflap.harness.model.scenario import IN_SYNC, FaultSpec
from linkflap.harness.model.topology import TopicPartition, Topology, is_data_topic
from linkflap.harness.model.wait import now
from linkflap.harness.wire import requests
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf
from linkflap.harness.wire.librdkafka import answered_bounds, quiet
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.requests import PREFERRED, UNCLEAN

MOVES_WITHIN: Final = 30.0
MOVES_BACK_WITHIN: Final = 60.0
COORDINATORS: Final = ("__transaction_state", "__consumer_offsets")
_INTERNAL: Final = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The metadata of a partition: its leader, its replicas in order, and its ISR."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class _LeaderFault(FaultBase):
    """A fault of the leaders of one cluster's partitions. `_before`: their metadata before it."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._cluster = cluster_of(spec, world)
        self._before: dict[TopicPartition, PartitionMetadata] = {}

    def _metadata(self) -> dict[TopicPartition, PartitionMetadata]:
        """All partitions of the cluster. Raises FaultError."""
        try:
            topics = self._admin(self._cluster.name).list_topics(timeout=10).topics
        except KafkaException as error:
            raise FaultError(
                f"cluster {self._cluster.name} does not say who leads: {error}"
            ) from error
        return {
            (name, number): PartitionMetadata(
                leader=p.leader, replicas=tuple(p.replicas), in_sync=frozenset(p.isrs)
            )
            for name, topic in topics.items()
            for number, p in topic.partitions.items()
        }

    @property
    def _addresses(self) -> list[str]:
        """The addresses of the brokers that run."""
        brokers = self._cluster.brokers.values()
        return [broker.client_address for broker in brokers if broker.state == "running"]

    def _reorder(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassigns the replicas in these orders, and elects the first of each. Raises
        FaultError."""
        try:
            asyncio.run(reordered(self._addresses, orders))
        except Unanswered as error:
            raise FaultError(
                f"cluster {self._cluster.name} did not move leaders or replicas: {error}"
            ) from error


class LeadershipMove(_LeaderFault):
    """Moves the leaders of a cluster's partitions to other brokers, and back to the preferred
    leaders at the end; option of.

    Breaks    requests to the former leader: producers, readers and mirrors are refused and look for
              the new one, and the batches of one transaction have two leader epochs (KIP-101,
              KIP-320). With of=coordinators the coordinators of transactions and groups move (the
              leaders of their logs).
    Bite      every moved partition has the leader that was chosen for it.
    Heal      each moved partition has its former order of replicas, its first replica leads, and
              all formerly in-sync replicas are in sync again.

    A partition moves to the next of its replicas in sync: their order is changed (KIP-455) and the
    first elected (KIP-460). Partitions that a mirror leads, or that only one broker has, are not
    moved.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "of": OptionAbout.one_of(
            "data",
            "coordinators",
            about="the partitions that move: those of data topics, or of the coordinators' logs",
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._of = str(self._values["of"])
        self._wanted: dict[TopicPartition, tuple[int, ...]] = {}

    reason = staticmethod(cluster_reason)

    def inject(self) -> None:
        found = self._led()
        self._wanted = {
            tp: order for tp, led in found.items() if (order := next_order(led)) is not None
        }
        self._before = {tp: found[tp] for tp in self._wanted}
        if not self._wanted:
            raise FaultError(
                f"cluster {self._cluster.name} has no partitions of {self._of} with two replicas in"
                " sync; give it two brokers or more, and topics that it leads itself"
            )
        self._reorder(self._wanted)

    def _led(self) -> dict[TopicPartition, PartitionMetadata]:
        """The partitions of this fault (option of) that the cluster's own brokers replicate and
        lead."""
        mine = self._cluster.brokers.keys()
        return {
            (topic, number): led
            for (topic, number), led in self._metadata().items()
            if (
                topic in COORDINATORS
                if self._of == "coordinators"
                else not topic.startswith(_INTERNAL)
            )
            and led.leader in mine
            and mine >= set(led.replicas)
        }

    def bite(self) -> Bite:
        expected = f"the chosen leader of all {len(self._wanted)} partitions"
        if not self._wanted:
            return Bite(
                bit=False, observable="leaders", measured="nothing could move", expected=expected
            )
        return watch(
            self._world, "leaders in the metadata", expected, self._measure, within=MOVES_WITHIN
        )

    def _measure(self) -> tuple[bool, object]:
        now = self._led()
        moved = [
            tp for tp, order in self._wanted.items() if tp in now and now[tp].leader == order[0]
        ]
        return len(moved) == len(self._wanted), {"moved": len(moved), "of": len(self._wanted)}

    def heal(self) -> Sequence[str]:
        if not self._before:
            return ["nothing was moved"]
        left: list[str] = []

        def healed() -> bool:
            now = self._led()
            left[:] = [
                f"{topic}-{n}"
                for (topic, n), led in self._before.items()
                if not _as_before(now.get((topic, n)), led)
            ]
            if left:
                self._reorder({tp: led.replicas for tp, led in self._before.items()})
            return not left

        what = f"the partitions of {self._cluster.name} to have their leaders again"
        wait(healed, within=MOVES_BACK_WITHIN, what=what, every=0.2, state=lambda: left[:5])
        return [
            f"formerly in-sync replicas are in the ISR of all {len(self._before)} partitions, and "
            "the first replicas lead"
        ]


def next_order(led: PartitionMetadata) -> tuple[int, ...] | None:
    """The order with the next in-sync replica first. None if there is no other in-sync replica."""
    at = led.replicas.index(led.leader)
    behind = (*led.replicas[at + 1 :], *led.replicas[:at])
    chosen = next((replica for replica in behind if replica in led.in_sync), None)
    return (
        None
        if chosen is None
        else (chosen, *(replica for replica in led.replicas if replica != chosen))
    )


def _as_before(now: PartitionMetadata | None, before: PartitionMetadata) -> bool:
    """Whether a partition has its former order of replicas, its first replica as the leader, and
    its whole ISR again."""
    if now is None or not now.in_sync >= before.in_sync:
        return False
    return (now.replicas, now.leader) == (before.replicas, before.replicas[0])


async def reordered(
    addresses: Sequence[str], orders: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Reassigns the replicas of partitions in these orders (KIP-455), and elects the first of each
    (KIP-460). Raises Unanswered."""
    nodes = AnyOf(addresses)
    try:
        body = requests.reassignment(orders)
        answer = await nodes.call("alter_partition_reassignments", 0, body, within=15)
        if answer.error_code != Error.none:
            raise Unanswered(f"reassigning was refused: {answer.error_code.name}")
        await nodes.call("elect_leaders", 2, requests.election(orders, PREFERRED), within=15)
    finally:
        nodes.close()


ANSWERS_WITHIN: Final = 20.0

_OF_TOPIC: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value


def own_value(cluster: Cluster, topic: str) -> str | None:
    """The topic's own min.insync.replicas; None if it has the brokers' default."""
    admin, resource = (
        AdminClient(quiet(cluster.bootstrap)),
        ConfigResource(ResourceType.TOPIC, topic),
    )
    try:
        entry = admin.describe_configs([resource])[resource].result(ANSWERS_WITHIN)[IN_SYNC]
    except (KafkaException, TimeoutError) as error:
        raise FaultError(
            f"cluster {cluster.name} does not name the configs of {topic}: {error}"
        ) from error
    return str(entry.value) if entry.source == _OF_TOPIC else None


def set_values(cluster: Cluster, values: Mapping[str, str | None]) -> None:
    """Sets min.insync.replicas of topics; None removes a topic's own value. Raises FaultError."""
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    IN_SYNC,
                    value,
                    incremental_operation=(
                        AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                    ),
                )
            ],
        )
        for topic, value in values.items()
    ]
    admin = AdminClient(quiet(cluster.bootstrap))
    try:
        for done in admin.incremental_alter_configs(resources).values() if resources else ():
            done.result(ANSWERS_WITHIN)
    except (KafkaException, TimeoutError) as error:
        raise FaultError(f"cluster {cluster.name} did not change {IN_SYNC}: {error}") from error


LEAST_BROKERS: Final = 3
STEP_WITHIN: Final = 60.0

Wanted = Callable[[PartitionMetadata], bool]


class UncleanElection(_LeaderFault):
    """Elects a leader that lacks acknowledged records. The fault is declared lossy and needs three
    brokers.

    Breaks    acknowledged records: with min.insync.replicas=1 a leader that is alone in sync
              acknowledges writes that no other replica has. It dies, and an out-of-sync replica is
              elected (KIP-460, unclean). The log is truncated there for good, and other records get
              the same offsets (KIP-101).
    Bite      the chosen replica leads, and its log ended below the dead leader's last acknowledged
              record; both offsets are in the evidence. What the dead leader's log had in between is
              recorded exactly: each record and marker, the leader epochs, and when the election was
              requested. Nothing else is allowed to be lost.
    Heal      every broker runs and is in sync again, partitions have their replicas and topics
              their min.insync.replicas again.

    The partitions are those of data topics led by the broker that leads most of them. Before the
    election they have two replicas. Other partitions, including the coordinators', lose nothing. It
    needs three brokers: two are the quorum. The loss is declared in harness.guarantees.allowed.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._in_sync: dict[str, str | None] = {}
        self._elected = -1
        self._kept: dict[TopicPartition, int] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._requested = 0

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        if reason := cluster_reason(target, topology):
            return reason
        brokers = topology.cluster(target).brokers
        if brokers >= LEAST_BROKERS:
            return None
        has = f"{brokers} broker{'s' if brokers > 1 else ''}"
        return (
            f"cluster {target} has {has}, and an unclean election needs {LEAST_BROKERS}: two hold "
            "the quorum"
        )

    def inject(self) -> None:
        found = self._led()
        leaders = Counter(led.leader for led in found.values())
        if not leaders:
            raise FaultError(
                f"cluster {self._cluster.name} leads no partition of a topic that is at home there"
            )
        first = leaders.most_common(1)[0][0]
        self._before = {tp: led for tp, led in found.items() if led.leader == first}
        second = next(
            (r for led in self._before.values() for r in led.replicas if r != first), None
        )
        if second is None or len(self._cluster.brokers) < LEAST_BROKERS:
            raise FaultError(
                f"the partitions of {self._cluster.name} have one replica each; give them three"
            )
        self._elected = second
        self._two_replicas(first, second)
        self._one_alone(first, second)
        self._elect(self._cluster.brokers[first], self._cluster.brokers[second])

    def _two_replicas(self, first: int, second: int) -> None:
        """Reassigns the partitions to these two replicas, and lets one in-sync replica be enough
        for a write."""
        topics = sorted({topic for topic, _ in self._before})
        self._in_sync = {topic: own_value(self._cluster, topic) for topic in topics}
        set_values(self._cluster, {topic: "1" for topic in topics})
        self._reorder(dict.fromkeys(self._before, (first, second)))
        self._wait_for(
            lambda led: led.in_sync == {first, second} == set(led.replicas),
            "to have two replicas in sync",
        )

    def _one_alone(self, first: int, second: int) -> None:
        """The second broker dies. The first one is then alone in the ISR, and acknowledges records
        that the second does not have."""
        behind = self._cluster.brokers[second]
        behind.kill()
        self._wait_for(lambda led: led.in_sync == {first}, f"to have broker {first} alone in sync")
        self._kept = {tp: log_end(behind.log_dir / f"{tp[0]}-{tp[1]}") for tp in self._before}
        admin = self._admin(self._cluster.name)

        def acknowledged() -> bool:
            ends = answered_bounds(admin, self._before, "high", within=5.0)
            return any(end > self._kept[tp] for tp, end in ends.items())

        what = "clients to write records that only one replica has"
        wait(acknowledged, within=STEP_WITHIN, what=what)

    def _elect(self, first: Broker, second: Broker) -> None:
        """The first broker dies, and the second is elected."""
        first.kill()
        self._acknowledged = {
            tp: log_end(first.log_dir / f"{tp[0]}-{tp[1]}") for tp in self._before
        }
        second.start()
        self._requested = now()
        what = f"broker {second.id} to be elected"
        wait(self._request_election, within=STEP_WITHIN, what=what)

    def _request_election(self) -> bool:
        """Repeats the request for the election until it is carried out: a broker that has just
        restarted is still fenced."""
        try:
            asyncio.run(elected(self._addresses, list(self._before)))
            return all(led.leader == self._elected for led in self._now().values())
        except (Unanswered, FaultError):
            return False

    def bite(self) -> Bite:
        expected = "led by a replica that lacks acknowledged records"
        bite = watch(
            self._world,
            "leaders, and the ends of both logs",
            expected,
            self._measure,
            within=STEP_WITHIN,
        )
        if not bite.bit:
            return bite
        return replace(bite, lost=tuple(self._lost(tp) for tp in sorted(self._lacking())))

    def _measure(self) -> tuple[bool, object]:
        now = self._now()
        led = bool(now) and all(each.leader == self._elected for each in now.values())
        lost = self._lacking()
        return led and bool(lost), {
            f"{topic}-{n}": ends for (topic, n), ends in sorted(lost.items())
        }

    def _lacking(self) -> Mapping[TopicPartition, list[int]]:
        """For each partition that lost records: the end offsets of the elected replica's log and of
        the dead leader's.
        """
        return {
            tp: [self._kept[tp], self._acknowledged[tp]]
            for tp in self._before
            if self._kept[tp] < self._acknowledged[tp]
        }

    def _lost(self, tp: TopicPartition) -> LostRange:
        """The part of the dead leader's log beyond the end of the elected replica's. The dead
        leader has not started again, so its log is unchanged."""
        brokers, name = self._cluster.brokers, f"{tp[0]}-{tp[1]}"
        folder = brokers[self._before[tp].leader].log_dir / name
        epochs = epochs_in(brokers[self._elected].log_dir / name)
        try:
            return read_lost(
                folder,
                tp,
                start=self._kept[tp],
                end=self._acknowledged[tp],
                elected_epoch=max(
                    (e for e, at in epochs.items() if at >= self._kept[tp]), default=-1
                ),
                elected=self._requested,
            )
        except OSError as error:
            raise FaultError(
                f"the log of the dead leader of {name} cannot be read: {error}"
            ) from error

    def heal(self) -> Sequence[str]:
        if not self._before:
            return ["nothing was changed"]
        try:
            for broker in self._cluster.brokers.values():
                if broker.state == "stopped":
                    broker.start()
        except LinkflapError as error:
            raise FaultError(
                f"a broker of {self._cluster.name} was not started again: {error}"
            ) from error
        what = f"the partitions of {self._cluster.name} to have their replicas again"
        wait(self._restored, within=HEALS_WITHIN, what=what)
        set_values(self._cluster, self._in_sync)
        return [
            f"all {len(self._before)} partitions have their replicas in sync again",
            f"{IN_SYNC} is as it was",
        ]

    def _restored(self) -> bool:
        try:
            now = self._now()
            wrong = [
                tp
                for tp, led in self._before.items()
                if tp not in now or not now[tp].in_sync >= set(led.replicas)
            ]
            if wrong or any(now[tp].replicas != led.replicas for tp, led in self._before.items()):
                self._reorder({tp: led.replicas for tp, led in self._before.items()})
                return False
        except FaultError:
            return False
        return True

    def _led(self) -> dict[TopicPartition, PartitionMetadata]:
        """The partitions of the cluster's home topics, from its metadata. Raises FaultError."""
        homes = self._world.deployment.topology.named(self._cluster.name)
        return {
            tp: led
            for tp, led in self._metadata().items()
            if tp[0] in self._world.topics
            and is_data_topic(tp[0], homes)
            and (led.leader in self._cluster.brokers or tp in self._before)
        }

    def _now(self) -> Mapping[TopicPartition, PartitionMetadata]:
        found = self._led()
        return {tp: found[tp] for tp in self._before if tp in found}

    def _wait_for(self, state: Wanted, what: str) -> None:
        def there() -> bool:
            try:
                now = self._now()
            except FaultError:
                return False
            return len(now) == len(self._before) and all(state(led) for led in now.values())

        wait(there, within=STEP_WITHIN, what=f"the partitions of {self._cluster.name} {what}")


def read_lost(
    folder: Path,
    tp: TopicPartition,
    *,
    start: int,
    end: int,
    elected_epoch: int,
    elected: int,
) -> LostRange:
    """The records and markers that a partition folder has from `start` on, run by run."""
    # imported here, because numba takes a second to import
    from linkflap.harness.log import batches, records

    log = batches.scan(sorted(folder.glob("*.log")))
    headers = log.headers
    rows = [
        row
        for row in range(int((headers.last_offset < start).sum()), len(headers))
        if headers.crc_ok[row] and start <= headers.base_offset[row] < end
    ]
    found, _ = records.decode(log, rows[0], rows[-1] + 1) if rows else records.decode(log, 0, 0)
    producers = headers.producer_id[found.batch]
    return LostRange(
        topic=tp[0],
        partition=tp[1],
        start=start,
        end=end,
        deposed_epoch=max((int(headers.leader_epoch[row]) for row in rows), default=-1),
        elected_epoch=elected_epoch,
        elected=elected,
        records=tuple(
            _runs(zip(found.uid.tolist(), found.offset.tolist(), producers.tolist(), strict=True))
        ),
        markers=tuple(
            (
                int(headers.base_offset[row]),
                int(headers.producer_id[row]),
                int(headers.producer_epoch[row]),
                bool(headers.control[row] == COMMIT),
            )
            for row in rows
            if headers.control[row] in (COMMIT, ABORT)
        ),
    )


def _runs(records: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(payload id, offset, how many, producer id) for each run of neighbouring records whose
    payload ids rise by one, or are all foreign.
    """
    run: tuple[int, int, int, int] | None = None
    for uid, offset, producer in records:
        if run is not None:
            first, began, count, of = run
            following = first + count if first != FOREIGN else FOREIGN
            if (uid, offset, producer) == (following, began + count, of):
                run = first, began, count + 1, of
                continue
            yield run
        run = uid, offset, 1, producer
    if run is not None:
        yield run


async def elected(addresses: Sequence[str], partitions: Sequence[TopicPartition]) -> None:
    """Requests an unclean election of these partitions (KIP-460). Raises Unanswered."""
    nodes = AnyOf(addresses)
    try:
        await nodes.call("elect_leaders", 2, requests.election(partitions, UNCLEAN), within=15)
    finally:
        nodes.close()
