"""Members of groups with an older generation or epoch, and locks of share groups (KIP-447,
KIP-848, KIP-932)."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, TopicPartition

from linkflap.chaos.cases.bench import ONE, Bench, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools.clients import JOIN, RawJavaConsumer, heartbeat
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets
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
    wait_for(
        "the current member to read",
        lambda: any(m.error() is None for m in consumer.consume(10, 0.3)),
    )
    writer = WireTransactional(bench)
    stale = {"generation": 0, "member": "a-member-of-before"} if with_generation else {}
    answer = send_offsets(coordinator, writer, group, (topic, 0), 5, **stale)  # type: ignore[arg-type]
    writer.end(commit=True)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    facts = {"txn_offset_commit": answer, "committed": found.offset}
    return Observation(shown=found.offset == 5, facts=facts)


@case("KIP-848-stale-member", ONE, claim={"behind": True}, control={"behind": False})
def member_epochs(bench: Bench, *, behind: bool) -> Observation:
    """KIP-848: the broker refuses the offsets of a member with an older epoch."""
    topic = bench.topic()
    bench.write(topic, [b"record"] * 5)
    group, member = bench.name("group"), str(uuid.uuid4())
    asked = bench.ask(bench.coordinator(group, 0))
    epoch = heartbeat(asked, group, member, JOIN, topic)
    answer = asked.commit_offset(
        group, (topic, 0), 5, member=member, member_epoch=epoch - 1 if behind else epoch
    )
    facts = {"member_epoch": epoch, "commit_with": epoch - 1 if behind else epoch, "answer": answer}
    return Observation(shown=answer == "none", facts=facts)


WATCHED = 4.0
"""Seconds for which the second member polls; an acquisition lock lasts 30 s."""


@case("KIP-932-acquired", ONE, claim={"one_group": True}, control={"one_group": False})
def share_locks(bench: Bench, *, one_group: bool) -> Observation:
    """KIP-932: a record that one member of a share group has acquired is delivered to no other
    member until its lock expires."""
    topic = bench.topic()
    groups = [bench.name("share"), bench.name("share" if one_group else "other")]
    asked = bench.ask(bench.up())
    for group in dict.fromkeys(groups):
        asked.group_setting(group, "share.auto.offset.reset", "earliest")
    bench.write(topic, [b"%d" % n for n in range(5)])
    members = [
        RawJavaConsumer(bench.java(), bench.bootstrap(), group, {}, name="KafkaShareConsumer")
        for group in groups
    ]
    for member in members:
        bench.closing(member)
        member.subscribe(topic)
    first: list[int] = []

    def acquired() -> bool:
        first.extend(offset for offset, _ in members[0].poll(0.5))
        return bool(first)

    wait_for("the first member to acquire", acquired)
    second: list[int] = []
    end = time.monotonic() + WATCHED

    def polled() -> bool:
        second.extend(offset for offset, _ in members[1].poll(0.3))
        return bool(second) or (one_group and time.monotonic() > end)

    wait_for("the second member to have polled", polled)
    both = sorted(set(first) & set(second))
    return Observation(shown=bool(both), facts={"first": first, "second": second})
