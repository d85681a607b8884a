"""What happens to MirrorMaker 2 during an outage, and what it reports afterwards: retention,
recreated topics, duplicates."""

from __future__ import annotations

from collections import Counter
from functools import partial

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.protocols import Mirror
from linkflap.harness.model.wait import until

BEFORE, DURING = 10, 20
LAST = b"last"


def _started(bench: Bench) -> tuple[str, Mirror]:
    """A topic with mirrored records, whose source offsets Connect has written."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("mm2")
    mirror.start()
    bench.led(topic, cluster="B")
    until(
        lambda: bench.bound("high", topic, cluster="B") == BEFORE,
        within=2 * WITHIN,
        what="B to have all",
        every=0.2,
    )
    bench.drained(mirror)
    return topic, mirror


def _after(bench: Bench, topic: str, mirror: Mirror, *, patience: float = 2 * WITHIN) -> list[str]:
    """The contents of B once the worker runs again and a last record has arrived."""
    mirror.restart()
    bench.write(topic, [LAST])
    read: list[str] = []

    def arrived() -> bool:
        nonlocal read
        read = [value.decode() for _, value in bench.read(topic, "read_uncommitted", cluster="B")]
        return LAST.decode() in read

    until(
        arrived,
        within=patience,
        what="the last record to be mirrored",
        every=0.3,
        state=lambda: read,
    )
    return read


def _overtaken(bench: Bench, *, delete: bool) -> Observation:
    """During the outage, the source deletes records that are not mirrored yet. DeleteRecords does
    at once what retention does over time."""
    topic, mirror = _started(bench)
    mirror.crash()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    if delete:
        admin = bench.admin()
        admin.delete_records([TopicPartition(topic, 0, BEFORE + DURING - 5)])
        until(
            lambda: bench.bound("start", topic) == BEFORE + DURING - 5,
            within=WITHIN,
            what="A's log start to move",
        )
    read = _after(bench, topic, mirror)
    bench.drained(mirror)
    missing = [n for n in range(DURING) if f"during {n}" not in read]
    facts = {
        "missing_on_B": missing,
        "worker_alive": mirror.alive,
        "lag_of_the_mirror": mirror.lag(),
    }
    mirror.stop()
    return Observation(
        shown=bool(missing) and facts["worker_alive"] is True and facts["lag_of_the_mirror"] == 0,
        facts=facts,
    )


def _made_anew(bench: Bench, *, anew: bool) -> Observation:
    """During the outage, the topic is deleted and created again, and gets more records than the old
    one had."""
    topic, mirror = _started(bench)
    mirror.crash()
    if anew:
        admin = bench.admin()
        admin.delete_topics([topic])[topic].result(WITHIN)
        until(
            lambda: topic not in bench.admin().list_topics(timeout=10).topics,
            within=WITHIN,
            what=f"{topic} to be gone",
            every=0.1,
        )
        bench.topic()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    read = _after(bench, topic, mirror)
    missing = [n for n in range(DURING) if f"during {n}" not in read]
    facts = {"missing_on_B": missing, "worker_alive": mirror.alive}
    mirror.stop()
    return Observation(shown=bool(missing), facts=facts)


def _repeated(bench: Bench, *, crash: bool) -> Observation:
    """Ends the worker when the target has its records, either before Connect has written its source
    offsets, or gracefully."""
    topic, mirror = _started(bench)
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    until(
        lambda: bench.bound("high", topic, cluster="B") >= BEFORE + DURING,
        within=WITHIN,
        what="B to have all",
        every=0.01,
    )
    mirror.crash() if crash else mirror.stop()
    read = _after(bench, topic, mirror)
    twice = sorted(value for value, count in Counter(read).items() if count > 1)
    mirror.stop()
    return Observation(
        shown=bool(twice), facts={"records_on_B": len(read), "more_than_once": twice}
    )


_SOURCES = ("KIP-382; Kafka documentation, Geo-Replication",)

CASES = [
    Case(
        name="MM2-retention",
        title=(
            "Retention that overtakes MirrorMaker 2 during an outage makes a hole in the target "
            "that nothing reports"
        ),
        kind="defect",
        claim_text=(
            "When the offset that MirrorMaker 2 needs is deleted, its consumer resets "
            "(auto.offset.reset=earliest) and continues after the hole. The records are missing "
            "on the target, connector and tasks are RUNNING, and the lag is 0."
        ),
        sources=(*_SOURCES, "facts of the KIP-1279 discussion: AS1, gaps by retention"),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            "1. ten records are mirrored; 2. kill -9 of the worker; 3. 20 records; 4. the log "
            "start passes 15 of them; 5. the worker restarts"
        ),
        reproduced="15 records are missing on the target, the worker runs, and its lag is 0",
        control_text="the same outage without retention: every record arrives",
        refuted="a failed task, or another report of the hole",
        topology=PAIR,
        claim=partial(_overtaken, delete=True),
        control=partial(_overtaken, delete=False),
        clients=("librdkafka",),
        apart=True,
    ),
    Case(
        name="MM2-topic-made-anew",
        title=(
            "MirrorMaker 2 continues in the middle of a topic that was deleted and created again "
            "during an outage"
        ),
        kind="defect",
        claim_text=(
            "Connect's source offsets contain topic and partition, but no topic id. In a topic "
            "that was created again, MirrorMaker 2 skips as many records as it had read of the "
            "old one."
        ),
        sources=(*_SOURCES, "KIP-516: topic ids, which Connect's source offsets do not have"),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            "1. ten records are mirrored; 2. kill -9 of the worker; 3. the topic is deleted and "
            "created again; 4. 20 records; 5. the worker restarts"
        ),
        reproduced="the first records of the new topic are missing on the target",
        control_text="the same outage, but the topic stays: every record arrives",
        refuted="every record of the new topic on the target",
        topology=PAIR,
        claim=partial(_made_anew, anew=True),
        control=partial(_made_anew, anew=False),
        clients=("librdkafka",),
        apart=True,
    ),
    Case(
        name="MM2-repeats",
        title=(
            "A killed worker of MirrorMaker 2 copies the records since its last offset flush again"
        ),
        kind="limit",
        claim_text=(
            "Without exactly-once source support a killed worker's records since its last offset "
            "flush are copied twice."
        ),
        sources=(*_SOURCES, "KIP-618: exactly once for source connectors"),
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            "1. 20 records reach the target; 2. kill -9 of the worker within its flush interval "
            "(1 s); 3. the worker restarts"
        ),
        reproduced="some records are on the target twice",
        control_text="the worker is stopped gracefully instead: no record is there twice",
        refuted="no duplicate in any run",
        topology=PAIR,
        claim=partial(_repeated, crash=True),
        control=partial(_repeated, crash=False),
        clients=("librdkafka",),
        apart=True,
    ),
]
