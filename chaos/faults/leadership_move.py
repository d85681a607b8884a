"""leadership-move: each partition of a cluster gets another leader by election, and the preferred
one at the heal.

Breaks    requests to the former leader: producers, readers and mirrors are refused and look for the
          new one, and the batches of one transaction have two leader epochs (KIP-101, KIP-320).
          With of=coordinators the coordinators of transactions and groups move (the leaders of
          their logs).
Bite      every moved partition has the leader that was chosen for it.
Heal      every one has its former order of replicas, the first of them leads, and all formerly
          in-sync replicas are in sync again.

A partition moves to the next of its replicas in sync: their order is changed (KIP-455) and the
first elected (KIP-460). Partitions that a mirror leads, or that only one broker has, are not moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import TopicPartition, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import AnyOf, Unanswered
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.offsets import quiet

MOVES_WITHIN: Final = 30.0
HEALS_WITHIN: Final = 60.0
COORDINATORS: Final = ("__transaction_state", "__consumer_offsets")
_INTERNAL: Final = "__"
_TIMEOUT: Final = timedelta(seconds=10)
_PREFERRED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """The metadata of a partition: its leader, its replicas in order, and its ISR."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class LeadershipMove:
    """Moves the leaders of a cluster's partitions to other brokers, and back to the preferred
    leaders at the end; option of."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {"of": "data|coordinators"}
    abouts: ClassVar[Mapping[str, str]] = {
        "of": "the partitions that move: of data topics, or of the coordinators' own"
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._of = str(settings(spec, self.defaults)["of"])
        self._world, self._cluster = world, cluster_of(spec, world)
        self._before: dict[TopicPartition, Led] = {}
        self._wanted: dict[TopicPartition, tuple[int, ...]] = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

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
        self._elect(self._wanted)

    def _led(self) -> dict[TopicPartition, Led]:
        """The partitions of this fault (option of) that the cluster's own brokers replicate and
        lead."""
        try:
            topics = AdminClient(quiet(self._cluster.bootstrap)).list_topics(timeout=10).topics
        except KafkaException as error:
            raise FaultError(
                f"cluster {self._cluster.name} does not say who leads: {error}"
            ) from error
        mine = self._cluster.brokers.keys()
        return {
            (name, number): Led(
                leader=p.leader, replicas=tuple(p.replicas), in_sync=frozenset(p.isrs)
            )
            for name, topic in topics.items()
            if (
                name in COORDINATORS
                if self._of == "coordinators"
                else not name.startswith(_INTERNAL)
            )
            for number, p in topic.partitions.items()
            if p.leader in mine and mine >= set(p.replicas)
        }

    def _elect(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassigns the replicas in these orders, and elects the first of each. Raises
        FaultError."""
        try:
            asyncio.run(
                reordered(
                    [broker.client_address for broker in self._cluster.brokers.values()], orders
                )
            )
        except Unanswered as error:
            raise FaultError(
                f"cluster {self._cluster.name} did not move leaders: {error}"
            ) from error

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
                self._elect({tp: led.replicas for tp, led in self._before.items()})
            return not left

        what = f"the partitions of {self._cluster.name} to have their leaders again"
        try:
            until(healed, within=HEALS_WITHIN, what=what, every=0.2, state=lambda: left[:5])
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error
        return [
            f"who was in sync is in the ISR of all {len(self._before)} partitions, and their first "
            "replicas lead"
        ]


def next_order(led: Led) -> tuple[int, ...] | None:
    """The order with the next in-sync replica first. None if there is no other in-sync replica."""
    at = led.replicas.index(led.leader)
    behind = (*led.replicas[at + 1 :], *led.replicas[:at])
    chosen = next((replica for replica in behind if replica in led.in_sync), None)
    return (
        None
        if chosen is None
        else (chosen, *(replica for replica in led.replicas if replica != chosen))
    )


def _as_before(now: Led | None, before: Led) -> bool:
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
    by_topic: dict[str, dict[int, Sequence[int]]] = {}
    for (topic, number), order in orders.items():
        by_topic.setdefault(topic, {})[number] = order
    try:
        m = messages.request("alter_partition_reassignments", 0)
        partition = m.ReassignablePartition
        rows = tuple(
            m.ReassignableTopic(
                name=topic,
                partitions=tuple(
                    partition(partition_index=n, replicas=tuple(r)) for n, r in numbers.items()
                ),
            )
            for topic, numbers in by_topic.items()
        )
        body = m.AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=rows)
        answer = await nodes.call("alter_partition_reassignments", 0, body, within=15)
        if answer.error_code != Error.none:
            raise Unanswered(f"reassigning was refused: {answer.error_code.name}")
        m = messages.request("elect_leaders", 2)
        tps = tuple(
            m.TopicPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
        body = m.ElectLeadersRequest(
            election_type=_PREFERRED, topic_partitions=tps, timeout=_TIMEOUT
        )
        await nodes.call("elect_leaders", 2, body, within=15)
    finally:
        nodes.close()
