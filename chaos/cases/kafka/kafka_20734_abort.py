"""KAFKA-20734 with an abort: the ABORT marker is dropped, and the next commit of the same producer
makes the aborted records visible."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.kafka.kafka_20734 import RECORDS, completed, leaderless
from linkflap.chaos.cases.tools.logs import markers, table
from linkflap.harness.model.wait import until


@case(
    "KAFKA-20734-abort",
    THREE,
    claim={"abort_while_down": True},
    control={"abort_while_down": False},
)
def kafka_20734_abort(bench: Bench, *, abort_while_down: bool) -> Observation:
    """KAFKA-20734 with an abort: the ABORT marker is dropped, and the next commit of the same
    producer makes the aborted records visible."""
    made = leaderless(bench)
    producer, coordinator, home, topic = made.producer, made.coordinator, made.home, made.topic
    if not abort_while_down:
        home.start()
        bench.led(topic, by=coordinator)
    producer.abort()
    if abort_while_down:
        home.start()
        bench.led(topic, by=coordinator)
    state = completed(bench, bench.ask(coordinator))
    before = markers(bench.log(topic, broker=home.id))
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    producer.begin()
    producer.send(topic, b"committed")
    producer.flush()
    producer.commit()
    until(
        lambda: bench.bound("stable", topic) == bench.bound("high", topic) > high,
        within=WITHIN,
        what="the LSO to reach the end of the log",
    )
    read = [value for _, value in bench.read(topic)]
    facts = {
        "state_after": state,
        "markers_after_abort": [one.words for one in before],
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed_after_the_next_commit": len(read),
        "aborted_records_read": sum(value.startswith(b"first") for value in read),
        "log": table(bench.log(topic, broker=home.id)),
    }
    return Observation(
        shown=not before and stable < high and len(read) == RECORDS + 1,
        facts=facts,
    )
