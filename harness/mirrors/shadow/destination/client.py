"""What a shadow asks of the destination's real brokers: metadata, topics, reassignments, configs,
producers, offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.destination.picture import Picture, picture
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import AnyOf, Connection, Unanswered
from linkflap.harness.wire.messages import Error, Message

_TIMEOUT: Final = timedelta(seconds=10)
_CONTROLLER_SECONDS: Final = 5.0
_TOPIC_CONFIG: Final = 2
_SET, _DELETE = 0, 1
_PREFERRED: Final = 0
DEBUGGING: Final = -2
"""A replica id that makes a follower answer ListOffsets itself
(ListOffsetsRequest.DEBUGGING_REPLICA_ID), without isolation."""


class Refused(EnvironmentFailure):
    """The destination has answered no; `code` is why."""

    def __init__(self, sentence: str, code: Message) -> None:
        super().__init__(sentence)
        self.code = code


class Destination:
    """The destination, asked through any of its real brokers; what a failover has to have done, of
    its active controller itself.

    Brokers pass that on over a channel of their own, which gives a controller that stands still up
    after 30 s (KIP-919 has controllers take it directly). Without `controllers` brokers are asked.
    """

    def __init__(self, brokers: Sequence[str], controllers: Sequence[str] = ()) -> None:
        self._nodes = AnyOf(brokers)
        self._controllers = AnyOf(controllers or brokers)
        self._direct: dict[str, Connection] = {}

    async def picture(self, topics: Iterable[str] | None = None) -> Picture:
        return await picture(self._nodes, topics)

    @property
    def nodes(self) -> AnyOf:
        """Its real brokers, for calls that any of them answers."""
        return self._nodes

    async def _decided(self, api: str, version: int, body: Message) -> Message:
        """What the active controller answers. Raises Unanswered while there is none."""
        for _ in range(3 * len(self._controllers.addresses)):
            answer = await self._controllers.call(api, version, body, within=_CONTROLLER_SECONDS)
            result = answer if hasattr(answer, "error_code") else answer.responses[0]
            if result.error_code != Error.not_controller:
                return answer
            self._controllers.turn()
            await asyncio.sleep(0.1)
        raise Unanswered(
            f"none of {', '.join(self._controllers.addresses)} is the active controller"
        )

    def _broker(self, address: str) -> Connection:
        return self._direct.setdefault(address, Connection(address))

    async def create(
        self, name: str, partitions: int, leader: int, configs: Mapping[str, str]
    ) -> str:
        """Makes a topic whose partitions are on `leader` alone; its id. Raises Unanswered,
        Refused."""
        m = messages.request("create_topics", 7)
        body = m.CreateTopicsRequest(
            topics=(
                m.CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=tuple(
                        m.CreatableReplicaAssignment(partition_index=i, broker_ids=(leader,))
                        for i in range(partitions)
                    ),
                    configs=tuple(
                        m.CreatableTopicConfig(name=key, value=value)
                        for key, value in configs.items()
                    ),
                ),
            ),
            timeout=_TIMEOUT,
            validate_only=False,
        )
        answer = await self._nodes.call("create_topics", 7, body, within=15)
        _check(answer.topics[0], f"topic {name} could not be made")
        return str(answer.topics[0].topic_id)

    async def grow(self, name: str, have: int, added: Sequence[Sequence[int]]) -> None:
        """Adds partitions with these replicas to a topic that has so many."""
        m = messages.request("create_partitions", 3)
        new = tuple(m.CreatePartitionsAssignment(broker_ids=tuple(replicas)) for replicas in added)
        topic = m.CreatePartitionsTopic(name=name, count=have + len(added), assignments=new)
        body = m.CreatePartitionsRequest(topics=(topic,), timeout=_TIMEOUT, validate_only=False)
        answer = await self._nodes.call("create_partitions", 3, body, within=15)
        _check(answer.results[0], f"partitions of {name} could not be made")

    async def reassign(self, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Asks for these replicas; returns when the controller has taken it down. Raises
        EnvironmentFailure when it refuses."""
        m = messages.request("alter_partition_reassignments", 0)
        by_topic: dict[str, list[Message]] = {}
        for (topic, number), replicas in wanted.items():
            by_topic.setdefault(topic, []).append(
                m.ReassignablePartition(partition_index=number, replicas=tuple(replicas))
            )
        topics = tuple(
            m.ReassignableTopic(name=topic, partitions=tuple(rows))
            for topic, rows in by_topic.items()
        )
        body = m.AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=topics)
        answer = await self._decided("alter_partition_reassignments", 0, body)
        _check(answer, "partitions could not be reassigned")
        for topic in answer.responses:
            for partition in topic.partitions:
                _check(
                    partition, f"{topic.name}-{partition.partition_index} could not be reassigned"
                )

    async def elect_preferred(self, tps: Iterable[TopicPartition]) -> None:
        """Has the first replicas of partitions elected (KIP-460). What is not elected yet is seen
        in the next picture."""
        m = messages.request("elect_leaders", 2)
        by_topic: dict[str, list[int]] = {}
        for topic, number in tps:
            by_topic.setdefault(topic, []).append(number)
        rows = tuple(
            m.TopicPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
        body = m.ElectLeadersRequest(
            election_type=_PREFERRED, topic_partitions=rows, timeout=_TIMEOUT
        )
        _check(
            await self._nodes.call("elect_leaders", 2, body, within=15),
            "leaders could not be elected",
        )

    async def configure(self, topic: str, values: Mapping[str, str | None]) -> None:
        """Sets topic configs, or takes them back to the default (None)."""
        m = messages.request("incremental_alter_configs", 1)
        rows = tuple(
            m.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in values.items()
        )
        resource = m.AlterConfigsResource(
            resource_type=_TOPIC_CONFIG, resource_name=topic, configs=rows
        )
        body = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = await self._decided("incremental_alter_configs", 1, body)
        _check(answer.responses[0], f"topic {topic} could not be configured")

    async def make_internal_topics(self) -> None:
        """Lets the coordinators make their topics now, while no shadow is registered that they
        could be placed on."""
        m = messages.request("find_coordinator", 4)
        for kind in (0, 1):
            body = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=("linkflap-shadow",))
            await self._nodes.call("find_coordinator", 4, body)

    async def stable(
        self, address: str, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Last stable offsets as the follower at `address` has worked them out, of the logs that
        end there.

        Without those it refused, and those whose high watermark it does not know yet: a marker
        behind it ends nothing so far.
        """
        ids = {
            name: topic.id
            for name, topic in (await self.picture({topic for topic, _ in ends})).topics.items()
        }
        result = await follower_bounds(self._broker(address), ids, ends)
        return {tp: stable for tp, (mark, stable) in result.items() if mark >= ends[tp]}

    async def producers(self, address: str, tp: TopicPartition) -> list[Message]:
        """Producer states of a partition as the broker at `address` has them, follower or not
        (KIP-664)."""
        m = messages.request("describe_producers", 0)
        topic = m.TopicRequest(name=tp[0], partition_indexes=(tp[1],))
        answer = await self._broker(address).call(
            "describe_producers", 0, m.DescribeProducersRequest(topics=(topic,))
        )
        result = answer.topics[0].partitions[0]
        _check(result, f"the producers of {tp[0]}-{tp[1]} could not be listed")
        return list(result.active_producers)

    async def draw_producer_id(self, address: str, *, within: float = 10.0) -> int:
        """Makes a broker hand out one producer id, to nobody; -1 while it waits for a new block."""
        body = messages.request("init_producer_id", 4).InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=timedelta(seconds=1),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self._broker(address).call("init_producer_id", 4, body, within=within)
        if answer.error_code == Error.coordinator_load_in_progress:
            return -1
        _check(answer, f"{address} gave no producer id")
        return int(answer.producer_id)

    def close(self) -> None:
        self._nodes.close()
        self._controllers.close()
        for connection in self._direct.values():
            connection.close()


async def follower_bounds(
    connection: Connection, ids: Mapping[str, Message], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """High watermark and last stable offset as one follower has them; `ends` are about its log
    ends.

    Asked by a consumer's fetch (KIP-392): ListOffsets of a debugging replica takes no isolation and
    gives the log end.
    """
    m = messages.request("fetch", 17)
    by_topic: dict[str, list[Message]] = {}
    for (topic, number), end in ends.items():
        if topic not in ids:
            continue
        row = m.FetchPartition(partition=number, fetch_offset=end, partition_max_bytes=1)
        by_topic.setdefault(topic, []).append(row)
    topics = tuple(
        m.FetchTopic(topic_id=ids[topic], partitions=tuple(rows))
        for topic, rows in by_topic.items()
    )
    body = m.FetchRequest(
        max_wait=timedelta(), min_bytes=0, max_bytes=1, topics=topics, forgotten_topics_data=()
    )
    answer = await connection.call("fetch", 17, body)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        (names[topic.topic_id], int(row.partition_index)): (
            int(row.high_watermark),
            int(row.last_stable_offset),
        )
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code == Error.none
    }


def _check(answer: Message, what: str) -> None:
    if answer.error_code != Error.none:
        detail = getattr(answer, "error_message", None) or answer.error_code.name
        raise Refused(f"{what}: {detail}", answer.error_code)
