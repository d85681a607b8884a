"""MirrorMaker 2 (KIP-382, KIP-545, KIP-618) on released Kafka: the records that it copies, and the
group offsets that it translates."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import (
    PAIR,
    WITHIN,
    Bench,
    happens,
    markers,
    records,
    transaction,
    wait_for,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import JOIN, LEAVE, heartbeat
from linkflap.harness.log.coordinators import PrimitiveReader
from linkflap.harness.log.reference import ReferenceBatch
from linkflap.harness.log.reference import records as records_of
from linkflap.harness.machine.java import properties_file
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.protocols import Mirror, Service
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import pause

_FILE = "mm2.properties"
_POLICY = "replication.policy.class"


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
        files={_FILE: properties_file(made | dict(settings or {}))},
        arguments=[_FILE] if both else [_FILE, "--clusters", "B"],
    )
    started.start()
    bench.at_end(started.kill)
    return started


BEFORE, DURING = 10, 20
LAST = b"last"


def _read_to_last(bench: Bench, topic: str, isolation: Isolation = "read_committed") -> list[str]:
    """The contents of B, once the last record has arrived there."""
    read: list[str] = []

    def arrived() -> bool:
        nonlocal read
        read = bench.texts(topic, isolation, cluster="B")
        return LAST.decode() in read

    what = "the last record to be mirrored"
    wait_for(what, arrived, within=2 * WITHIN, every=0.3, state=lambda: read)
    return read


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
    wait_for(
        "B to have all",
        lambda: len(bench.texts(topic, cluster="B")) == BEFORE,
        within=2 * WITHIN,
        every=0.2,
    )
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
    found = Counter(_read_to_last(bench, topic))
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
    for value, commit in ((b"kept", True), (b"aborted", False), (LAST, True)):
        transaction(writer, topic, value, commit=commit)
    there = bench.texts(topic)
    bench.led(topic, cluster="B")
    read = _read_to_last(bench, topic)
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
def loop(bench: Bench, *, identity: bool) -> Observation:
    topic = bench.topic()
    bench.write(topic, [b"%d" % number for number in range(RECORDS)])
    policy = "IdentityReplicationPolicy" if identity else "DefaultReplicationPolicy"
    service = worker(
        bench,
        topic,
        both=True,
        settings={_POLICY: f"{mm2_config.PACKAGE}.{policy}"},
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
def name_clash(bench: Bench, *, clash: bool) -> Observation:
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
        bench,
        topic,
        settings={_POLICY: f"{mm2_config.PACKAGE}.DefaultReplicationPolicy"},
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


def _after(bench: Bench, topic: str, mirror: Mirror) -> list[str]:
    """The contents of B once the worker runs again and a last record has arrived."""
    mirror.restart()
    bench.write(topic, [LAST])
    return _read_to_last(bench, topic, "read_uncommitted")


@case("MM2-retention", PAIR, claim={"delete": True}, control={"delete": False})
def retention(bench: Bench, *, delete: bool) -> Observation:
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
def topic_made_anew(bench: Bench, *, anew: bool) -> Observation:
    """During the outage, the topic is deleted and created again, and gets more records than the old
    one had."""
    topic, mirror = _started(bench)
    mirror.crash()
    if anew:
        bench.delete_topic(topic)
        bench.topic()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    read = _after(bench, topic, mirror)
    missing = [n for n in range(DURING) if f"during {n}" not in read]
    facts = {"missing_on_B": missing, "worker_alive": mirror.alive}
    mirror.stop()
    return Observation(shown=bool(missing), facts=facts)


@case("MM2-repeats", PAIR, claim={"crash": True}, control={"crash": False})
def repeats(bench: Bench, *, crash: bool) -> Observation:
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


LAG_MAX = 100
"""MirrorMaker's default of offset.lag.max."""
MANY, BEHIND = 1200, 700
TRANSACTIONS = 8
PATIENCE = 20.0


def _on_b(b: wire.Wire, group: str, topic: str, least: int) -> None:
    """Waits until a group has committed at least this offset on B."""
    wait_for(
        f"{group} to have committed {least} or more on B",
        lambda: b.committed(group, (topic, 0)) >= least,
        within=2 * WITHIN,
        every=0.3,
    )


@case("KAFKA-16641", PAIR, claim={"offset": BEHIND}, control={"offset": MANY})
def kafka_16641(bench: Bench, *, offset: int) -> Observation:
    """A group that is behind on A, and its offset on B once it no longer changes."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, MANY, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
        bench.drained(mirror)
    for name, at in ((group, offset), (witness, MANY)):
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), at)
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    _on_b(b, witness, topic, 1)
    happens(
        f"{group} to be near {offset} on B",
        lambda: b.committed(group, (topic, 0)) >= offset - LAG_MAX,
        within=PATIENCE,
        every=0.3,
    )
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": offset,
        "on_B": found,
        "read_again": offset - found,
        "offset.lag.max": LAG_MAX,
    }
    mirror.stop()
    return Observation(shown=0 <= found < offset - LAG_MAX, facts=facts)


@case("KIP-545-no-skip", PAIR, claim={"translated": True}, control={"translated": False})
def no_skip(bench: Bench, *, translated: bool) -> Observation:
    """A's log has markers between its records, B's has none. A group in the middle of A's log fails
    over to B."""
    topic, group = bench.topic(), bench.name("group")
    mirror = bench.mirror("mm2")
    mirror.start()
    writer = bench.transactional()
    for number in range(TRANSACTIONS):
        transaction(writer, topic, b"%d" % number)
    bench.led(topic, cluster="B")

    def arrived() -> bool:
        return len(bench.read(topic, cluster="B")) == TRANSACTIONS

    wait_for("B to have all", arrived, within=2 * WITHIN, every=0.3)
    done = TRANSACTIONS // 2
    offset = bench.read(topic)[done][0]
    bench.ask(bench.coordinator(group, wire.GROUP)).commit_offset(group, (topic, 0), offset)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    if translated:
        _on_b(b, group, topic, 0)
    else:
        b.commit_offset(group, (topic, 0), offset)
    at = b.committed(group, (topic, 0))
    mirror.stop()
    left = [value.decode() for where, value in bench.read(topic, cluster="B") if where >= at]
    skipped = [n for n in range(done, TRANSACTIONS) if str(n) not in left]
    facts = {"committed_on_A": offset, "on_B": at, "read_on_B": left, "skipped": skipped}
    return Observation(shown=bool(skipped), facts=facts)


AT_RESTART = 500


@case("KAFKA-15905", PAIR, claim={"behind": True}, control={"behind": False})
def kafka_15905(bench: Bench, *, behind: bool) -> Observation:
    """MirrorMaker 2 restarts after it has mirrored everything. A group at the log end shows that it
    syncs offsets."""
    topic, group, witness = bench.topic(), bench.name("group"), bench.name("witness")
    mirror = bench.mirror("mm2")
    mirror.start()
    for start in range(0, MANY, 100):
        bench.write(topic, [b"%d" % n for n in range(start, start + 100)])
    bench.drained(mirror)
    mirror.crash()
    wanted = {group: AT_RESTART if behind else MANY, witness: MANY}
    for name, offset in wanted.items():
        bench.ask(bench.coordinator(name, wire.GROUP)).commit_offset(name, (topic, 0), offset)
    mirror.restart()
    b = bench.ask(bench.coordinator(witness, wire.GROUP, "B"))
    _on_b(b, witness, topic, 1)
    happens(
        f"{group} to have an offset on B",
        lambda: b.committed(group, (topic, 0)) >= 1,
        within=PATIENCE,
        every=0.3,
    )
    found = b.committed(group, (topic, 0))
    facts = {
        "committed_on_A": wanted[group],
        "on_B": found,
        "of_the_group_at_the_end_on_B": b.committed(witness, (topic, 0)),
    }
    mirror.stop()
    return Observation(shown=found <= 0, facts=facts)


FEW, OLD = 20, 5
OTHERS = 60
"""Idle groups. Each costs a request between the check of a group's state and the write of its
offsets."""
VISITS = 60
STAYS = 0.4
"""Seconds for which a member is in the group, and then is not. Offsets are synced every second."""


@case("KAFKA-19794", PAIR, claim={"leaves": True}, control={"leaves": False})
def kafka_19794(bench: Bench, *, leaves: bool) -> Observation:
    """The group is at the log end on B, and at a lower offset on A. Its member on B comes and goes,
    or stays."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"%d" % n for n in range(FEW)])
    mirror = bench.mirror("mm2")
    mirror.start()
    bench.drained(mirror)
    a = bench.ask(bench.coordinator(group, wire.GROUP))
    for name in (group, *(f"{group}-{number}" for number in range(OTHERS))):
        a.commit_offset(name, (topic, 0), OLD)
    b = bench.ask(bench.coordinator(group, wire.GROUP, "B"))
    last = f"{group}-{OTHERS - 1}"
    _on_b(b, last, topic, 0)
    rewound: list[int] = []
    member = str(uuid.uuid4())
    for _ in range(VISITS if leaves else VISITS // 3):
        member = str(uuid.uuid4()) if leaves else member
        epoch = heartbeat(b, group, member, JOIN, topic)
        b.commit_offset(group, (topic, 0), FEW, member=member, member_epoch=epoch)
        pause(STAYS, lambda: False)
        if leaves:
            heartbeat(b, group, member, LEAVE, topic)
            pause(STAYS, lambda: False)
        if (found := b.committed(group, (topic, 0))) < FEW:
            rewound.append(found)
            break
    mirror.stop()
    facts = {
        "committed_on_A": OLD,
        "committed_on_B": FEW,
        "rewound_to": rewound,
        "idle_groups": OTHERS,
    }
    return Observation(shown=bool(rewound), facts=facts)


SYNCS: Final = "mm2-offset-syncs.A.internal"
KILLS, BURST = 3, 150
"""A burst is longer than `offset.lag.max` (100), so that each has a sync of its own."""


@case("MM2-offset-syncs", PAIR, claim={"killed": True}, control={"killed": False})
def offset_syncs(bench: Bench, *, killed: bool) -> Observation:
    """Kills the worker while copies on the target are in an open transaction. Compares its offset
    syncs with the target's log."""
    topic = bench.topic()
    mirror = bench.mirror("mm2", delivery="exactly-once")
    mirror.start()
    bench.led(topic, cluster="B")

    def arrived(last: bytes) -> bool:
        return last in {value for _, value in bench.read(topic, cluster="B")}

    for number in range(KILLS):
        high = bench.bound("high", topic, cluster="B")
        bench.write(topic, [b"%d of burst %d" % (n, number) for n in range(BURST)])
        if killed:
            copied = partial(_beyond, bench, topic, high)
            wait_for("a copy on the target", copied, every=0.01)
            mirror.crash()
            mirror.restart()
        last = b"last of burst %d" % number
        bench.write(topic, [last])
        wait_for(
            "the last record to be mirrored", partial(arrived, last), within=2 * WITHIN, every=0.3
        )
    mirror.stop()
    log = bench.log(topic, cluster="B")
    there = {record.offset: record.value for record in records(bench.log(topic))}
    here = committed(log)
    pairs = syncs(bench.log(SYNCS, cluster="B"), topic)
    copies = len(records(log))
    wrong = [pair for pair in pairs if here.get(pair[1], b"") != there.get(pair[0])]
    if killed and copies == len(here):
        raise EnvironmentFailure(
            "the worker always committed before it was killed; run the case again"
        )
    if not pairs:
        raise EnvironmentFailure(f"{SYNCS} has no sync of {topic}; look at MirrorMaker's log")
    facts = {
        "syncs": len(pairs),
        "wrong": wrong[:5],
        "copies": copies,
        "aborted_copies": copies - len(here),
    }
    return Observation(shown=bool(wrong), facts=facts)


def _beyond(bench: Bench, topic: str, offset: int) -> bool:
    return bench.bound("high", topic, cluster="B") > offset


def committed(log: Iterable[ReferenceBatch]) -> Mapping[int, bytes | None]:
    """Offset -> value, for records in committed transactions or in none."""
    found: dict[int, bytes | None] = {}
    waiting: dict[int, dict[int, bytes | None]] = {}
    for batch in log:
        if batch.is_control:
            (marker,) = markers([batch])
            ended = waiting.pop(marker.producer_id, {})
            found |= ended if marker.kind == "COMMIT" else {}
        else:
            into = waiting.setdefault(batch.producer_id, {}) if batch.transactional else found
            into.update((record.offset, record.value) for record in records_of(batch))
    return found


def syncs(log: Iterable[ReferenceBatch], topic: str) -> list[tuple[int, int]]:
    """(offset at the source, offset at the target) of each sync of partition 0, in order (KIP-382:
    OffsetSync)."""
    found = []
    for record in records(log):
        key, value = PrimitiveReader(record.key or b""), PrimitiveReader(record.value or b"")
        if (key.text(), key.number(">i")) == (topic, 0):
            found.append((value.number(">q"), value.number(">q")))
    return found
