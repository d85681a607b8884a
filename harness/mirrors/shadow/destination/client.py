"""The shadow's requests to the destination's real brokers and controllers: metadata, topics,
reassignments, configs, producers, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.security import beside
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages, requests
from linkflap.harness.wire.connection import AnyOf, Connection, Connections
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.requests import PREFERRED, Topic, by_topic, new_producer, topics_in


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """A cluster's metadata: unfenced brokers (id -> address on the listener that was asked), and
    topics."""

    brokers: Mapping[int, str]
    topics: Mapping[str, Topic]


async def picture(nodes: AnyOf, topics: Iterable[str] | None = None) -> MetadataSnapshot:
    """Asks any of the nodes for these topics, or for all. Raises Unanswered."""
    answer = await nodes.call("metadata", 12, requests.metadata(topics))
    entered_as = nodes.addresses[0]
    return MetadataSnapshot(
        brokers={int(b.node_id): beside(entered_as, f"{b.host}:{b.port}") for b in answer.brokers},
        topics=topics_in(answer),
    )


_TIMEOUT: Final = timedelta(seconds=10)
_CONTROLLER_SECONDS: Final = 5.0
_TOPIC_CONFIG: Final = 2
_SET, _DELETE = 0, 1


class Refused(EnvironmentFailure):
    """The destination refused a request; `code` is its error code."""

    def __init__(self, sentence: str, code: Message) -> None:
        super().__init__(sentence)
        self.code = code


class Destination:
    """The destination, through any of its real brokers. Requests that a failover depends on go
    directly to the active controller (KIP-919).

    A broker would forward them over its own channel, which only gives up on a controller that hangs
    after 30 s. Without `controllers`, brokers get all requests.
    """

    def __init__(self, brokers: Sequence[str], controllers: Sequence[str] = ()) -> None:
        self._nodes = AnyOf(brokers)
        self._controllers = AnyOf(controllers or brokers)
        self._direct = Connections()

    async def picture(self, topics: Iterable[str] | None = None) -> MetadataSnapshot:
        return await picture(self._nodes, topics)

    @property
    def nodes(self) -> AnyOf:
        """The real brokers of the destination, for requests that any broker answers."""
        return self._nodes

    async def create(
        self, name: str, partitions: int, leader: int, configs: Mapping[str, str]
    ) -> str:
        """Creates a topic with all partitions on `leader` alone. Returns its id. Raises Unanswered,
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
        _check(answer.topics[0], f"topic {name} could not be created")
        return str(answer.topics[0].topic_id)

    async def grow(self, name: str, have: int, added: Sequence[Sequence[int]]) -> None:
        """Adds partitions with these replicas to a topic that has `have` partitions."""
        m = messages.request("create_partitions", 3)
        new = tuple(m.CreatePartitionsAssignment(broker_ids=tuple(replicas)) for replicas in added)
        topic = m.CreatePartitionsTopic(name=name, count=have + len(added), assignments=new)
        body = m.CreatePartitionsRequest(topics=(topic,), timeout=_TIMEOUT, validate_only=False)
        answer = await self._nodes.call("create_partitions", 3, body, within=15)
        _check(answer.results[0], f"partitions of {name} could not be created")

    async def reassign(self, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Requests these replicas. Returns once the controller has accepted the reassignment.
        Raises EnvironmentFailure when it refuses."""
        body = requests.reassignment(wanted)
        answer = await self._controllers.call_controller(
            "alter_partition_reassignments", 0, body, within=_CONTROLLER_SECONDS
        )
        _check(answer, "partitions could not be reassigned")
        for topic in answer.responses:
            for partition in topic.partitions:
                _check(
                    partition, f"{topic.name}-{partition.partition_index} could not be reassigned"
                )

    async def elect_preferred(self, tps: Iterable[TopicPartition]) -> None:
        """Requests preferred leader elections (KIP-460). Does not wait: the next metadata shows
        which were held."""
        body = requests.election(tps, PREFERRED)
        _check(
            await self._nodes.call("elect_leaders", 2, body, within=15),
            "leaders could not be elected",
        )

    async def configure(self, topic: str, values: Mapping[str, str | None]) -> None:
        """Sets topic configs; None resets one to its default."""
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
        answer = await self._controllers.call_controller(
            "incremental_alter_configs", 1, body, within=_CONTROLLER_SECONDS
        )
        _check(answer.responses[0], f"topic {topic} could not be configured")

    async def make_internal_topics(self) -> None:
        """Makes the coordinators create their topics now, while no shadow is registered that could
        get a replica of them."""
        m = messages.request("find_coordinator", 4)
        for kind in (0, 1):
            body = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=("linkflap-shadow",))
            await self._nodes.call("find_coordinator", 4, body)

    async def stable(
        self, address: str, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Last stable offsets of the logs that end at `ends`, as the follower at `address` computed
        them.

        Leaves out partitions that it refuses, and those whose high watermark it does not know yet:
        a marker above its high watermark does not advance its last stable offset yet.
        """
        ids = {
            name: topic.id
            for name, topic in (await self.picture({topic for topic, _ in ends})).topics.items()
        }
        result = await follower_bounds(self._direct.at(address), ids, ends)
        return {tp: stable for tp, (mark, stable) in result.items() if mark >= ends[tp]}

    async def producers(self, address: str, tp: TopicPartition) -> list[Message]:
        """Producer states of a partition on the broker at `address`, leader or follower
        (DescribeProducers, KIP-664)."""
        m = messages.request("describe_producers", 0)
        topic = m.TopicRequest(name=tp[0], partition_indexes=(tp[1],))
        answer = await self._direct.at(address).call(
            "describe_producers", 0, m.DescribeProducersRequest(topics=(topic,))
        )
        result = answer.topics[0].partitions[0]
        _check(result, f"the producers of {tp[0]}-{tp[1]} could not be listed")
        return list(result.active_producers)

    async def draw_producer_id(self, address: str, *, within: float = 10.0) -> int:
        """Draws one producer id from a broker, for no producer. -1 while the broker waits for a new
        block."""
        answer = await self._direct.at(address).call(
            "init_producer_id", 4, new_producer(), within=within
        )
        if answer.error_code == Error.coordinator_load_in_progress:
            return -1
        _check(answer, f"{address} returned no producer id")
        return int(answer.producer_id)

    def close(self) -> None:
        self._nodes.close()
        self._controllers.close()
        self._direct.close()


async def follower_bounds(
    connection: Connection, ids: Mapping[str, Message], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> (high watermark, last stable offset), as one follower has them; `ends` are its
    log ends.

    Uses a consumer's fetch (KIP-392), because ListOffsets from a debugging replica ignores the
    isolation level and returns the log end.
    """
    m = messages.request("fetch", 17)
    topics = tuple(
        m.FetchTopic(
            topic_id=ids[topic],
            partitions=tuple(
                m.FetchPartition(
                    partition=number, fetch_offset=ends[topic, number], partition_max_bytes=1
                )
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(ends).items()
        if topic in ids
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
