"""KIP-932: a share group reads aborted and open records by default (KAFKA-16729)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import RawJavaConsumer
from linkflap.harness.model.wait import until

LAST = "last"


def _shared(bench: Bench, *, read_committed: bool) -> Observation:
    topic = bench.topic()
    group = bench.name("share")
    asked = bench.ask(bench.up())
    asked.group_setting(group, "share.auto.offset.reset", "earliest")
    if read_committed:
        asked.group_setting(group, "share.isolation.level", "read_committed")
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False), (LAST.encode(), True)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        writer.commit() if commit else writer.abort()
    consumer = RawJavaConsumer(
        bench.java(), bench.bootstrap(), group, {}, name="KafkaShareConsumer"
    )
    bench.closing(consumer)
    consumer.subscribe(topic)
    read: list[str] = []

    def to_the_last() -> bool:
        read.extend(value.decode() for _, value in consumer.poll(0.5))
        return LAST in read

    until(to_the_last, within=WITHIN, what="the share group to read to the end", state=lambda: read)
    return Observation(shown="aborted" in read, facts={"read": read})


CASE = Case(
    name="KIP-932-isolation",
    title="A share group gets aborted records, unless share.isolation.level is set",
    kind="limit",
    claim_text=(
        "The isolation level of a share group is a config of the group, not of its consumers, "
        "and is read_uncommitted by default."
    ),
    sources=("KIP-932, share.isolation.level", "KAFKA-16729"),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        "1. one record is committed, one aborted, one committed; 2. a share group with default "
        "configs reads"
    ),
    reproduced="the share consumer gets the aborted record",
    control_text="share.isolation.level=read_committed: it gets only the committed records",
    refuted="no aborted record with default configs",
    topology=ONE,
    claim=lambda bench: _shared(bench, read_committed=False),
    control=lambda bench: _shared(bench, read_committed=True),
    clients=("java",),
    oldest="4.2.0",
)
