"""KIP-447: a transaction's offsets are refused if they come from a member of an older
generation."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet


@case(
    "KIP-447-stale-member", ONE, claim={"with_generation": True}, control={"with_generation": False}
)
def group_fencing(bench: Bench, *, with_generation: bool) -> Observation:
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
