"""A synced group offset beyond the destination's log end: the group skips what is written there
next (VK12)."""

from __future__ import annotations

from confluent_kafka import Consumer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

AHEAD = 10


@case("VK12-commit-beyond-the-end", ONE, claim={"clamped": False}, control={"clamped": True})
def commit_beyond_end(bench: Bench, *, clamped: bool) -> Observation:
    """The data are 10 records behind the synced offset; the group comes back while the application
    writes on."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"mirrored"] * 5)
    end = bench.bound("high", topic)
    asked = bench.ask(bench.coordinator(group, 0))
    committed = end if clamped else end + AHEAD
    error = asked.commit_offset(group, (topic, 0), committed)
    bench.write(topic, [b"after the failover"] * AHEAD)
    read = _read_on(bench, topic, group, end + AHEAD)
    skipped = [offset for offset in range(end, end + AHEAD) if offset not in read]
    facts = {
        "log_end_at_failover": end,
        "committed": committed,
        "commit": error,
        "read": read,
        "skipped": skipped,
    }
    return Observation(shown=error == "none" and bool(skipped), facts=facts)


def _read_on(bench: Bench, topic: str, group: str, end: int) -> list[int]:
    """The offsets that the group gets before its position is the log's end; one more record shows
    that it reads."""
    settings = {
        "group.id": group,
        "auto.offset.reset": "latest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(quiet(bench.bootstrap()) | settings)
    read: list[int] = []
    written = False
    try:
        consumer.subscribe([topic])

        def read_up() -> bool:
            nonlocal written
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    read.append(message.offset() or 0)
                elif not written:
                    bench.write(topic, [b"last"])
                    written = True
            return bool(read) and read[-1] >= end

        until(
            read_up,
            within=WITHIN,
            what=f"group {group} to read the last record",
            state=lambda: read,
        )
    finally:
        consumer.close()
    return read
