"""What happens to MirrorMaker 2 during an outage, and what it reports afterwards: retention,
recreated topics, duplicates."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
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


@case("MM2-retention", PAIR, claim={"delete": True}, control={"delete": False})
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


@case("MM2-topic-made-anew", PAIR, claim={"anew": True}, control={"anew": False})
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


@case("MM2-repeats", PAIR, claim={"crash": True}, control={"crash": False})
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
