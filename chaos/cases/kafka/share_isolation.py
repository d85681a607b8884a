"""KIP-932: a share group reads aborted and open records by default (KAFKA-16729)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.java import RawJavaConsumer
from linkflap.harness.model.wait import until

LAST = "last"


@case("KIP-932-isolation", ONE, claim={"read_committed": False}, control={"read_committed": True})
def share_isolation(bench: Bench, *, read_committed: bool) -> Observation:
    """KIP-932: a share group reads aborted and open records by default (KAFKA-16729)."""
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
