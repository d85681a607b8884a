"""KIP-447: a transaction's offsets are refused if they come from a member of an older
generation."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet


def _committed(bench: Bench, *, with_generation: bool) -> Observation:
    """A relay that lost its partitions in a rebalance commits the offsets that it had read, with or
    without its generation."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"input"] * 5)
    coordinator = bench.ask(bench.coordinator(group, 0))
    consumer = Consumer(
        quiet(bench.bootstrap())
        | {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    bench.closing(consumer)
    consumer.subscribe([topic])
    until(
        lambda: any(m.error() is None for m in consumer.consume(10, 0.3)),
        within=WITHIN,
        what="the current member to read",
    )
    writer = WireTransactional(bench)
    stale = {"generation": 0, "member": "a-member-of-before"} if with_generation else {}
    answer = send_offsets(coordinator, writer, group, (topic, 0), 5, **stale)  # type: ignore[arg-type]
    writer.end(commit=True)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    facts = {"txn_offset_commit": answer, "committed": found.offset}
    return Observation(shown=found.offset == 5, facts=facts)


CASE = Case(
    name="KIP-447-stale-member",
    title="A member that has lost its partitions cannot commit their offsets in a transaction",
    kind="guarantee",
    claim_text=(
        "Anomaly: a relay that was replaced in a rebalance commits its offsets in a transaction. "
        "Its successor then reads records again, or skips some, which breaks exactly once."
    ),
    sources=("KIP-447, TxnOffsetCommit v3: generation and member id",),
    expected=(Expected(shows=False, basis="runs"),),
    schedule=(
        "1. a group has a member; 2. another producer sends offsets of an older member in a "
        "transaction and commits it"
    ),
    reproduced="the group's committed offset is the stale member's",
    control_text="TxnOffsetCommit without generation, as before KIP-447: the offset is committed",
    refuted="a stale member's offset is committed",
    topology=ONE,
    claim=lambda bench: _committed(bench, with_generation=True),
    control=lambda bench: _committed(bench, with_generation=False),
    control_shows=True,
    clients=("wire",),
)
