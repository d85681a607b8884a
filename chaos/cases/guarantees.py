"""Guarantees that clients rely on: each must hold. Its control shows what happens without it."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Final

from confluent_kafka import (
    Producer,
    TopicPartition,
)

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import (
    DISKLESS,
    ON_DISKLESS,
    ONE,
    THREE,
    WITHIN,
    Bench,
    happens,
    markers,
    nodes,
    one,
    transaction,
    wait_for,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import (
    JOIN,
    CaseMember,
    RawJavaConsumer,
    RawJavaProducer,
    answer_to,
    heartbeat,
)
from linkflap.chaos.cases.wire import WireTransactional, record_batch
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.wait import pause
from linkflap.harness.wire import messages
from linkflap.harness.wire.librdkafka import quiet
from linkflap.harness.wire.requests import fetch

TIMEOUT: Final = 1.5
"""Seconds after which the coordinator aborts a transaction."""


@case("KIP-360-fenced-for-good", ONE, claim={"same_id": True}, control={"same_id": False})
def fenced_for_good(bench: Bench, *, same_id: bool) -> Observation:
    """The old client continues like an application that catches the error of its commit: abort,
    begin, write, commit."""
    topic = bench.topic()
    old = bench.transactional("writer")
    old.begin()
    old.send(topic, b"of the old one")
    old.flush()
    new = bench.transactional("writer" if same_id else "other")
    answers = {
        "commit": answer_to(old.commit),
        "abort": answer_to(old.abort),
        "begin": answer_to(old.begin),
        "send": answer_to(lambda: old.send(topic, b"of the old one, again")),
        "second commit": answer_to(old.commit),
    }
    new.begin()
    new.send(topic, b"of the new one")
    successor = answer_to(new.commit)
    read = bench.texts(topic)
    facts = {"answers_to_the_old": answers, "commit_of_the_new": successor, "read_committed": read}
    return Observation(
        shown=any("old" in value for value in read) or successor != "none", facts=facts
    )


@case("KIP-447-stale-member-client", ONE, claim={"stale": True}, control={"stale": False})
def stale_member_client(bench: Bench, *, stale: bool) -> Observation:
    """A relay that has left its group commits the offsets that it had read. Or a producer that was
    never in the group, which the fence does not cover."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"input"] * 5)
    before = bench.member(group)
    if stale:
        before.subscribe(topic)
        wait_for("the first member to read", lambda: before.poll(0.5))
    of_before = before.metadata()
    if stale:
        before.close()
    now = bench.member(group)
    now.subscribe(topic)
    wait_for("its successor to read", lambda: now.poll(0.5))
    writer = bench.transactional("relay")
    writer.begin()
    sent = answer_to(lambda: writer.send_offsets(topic, 5, of_before))
    ended = answer_to(writer.commit) if sent == "none" else answer_to(writer.abort)
    # A commit is answered before its marker is in the offsets topic. A read_committed consumer asks
    # again until it is (RequireStable, KIP-447).
    reader = bench.consumer(group)
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=WITHIN)
    facts = {"send_offsets_to_transaction": sent, "end": ended, "committed": found.offset}
    return Observation(shown=found.offset == 5, facts=facts)


@case(
    "KIP-890-late-commit-client",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"times_out": True},
    control={"times_out": False},
)
def late_commit_client(bench: Bench, *, times_out: bool) -> Observation:
    """The client is idle until its coordinator has aborted the transaction, and then commits it."""
    topic = bench.topic()
    writer = bench.transactional(
        "writer", transaction_timeout_ms=int(1000 * TIMEOUT) if times_out else 60_000
    )
    writer.begin()
    writer.send(topic, b"record")
    writer.flush()
    if times_out:
        wait_for("the coordinator's abort", lambda: markers(bench.log(topic)), every=0.1)
    answer = answer_to(writer.commit)
    wait_for("a marker", lambda: markers(bench.log(topic)), every=0.1)
    read = bench.texts(topic)
    found = bench.markers(topic)
    return Observation(
        shown=answer == "none" or bool(read),
        facts={"commit": answer, "markers": found, "read_committed": read},
    )


@case("KIP-848-one-owner", ONE, claim={"one_group": True}, control={"one_group": False})
def one_owner(bench: Bench, *, one_group: bool) -> Observation:
    """A second member joins. After each poll of either, both report their partitions, until both
    have some."""
    topic = bench.topic(partitions=2)
    bench.write(topic, [b"record"])
    groups = [bench.name("group"), bench.name("group" if one_group else "other")]
    first, second = (bench.member(group, group_protocol="consumer") for group in groups)
    first.subscribe(topic)

    def owns(who: CaseMember, at_least: int) -> bool:
        who.poll(0.2)
        return len(who.assignment()) >= at_least

    wait_for("the first member to own both partitions", lambda: owns(first, 2))
    second.subscribe(topic)
    overlaps: list[list[int]] = []

    def settled() -> bool:
        first.poll(0.2)
        second.poll(0.2)
        # before the first one's: what it still has now it had when the second one owned it
        theirs = second.assignment()
        mine = first.assignment()
        if both := mine & theirs:
            overlaps.append(sorted(both))
        return bool(theirs) and (not one_group or len(mine) == len(theirs) == 1)

    wait_for("both members to own partitions", settled)
    facts = {
        "owned_by_both": overlaps,
        "first": sorted(first.assignment()),
        "second": sorted(second.assignment()),
    }
    return Observation(shown=bool(overlaps), facts=facts)


@case(
    "KIP-447-stale-member", ONE, claim={"with_generation": True}, control={"with_generation": False}
)
def stale_member(bench: Bench, *, with_generation: bool) -> Observation:
    """A relay that lost its partitions in a rebalance commits the offsets that it had read, with or
    without its generation."""
    topic = bench.topic()
    group = bench.name("group")
    bench.write(topic, [b"input"] * 5)
    coordinator = bench.ask(bench.coordinator(group, 0))
    consumer = bench.consumer(group, auto_offset_reset="earliest")
    consumer.subscribe([topic])
    wait_for(
        "the current member to read",
        lambda: any(m.error() is None for m in consumer.consume(10, 0.3)),
    )
    writer = bench.wire_transactional()
    stale = {"generation": 0, "member": "a-member-of-before"} if with_generation else {}
    answer = writer.send_offsets(coordinator, group, (topic, 0), 5, **stale)  # type: ignore[arg-type]
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


IDEMPOTENT: Final = {"idempotent": True}
PLAIN: Final = {"idempotent": False}


@case("KIP-98-repeat", ONE, claim=IDEMPOTENT, control=PLAIN)
@case("KIP-1163-repeat", DISKLESS, topics=ON_DISKLESS, claim=IDEMPOTENT, control=PLAIN)
def repeated_batch(bench: Bench, *, idempotent: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch(
        [b"once"] * 3,
        producer=asked.init_producer_id() if idempotent else None,
        sequence=0 if idempotent else -1,
    )
    answers = [asked.produce((topic, 0), batch) for _ in range(2)]
    high = bench.bound("high", topic)
    return Observation(shown=high != 3, facts={"answers": answers, "high_watermark": high})


@case("KIP-98-old-repeat", ONE, claim=IDEMPOTENT, control=PLAIN)
def old_repeat(bench: Bench, *, idempotent: bool) -> Observation:
    """Repeats the first of eight batches: a broker keeps the last five of a producer."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id() if idempotent else None
    batches = [
        record_batch([b"%d" % n], producer=producer, sequence=n if idempotent else -1)
        for n in range(8)
    ]
    for batch in batches:
        asked.produce((topic, 0), batch)
    answer = asked.produce((topic, 0), batches[0])
    high = bench.bound("high", topic)
    return Observation(shown=high != 8, facts={"repeat": answer, "high_watermark": high})


SILENCE = 2.5
"""Seconds for which the broker is suspended: more than twice the clients' request timeout."""


@case("KIP-98-retries", ONE, claim=IDEMPOTENT, control=PLAIN)
@case("KIP-1163-retries", DISKLESS, topics=ON_DISKLESS, claim=IDEMPOTENT, control=PLAIN)
def retries(bench: Bench, *, idempotent: bool) -> Observation:
    """The broker is suspended when the request arrives. The client times out and retries; then the
    broker reads both."""
    topic = bench.topic()
    settings: dict[str, str | int | bool] = {
        "enable.idempotence": idempotent,
        "acks": "all",
        "request.timeout.ms": 1000,
    }
    if bench.variant.client == "java":
        java = RawJavaProducer(
            bench.java(),
            bench.bootstrap(),
            settings | {"delivery.timeout.ms": 60_000, "retries": 1000},
        )
        bench.closing(java)
        java.send(topic, b"first")
        java.flush()
        bench.broker().pause()
        java.send(topic, b"again")
        pause(SILENCE, lambda: False)
        bench.broker().resume()
        java.flush()
    else:
        acknowledged: list[bool] = []
        producer = Producer(
            quiet(bench.bootstrap()) | settings | {"linger.ms": 0, "socket.timeout.ms": 1000}
        )
        for value in (b"first", b"again"):
            if value == b"again":
                bench.broker().pause()
            producer.produce(
                topic,
                value,
                partition=0,
                on_delivery=lambda error, _: acknowledged.append(error is None),
            )
            if value == b"first":
                wait_for("the first record", lambda: producer.flush(1) == 0)
        pause(SILENCE, lambda: False)
        bench.broker().resume()
        wait_for("the second record to be acknowledged", lambda: producer.flush(1) == 0)
    found = bench.logged(topic)
    return Observation(shown=found.count("again") > 1, facts={"log": found})


@case("KIP-360-stale-recovery", ONE, claim={"names_itself": True}, control={"names_itself": False})
def producer_recovery(bench: Bench, *, names_itself: bool) -> Observation:
    """The old producer's InitProducerId arrives after its successor's."""
    topic = bench.topic()
    old = bench.wire_transactional()
    new = bench.wire_transactional()
    m = messages.request("init_producer_id", 4)
    answer = old.wire.call(
        "init_producer_id",
        4,
        m.InitProducerIdRequest(
            transactional_id=old.id,
            transaction_timeout=timedelta(seconds=60),
            producer_id=old.producer.id if names_itself else -1,
            producer_epoch=old.producer.epoch if names_itself else -1,
        ),
    )
    added = new.add((topic, 0))
    facts = {
        "recovery_of_the_old": str(answer.error_code.name),
        "epochs_old_new": [old.producer.epoch, new.producer.epoch],
        "epoch_given": int(answer.producer_epoch),
        "add_partitions_of_the_new": added,
    }
    return Observation(
        shown=answer.error_code == messages.Error.none and added != "none", facts=facts
    )


@case("KIP-98-zombie", ONE, claim={"same_id": True}, control={"same_id": False})
def zombie(bench: Bench, *, same_id: bool) -> Observation:
    """A new producer takes the transactional id of the old one in mid-transaction, or has another
    id."""
    topic = bench.topic()
    old = bench.wire_transactional("writer")
    old.add((topic, 0))
    old.write((topic, 0), b"before")
    new = bench.wire_transactional("writer" if same_id else "other")
    written = old.write((topic, 0), b"of the zombie")
    ended = old.end(commit=True)
    new.add((topic, 0))
    new.write((topic, 0), b"of the new one")
    new.end(commit=True)
    read = bench.texts(topic)
    facts = {"produce_of_the_old": written[0], "commit_of_the_old": ended, "read_committed": read}
    return Observation(shown="of the zombie" in read or "before" in read, facts=facts)


@case("KIP-98-zombie-client", ONE, claim={"same_id": True}, control={"same_id": False})
def zombie_client(bench: Bench, *, same_id: bool) -> Observation:
    """The same with two real clients."""
    topic = bench.topic()
    old = bench.transactional("writer")
    old.begin()
    old.send(topic, b"of the zombie")
    old.flush()
    new = bench.transactional("writer" if same_id else "other")
    ended = answer_to(old.commit)
    new.begin()
    new.send(topic, b"of the new one")
    new.commit()
    read = bench.texts(topic)
    return Observation(
        shown="of the zombie" in read, facts={"commit_of_the_old": ended, "read_committed": read}
    )


@case("min-isr", THREE, claim={"acks": -1}, control={"acks": 1})
def min_isr(bench: Bench, *, acks: int) -> Observation:
    """min.insync.replicas: with acks=all, nothing is acknowledged that fewer replicas have."""
    leader, follower = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[leader.id, follower.id], config={"min.insync.replicas": "2"})
    asked = bench.ask(leader)
    follower.kill()
    bench.in_sync(topic, leader, by=asked)
    answer = asked.produce((topic, 0), record_batch([b"record"]), acks=acks)
    return Observation(
        shown=answer[0] == "none",
        facts={"acks": acks, "in_sync": list(asked.leadership(topic)[0].in_sync), "answer": answer},
    )


FEATURE = "eligible.leader.replicas.version"
PATIENCE = 15.0


@case("KIP-966-eligible-leader", nodes(5), claim={"eligible": True}, control={"eligible": False})
def eligible_leaders(bench: Bench, *, eligible: bool) -> Observation:
    """Two replicas acknowledge. The second shuts down, the first dies, and only the second comes
    back."""
    first, second, *others = bench.cluster().brokers.values()
    asked = bench.ask(others[0])
    level = asked.features().get(FEATURE, 0)
    if level and not eligible:
        asked.downgrade(FEATURE, 0)
    topic = bench.topic(replicas=[first.id, second.id], config={"min.insync.replicas": "2"})
    bench.write(topic, [b"%d" % number for number in range(10)])
    second.stop()
    bench.in_sync(topic, first, by=asked)
    first.kill()
    bench.unled(topic, by=others[0])
    second.start()
    happens(
        f"broker {second.id} to lead",
        lambda: wire.leader(others[0].client_address, topic) == second.id,
        within=PATIENCE,
        every=0.2,
    )
    leader = wire.leader(others[0].client_address, topic)
    first.start()
    bench.in_sync(topic, first, second, by=asked)
    # with fewer in-sync replicas than min.insync.replicas, the leader does not advance the high
    # watermark, which limits reads (KIP-966)
    read = len(bench.read(topic))
    facts = {
        FEATURE: level if eligible else 0,
        "leader_with_the_first_down": leader,
        "read": read,
        "written": 10,
    }
    return Observation(shown=leader != second.id or read != 10, facts=facts)


@case("KIP-320-stale-epoch", THREE, claim={"with_epoch": True}, control={"with_epoch": False})
def leader_epochs(bench: Bench, *, with_epoch: bool) -> Observation:
    """KIP-320: a fetch with an older leader epoch is refused, so that a consumer notices that the
    log may have been truncated."""
    home, other = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[home.id])
    bench.write(topic, [b"record"] * 3)
    watcher = bench.ask(other)
    before = watcher.leadership(topic)[0].epoch
    home.kill()
    bench.unled(topic, by=other)
    home.start()
    bench.led(topic, by=home)
    asked = bench.ask(home)
    known = before if with_epoch else -1
    body = fetch(12, topic, 0, 0, most=1 << 20, epoch=known)

    def answered() -> str | None:
        error = str(asked.call("fetch", 12, body).responses[0].partitions[0].error_code.name)
        return None if error == "not_leader_or_follower" else error

    error = wait_for("an answer", answered)
    return Observation(
        shown=error == "none",
        facts={"epoch_of_the_fetch": known, "fetch": error},
    )


PARTITIONS = 3
COMMITTED: Final = {"isolation": "read_committed"}
UNCOMMITTED: Final = {"isolation": "read_uncommitted"}


@case("KIP-98-aborted-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
def aborted_read(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        transaction(writer, topic, value, commit=commit)
    read = bench.texts(topic, isolation)
    return Observation(shown="aborted" in read, facts={"read": read})


@case("KIP-98-open-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
@case("KIP-1163-open-read", DISKLESS, topics=ON_DISKLESS, claim=COMMITTED, control=UNCOMMITTED)
def open_read(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    writer.begin()
    writer.send(topic, b"open")
    writer.flush()
    read = bench.texts(topic, isolation)
    writer.abort()
    return Observation(shown="open" in read, facts={"read": read})


@case("KIP-98-atomic", ONE, claim=COMMITTED, control=UNCOMMITTED)
def atomic(bench: Bench, isolation: Isolation) -> Observation:
    """A transaction over three partitions is open, then aborted. Returns how many partitions show a
    record at either time."""
    topic = bench.topic(partitions=PARTITIONS)
    writer = bench.transactional()
    writer.begin()
    for partition in range(PARTITIONS):
        writer.send(topic, b"part", partition)
    writer.flush()

    def seen() -> int:
        return sum(
            bool(bench.read(topic, isolation, partition=number)) for number in range(PARTITIONS)
        )

    during = seen()
    writer.abort()
    after = seen()
    writer.begin()
    for partition in range(PARTITIONS):
        writer.send(topic, b"whole", partition)
    writer.commit()
    committed = sum(
        any(v == b"whole" for _, v in bench.read(topic, isolation, partition=n))
        for n in range(PARTITIONS)
    )
    facts = {
        "partitions_while_open": during,
        "after_the_abort": after,
        "of_a_committed_one": committed,
    }
    return Observation(shown=during > 0 or after > 0 or committed != PARTITIONS, facts=facts)


_NOT_FENCED = {"broker.session.timeout.ms": "90000"}
"""A suspended broker remains the leader: without a leader, 4.3 drops the coordinator's marker
(KAFKA-20734)."""


_TIMES_OUT = _NOT_FENCED | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@case(
    "KIP-1163-late-commit",
    one(_TIMES_OUT),
    claim={"suspended": True},
    control={"suspended": False},
)
@case(
    "KIP-1163-zombie-commit",
    one({**_TIMES_OUT, **DISKLESS.clusters[0].config}),
    topics=ON_DISKLESS,
    claim={"suspended": True},
    control={"suspended": False},
)
def late_commit(bench: Bench, *, suspended: bool) -> Observation:
    """Suspends the broker between the produce and the marker, longer than the transaction timeout,
    and resumes it."""
    topic = bench.topic()
    writer = bench.wire_transactional(timeout=TIMEOUT if suspended else 60.0)
    writer.add((topic, 0))
    written, _ = writer.write((topic, 0), b"record")
    if suspended:
        bench.broker().pause()
        pause(2 * TIMEOUT, lambda: False)
        bench.broker().resume()
        wait_for("the coordinator's abort", lambda: bool(markers(bench.log(topic))), every=0.2)
    answers: list[str] = []

    def answered() -> bool:
        answers.append(writer.wire.end_transaction(writer.id, writer.producer, commit=True))
        return answers[-1] not in (
            "not_coordinator",
            "coordinator_not_available",
            "coordinator_load_in_progress",
        )

    # the broker may have been fenced meanwhile
    wait_for("an answer to the commit", answered, every=0.2)
    answer = answers[-1]
    wait_for("a marker", lambda: bool(markers(bench.log(topic))), every=0.1)
    read = bench.texts(topic)
    found = bench.markers(topic)
    facts = {"produce": written, "commit": answer, "markers": found, "read_committed": read}
    return Observation(shown=answer == "none" or bool(read), facts=facts)


@case("KIP-890-late-end", ONE, claim={"v2": True}, control={"v2": False})
def late_end(bench: Bench, *, v2: bool) -> Observation:
    """The end of T1 arrives again while T2, which its producer will abort, is open."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    first = writer.producer
    _write(writer, topic, b"first", v2=v2)
    _end(writer, v2=v2, commit=True)
    _write(writer, topic, b"second, to be aborted", v2=v2)
    late = writer.end_v2(commit=True, producer=first) if v2 else writer.end(commit=True)
    _end(writer, v2=v2, commit=False)
    read = bench.texts(topic)
    facts = {
        "late_end": late,
        "read_committed": read,
        "markers": bench.markers(topic),
    }
    return Observation(shown="second, to be aborted" in read, facts=facts)


def _write(writer: WireTransactional, topic: str, value: bytes, *, v2: bool) -> None:
    if not v2:
        writer.add((topic, 0))
    writer.write((topic, 0), value, version=12 if v2 else 9)


def _end(writer: WireTransactional, *, v2: bool, commit: bool) -> str:
    return writer.end_v2(commit=commit) if v2 else writer.end(commit=commit)


VERIFIED: Final = {"verification": True}
UNVERIFIED: Final = {"verification": False}


@case("KIP-890-late-produce", ONE, claim=VERIFIED, control=UNVERIFIED)
@case("KIP-1163-late-produce", DISKLESS, topics=ON_DISKLESS, claim=VERIFIED, control=UNVERIFIED)
def late_produce(bench: Bench, *, verification: bool) -> Observation:
    """The network delays a produce of the transaction, so that it arrives after the marker."""
    if not verification:
        bench.setting("transaction.partition.verification.enable", "false")
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.add((topic, 0))
    writer.write((topic, 0), b"in time")
    writer.end(commit=True)
    answer = writer.write((topic, 0), b"late")
    state = writer.wire.transaction_state(writer.id)
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    if stable < high:  # nobody but an operator can end it (KIP-664)
        writer.wire.write_markers((topic, 0), writer.producer, commit=False)
    facts = {
        "late_produce": answer,
        "coordinator": state,
        "last_stable_offset": stable,
        "high_watermark": high,
    }
    return Observation(shown=stable < high, facts=facts)
