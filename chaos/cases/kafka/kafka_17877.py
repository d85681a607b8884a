"""KAFKA-17877: a WriteTxnMarkers response omits a producer whose group coordinator has moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.messages import Message

OFFSETS = "__consumer_offsets"
PRODUCERS, ROUNDS, OFFICE = 3, 10, 0


@case(
    "KAFKA-17877",
    nodes(3, {"group.coordinator.rebalance.protocols": "classic,consumer"}),
    claim={"moved": True},
    control={"moved": False},
)
def kafka_17877(bench: Bench, *, moved: bool) -> Observation:
    """Sends markers of several transactions, each for a data partition and a partition of
    __consumer_offsets. With `moved`, the broker does not coordinate that group."""
    bench.coordinator(bench.name("group"), 0)  # creates __consumer_offsets
    producers = [
        WireTransactional(bench, f"writer{number}").producer for number in range(PRODUCERS)
    ]
    coordinator = bench.ask(bench.up()).leadership(OFFSETS)[OFFICE].leader
    home = next(
        broker for broker in bench.cluster().brokers.values() if (broker.id != coordinator) == moved
    )
    topic = bench.topic(replicas=[home.id], partitions=2)
    asked, request = bench.ask(home), _request(producers, topic)
    missing: list[str] = []
    errors: set[str] = set()
    for _ in range(ROUNDS):
        try:
            answer = asked.call("write_txn_markers", 1, request)
        except Unanswered as error:
            missing.append(f"no answer: {error}")
            break
        errors |= {
            str(p.error_code.name)
            for one in answer.markers
            for t in one.topics
            for p in t.partitions
        }
        missing += _left_out(answer, producers, {(topic, 0), (topic, 1), (OFFSETS, OFFICE)})
    return Observation(
        shown=bool(missing),
        facts={"rounds": ROUNDS, "left_out": missing[:5], "errors": sorted(errors)},
    )


def _request(producers: Sequence[ProducerIdentity], topic: str) -> Message:
    m = messages.request("write_txn_markers", 1)
    marked = tuple(
        m.WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            coordinator_epoch=0,
            topics=(
                m.WritableTxnMarkerTopic(name=topic, partition_indexes=(0, 1)),
                m.WritableTxnMarkerTopic(name=OFFSETS, partition_indexes=(OFFICE,)),
            ),
        )
        for producer in producers
    )
    return m.WriteTxnMarkersRequest(markers=marked)


def _left_out(
    answer: Message, producers: Sequence[ProducerIdentity], asked: set[TopicPartition]
) -> Iterator[str]:
    """Producer -> the partitions without a result in a response."""
    for producer in producers:
        rows = [one for one in answer.markers if one.producer_id == producer.id]
        found = {
            (t.name, int(p.partition_index))
            for one in rows
            for t in one.topics
            for p in t.partitions
        }
        if absent := asked - found:
            yield f"producer {producer.id}: {sorted(absent)}"
