"""KAFKA-17877: a WriteTxnMarkers response omits a producer whose group coordinator has moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.messages import Message

OFFSETS = "__consumer_offsets"
PRODUCERS, ROUNDS, OFFICE = 3, 10, 0


def _marked(bench: Bench, *, moved: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-17877",
    title="The answer to WriteTxnMarkers omits producers when a group's coordinator has moved",
    kind="defect",
    claim_text=(
        "With the new group coordinator, a broker miscounts its outstanding markers when one of "
        "them is for a group that it no longer coordinates. It answers before all results are "
        "there, and the transaction coordinator fails on that with an IllegalStateException."
    ),
    sources=("KAFKA-17877 (Apache JIRA): fixed in 4.0.0",),
    expected=(
        Expected(shows=True, since="3.8.0", until="3.9.2"),
        Expected(shows=False, since="4.0.0"),
    ),
    schedule=(
        f"1. three nodes, the group coordinator of KIP-848; 2. WriteTxnMarkers of {PRODUCERS} "
        f"producers for two data partitions and a partition of {OFFSETS} that another broker "
        f"leads; {ROUNDS} times"
    ),
    reproduced="an answer omits a producer or a requested partition, or there is no answer",
    control_text=(
        "the same with a partition of __consumer_offsets that the broker leads: every result is "
        "there"
    ),
    refuted="complete answers",
    tried=(
        "on 3.9.0 with the coordinator of KIP-848: for markers of three producers for a "
        "partition of __consumer_offsets that another broker leads, each result is "
        "NOT_LEADER_OR_FOLLOWER; none is missing"
    ),
    topology=nodes(3, {"group.coordinator.rebalance.protocols": "classic,consumer"}),
    claim=partial(_marked, moved=True),
    control=partial(_marked, moved=False),
    clients=("wire",),
    oldest="3.8.0",
)
