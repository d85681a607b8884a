"""KAFKA-20734 with an abort: the ABORT marker is dropped, and the next commit of the same producer
makes the aborted records visible."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.kafka.kafka_20734 import CAUSE, RECORDS, completed, leaderless
from linkflap.chaos.cases.tools.logs import markers, table
from linkflap.harness.model.wait import until


def claim(bench: Bench) -> Observation:
    return _played(bench, abort_while_down=True)


def control(bench: Bench) -> Observation:
    """The same kill and restart; the abort is requested after it."""
    return _played(bench, abort_while_down=False)


def _played(bench: Bench, *, abort_while_down: bool) -> Observation:
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


CASE: Final = Case(
    name="KAFKA-20734-abort",
    title=(
        "An abort loses its marker while a partition has no leader, and the next commit makes the "
        "aborted records visible"
    ),
    kind="defect",
    claim_text=(
        "KAFKA-20734 also drops ABORT markers. A transaction coordinator that finds no leader "
        "for a partition treats it as deleted and completes the transaction. When the leader is "
        "back, the transaction is still open there. The next commit of the same producer commits "
        "the aborted records with its own: read_committed consumers get them."
    ),
    sources=(
        "KAFKA-20734 (Apache JIRA): the marker is not written",
        (
            "found by a generated suite on released 4.3.1, where a broker was killed while a "
            "transactional id was fenced (KIP-98, atomicity)"
        ),
        CAUSE,
    ),
    expected=(
        Expected(shows=True, since="4.3.0", until="4.4.0", basis="runs"),
        Expected(shows=False, until="4.2.1", basis="runs"),
    ),
    schedule=(
        "1. three nodes; a topic with one replica, on a broker that is not the coordinator; 2. a "
        "transaction writes 10 records, flush; 3. kill -9 of that broker; 4. metadata says leader "
        "-1; 5. abort; 6. the broker starts; 7. one more transaction of one record, committed"
    ),
    reproduced=(
        "the coordinator reports the transaction as complete, the log has no ABORT marker, LSO < "
        "high watermark, and after the next commit a read_committed consumer gets the 10 aborted "
        "records and the committed one"
    ),
    control_text=(
        "the same kill and start, and the abort once the partition has a leader again: ABORT "
        "marker, one record read"
    ),
    refuted="an ABORT marker at the end of the log once the leader is back, in every run",
    topology=THREE,
    claim=claim,
    control=control,
    runs=3,
    clients=("librdkafka", "java"),
    protocols=("", "V1"),
)
