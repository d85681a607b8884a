"""What MirrorMaker 2 copies: twice, not at all, aborted records, topics whose names meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from linkflap.chaos.cases.bench import PAIR, WITHIN, Bench, transaction, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.protocols import Mirror, Service
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import pause

POLICIES = "org.apache.kafka.connect.mirror"
_FILE = "mm2.properties"


def worker(
    bench: Bench, topics: str, *, both: bool = False, settings: Mapping[str, str] | None = None
) -> Service:
    """A worker that copies `topics` from A to B, or both ways; started, and stopped with the
    run."""
    made: dict[str, str] = {}
    for source, destination in ((("B", "A"),) if both else ()) + (("A", "B"),):
        made |= mm2_config.properties(
            mm2_config.options({"groups": ""}),
            LinkSpec(source=source, destination=destination),
            source=bench.cluster(source).inner_bootstrap,
            destination=bench.cluster(destination).inner_bootstrap,
            topics=topics,
            replicas=1,
            port=0,
        )
    if both:
        made["B->A.enabled"] = "true"
    started = bench.deployment.service(
        bench.name("mm2"),
        main=mm2_config.MAIN,
        kafka=bench.cluster("B").kafka,
        files={_FILE: mm2_config.render(made | dict(settings or {}))},
        arguments=[_FILE] if both else [_FILE, "--clusters", "B"],
    )
    started.start()
    bench.closing(_Stopped(started))
    return started


class _Stopped:
    """Ends a worker as a run closes its clients."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def close(self) -> None:
        self._service.kill()


BEFORE, DURING = 10, 20


@case(
    "KIP-618-exactly-once",
    PAIR,
    claim={"delivery": "exactly-once"},
    control={"delivery": "at-least-once"},
)
def exactly_once(bench: Bench, delivery: str) -> Observation:
    """Kills the worker as soon as the copies are on the target, before Connect has written its
    source offsets."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("mm2", delivery=delivery)
    mirror.start()
    bench.led(topic, cluster="B")

    def read() -> list[str]:
        return bench.texts(topic, cluster="B")

    wait_for("B to have all", lambda: len(read()) == BEFORE, within=2 * WITHIN, every=0.2)
    bench.drained(mirror)
    high = bench.bound("high", topic, cluster="B")
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    wait_for(
        "B to have the copies",
        lambda: bench.bound("high", topic, cluster="B") >= high + DURING,
        every=0.01,
    )
    mirror.crash()
    mirror.restart()
    bench.write(topic, [LAST])
    wait_for(
        "the last record to be mirrored",
        lambda: LAST.decode() in read(),
        within=2 * WITHIN,
        every=0.3,
    )
    found = Counter(read())
    mirror.stop()
    twice = sorted(value for value, count in found.items() if count > 1)
    missing = [n for n in range(DURING) if f"during {n}" not in found]
    facts = {
        "read_committed_on_B": sum(found.values()),
        "more_than_once": twice[:5],
        "missing_on_B": missing,
    }
    return Observation(shown=bool(twice or missing), facts=facts)


@case(
    "MM2-isolation",
    PAIR,
    claim={"isolation": "read_uncommitted"},
    control={"isolation": "read_committed"},
)
def isolation(bench: Bench, isolation: str) -> Observation:
    """With its default isolation level, MirrorMaker 2 turns the source's aborted records into plain
    ones."""
    topic = bench.topic()
    mirror = bench.mirror("mm2", isolation=isolation)
    mirror.start()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False), (b"last", True)):
        transaction(writer, topic, value, commit=commit)
    there = bench.texts(topic)
    bench.led(topic, cluster="B")
    read: list[str] = []

    def arrived() -> bool:
        nonlocal read
        read = bench.texts(topic, cluster="B")
        return "last" in read

    wait_for(
        "the last record to be mirrored", arrived, within=2 * WITHIN, every=0.2, state=lambda: read
    )
    mirror.stop()
    return Observation(
        shown="aborted" in read, facts={"A_read_committed": there, "B_read_committed": read}
    )


RECORDS, ROUNDS = 10, 5
QUIET = 8.0
"""Seconds within which no record may come back."""


def _high(bench: Bench, topic: str, cluster: str) -> int:
    """The high watermark; 0 while there is no such topic."""
    known = bench.admin(cluster).list_topics(timeout=10).topics
    return bench.bound("high", topic, cluster=cluster) if topic in known else 0


@case("MM2-loop", PAIR, claim={"identity": True}, control={"identity": False})
def round(bench: Bench, *, identity: bool) -> Observation:
    topic = bench.topic()
    bench.write(topic, [b"%d" % number for number in range(RECORDS)])
    policy = "IdentityReplicationPolicy" if identity else "DefaultReplicationPolicy"
    service = worker(
        bench, topic, both=True, settings={"replication.policy.class": f"{POLICIES}.{policy}"}
    )
    copy = topic if identity else f"A.{topic}"
    what = f"{copy} on B"
    wait_for(
        what,
        lambda: _high(bench, copy, "B") >= RECORDS,
        within=3 * WITHIN,
        every=0.5,
        state=lambda: service.alive,
    )
    if identity:
        wait_for(
            "the records to come round",
            lambda: _high(bench, topic, "A") >= ROUNDS * RECORDS,
            within=2 * WITHIN,
            every=0.3,
        )
    else:
        pause(QUIET, lambda: False)
    on_a, on_b = _high(bench, topic, "A"), _high(bench, copy, "B")
    service.kill()
    facts = {"written": RECORDS, "on_A": on_a, "on_B": on_b, "policy": policy}
    return Observation(shown=on_a > RECORDS, facts=facts)


@case("MM2-name-clash", PAIR, claim={"clash": True}, control={"clash": False})
def met(bench: Bench, *, clash: bool) -> Observation:
    """B has a topic of its own with the name that the copy of A's topic gets, or nearly that
    name."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * RECORDS)
    own = f"A.{topic}" if clash else f"A-{topic}"
    admin = bench.admin("B")  # its answers end with it
    admin.create_topics([NewTopic(own, 1, 1)])[own].result(WITHIN)
    bench.led(own, cluster="B")
    bench.write(own, [b"of B"] * RECORDS, cluster="B")
    service = worker(
        bench, topic, settings={"replication.policy.class": f"{POLICIES}.DefaultReplicationPolicy"}
    )
    copy = f"A.{topic}"
    wanted = 2 * RECORDS if clash else RECORDS
    wait_for(
        f"{copy} on B", lambda: _high(bench, copy, "B") >= wanted, within=3 * WITHIN, every=0.5
    )
    bench.write(own, [b"of B"] * RECORDS, cluster="B")
    read = bench.texts(own, cluster="B")
    alive = service.alive
    service.kill()
    facts = {
        "own_topic": own,
        "records_of_A_in_it": read.count("of A"),
        "of_B": read.count("of B"),
        "worker_alive": alive,
    }
    return Observation(shown="of A" in read and alive, facts=facts)


LAST = b"last"


def _started(bench: Bench) -> tuple[str, Mirror]:
    """A topic with mirrored records, whose source offsets Connect has written."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("mm2")
    mirror.start()
    bench.led(topic, cluster="B")
    bench.ends_at(BEFORE, topic)
    bench.drained(mirror)
    return topic, mirror


def _after(bench: Bench, topic: str, mirror: Mirror, *, patience: float = 2 * WITHIN) -> list[str]:
    """The contents of B once the worker runs again and a last record has arrived."""
    mirror.restart()
    bench.write(topic, [LAST])
    read: list[str] = []

    def arrived() -> bool:
        nonlocal read
        read = bench.texts(topic, "read_uncommitted", cluster="B")
        return LAST.decode() in read

    wait_for(
        "the last record to be mirrored", arrived, within=patience, every=0.3, state=lambda: read
    )
    return read


@case("MM2-retention", PAIR, claim={"delete": True}, control={"delete": False})
def overtaken(bench: Bench, *, delete: bool) -> Observation:
    """During the outage, the source deletes records that are not mirrored yet. DeleteRecords does
    at once what retention does over time."""
    topic, mirror = _started(bench)
    mirror.crash()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    if delete:
        admin = bench.admin()
        admin.delete_records([TopicPartition(topic, 0, BEFORE + DURING - 5)])
        wait_for(
            "A's log start to move", lambda: bench.bound("start", topic) == BEFORE + DURING - 5
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
def made_anew(bench: Bench, *, anew: bool) -> Observation:
    """During the outage, the topic is deleted and created again, and gets more records than the old
    one had."""
    topic, mirror = _started(bench)
    mirror.crash()
    if anew:
        admin = bench.admin()
        admin.delete_topics([topic])[topic].result(WITHIN)
        wait_for(
            f"{topic} to be gone",
            lambda: topic not in bench.admin().list_topics(timeout=10).topics,
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
def repeated(bench: Bench, *, crash: bool) -> Observation:
    """Ends the worker when the target has its records, either before Connect has written its source
    offsets, or gracefully."""
    topic, mirror = _started(bench)
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    wait_for(
        "B to have all",
        lambda: bench.bound("high", topic, cluster="B") >= BEFORE + DURING,
        every=0.01,
    )
    mirror.crash() if crash else mirror.stop()
    read = _after(bench, topic, mirror)
    twice = sorted(value for value, count in Counter(read).items() if count > 1)
    mirror.stop()
    return Observation(
        shown=bool(twice), facts={"records_on_B": len(read), "more_than_once": twice}
    )
