"""Producers: idempotent ones whose state or buffers brokers and clients lose, one that closes too
late; transactions that end too late, twice, or with the wrong error, and offsets that are
committed in them."""

from __future__ import annotations

import time

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import (
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
    ClientFailed,
    JavaTransactional,
    RawJavaConsumer,
    RawJavaProducer,
)
from linkflap.chaos.cases.wire import ProducerIdentity, Wire, WireTransactional, record_batch
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import pause
from linkflap.harness.wire import messages

SETTING = "producer.id.expiration.ms"


def _known(asked: Wire, topic: str) -> int:
    """The number of producers that the partition's leader knows (DescribeProducers, KIP-664)."""
    m = messages.request("describe_producers", 0)
    body = m.DescribeProducersRequest(topics=(m.TopicRequest(name=topic, partition_indexes=(0,)),))
    (answer,) = asked.call("describe_producers", 0, body).topics
    return len(answer.partitions[0].active_producers)


def _expire(bench: Bench, asked: Wire, topic: str, *, expire: bool) -> None:
    if expire:
        bench.setting(SETTING, "1")
        wait_for("the broker to forget the producer", lambda: _known(asked, topic) == 0, every=0.1)


@case("expired-producer-repeats", ONE, claim={"expire": True}, control={"expire": False})
def expired_producer_repeats(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch([b"once"] * 2, producer=asked.init_producer_id(), sequence=0)
    first = asked.produce((topic, 0), batch)
    _expire(bench, asked, topic, expire=expire)
    second = asked.produce((topic, 0), batch)
    high = bench.bound("high", topic)
    return Observation(
        shown=second[0] == "none" and high == 4,
        facts={"first": first, "retry": second, "high_watermark": high},
    )


@case("expired-producer-gap", ONE, claim={"expire": True}, control={"expire": False})
def expired_producer_gap(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = asked.produce((topic, 0), record_batch([b"first"], producer=producer, sequence=0))
    _expire(bench, asked, topic, expire=expire)
    later = asked.produce((topic, 0), record_batch([b"later"], producer=producer, sequence=9))
    return Observation(shown=later[0] == "none", facts={"sequence 0": first, "sequence 9": later})


@case("KAFKA-15591", ONE, claim={"swapped": True}, control={"swapped": False})
def kafka_15591(bench: Bench, *, swapped: bool) -> Observation:
    """Two batches in flight. When the first is refused because the broker does not know the
    partition yet, the second arrives first."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = record_batch([b"first"] * 3, producer=producer, sequence=0)
    second = record_batch([b"second"] * 3, producer=producer, sequence=3)
    order = (
        [("second", second), ("first", first)]
        if swapped
        else [("first", first), ("second", second)]
    )
    answers = {name: asked.produce((topic, 0), batch) for name, batch in order}
    read = bench.texts(topic, "read_uncommitted")
    facts = {"answers": answers, "records": read}
    return Observation(shown=answers["second"][0] == "none" and "first" not in read, facts=facts)


ASKED, TOO_LONG = 1.0, 4.0


@case("KAFKA-17734", ONE, claim={"silent": True}, control={"silent": False})
def kafka_17734(bench: Bench, *, silent: bool) -> Observation:
    """Closes the producer while the broker, which is also its coordinator, is suspended with its
    sockets open, or is not."""
    topic = bench.topic()
    settings = {"request.timeout.ms": 10_000, "delivery.timeout.ms": 12_000, "max.block.ms": 12_000}
    java = bench.java()
    producer = JavaTransactional(java, bench.bootstrap(), bench.name("writer"), settings)
    producer.begin()
    producer.send(topic, b"record")
    producer.flush()
    if silent:
        bench.broker().pause()
        producer.send(topic, b"unanswered")
    began = time.monotonic()
    producer.client.close(java.java.java.time.Duration.ofMillis(int(ASKED * 1000)))
    took = round(time.monotonic() - began, 2)
    return Observation(shown=took > TOO_LONG, facts={"asked_seconds": ASKED, "took_seconds": took})


PARTITIONS = 6
BATCH = 200_000
DOWN, EXPIRES, RATE = 10.0, 20_000, 60
"""Seconds without a link; milliseconds until a batch expires; KB a second: a third of the request
is unsent when it expires."""


@case("KAFKA-19012", nodes(2), claim={"expire": True}, control={"expire": False})
def kafka_19012(bench: Bench, *, expire: bool) -> Observation:
    """The race as a schedule: the link to the broker is down while batches are made, so that they
    expire before their request times out. Then it is so slow that they expire while they are being
    sent. Their buffers are reused for batches to another topic on another broker."""
    slow = bench.topic("slow", partitions=PARTITIONS, replicas=[1])
    other = bench.topic("other", partitions=PARTITIONS, replicas=[2])
    link = bench.deployment.links["*->A"]
    timeout = EXPIRES if expire else 6 * EXPIRES
    settings = {
        "batch.size": BATCH,
        "buffer.memory": PARTITIONS * BATCH,
        "max.request.size": 4 * PARTITIONS * BATCH,
        "delivery.timeout.ms": timeout,
        "request.timeout.ms": timeout,
        "max.block.ms": 120_000,
        "send.buffer.bytes": 16_384,
        # otherwise clients since 4.0 forget their brokers while the link is down (KIP-899)
        "metadata.recovery.strategy": "none",
    }
    producer = RawJavaProducer(bench.java(), link.bootstrap, settings)
    bench.closing(producer)
    for topic in (slow, other):
        producer.client.partitionsFor(topic)
    link.cut(owner="down")
    try:
        for partition in range(PARTITIONS):
            producer.send(slow, b"slow".ljust(BATCH - 1000, b"-"), partition)
        pause(DOWN, lambda: False)
        link.add_toxic("bandwidth", "requests", {"rate": RATE}, owner="slow")
        link.restore(owner="down")
        # waits for a buffer: until the first batches expire, or are sent
        for partition in range(PARTITIONS):
            producer.send(other, b"other".ljust(BATCH - 1000, b"-"), partition)
        try:
            producer.flush()
            failed = "none"
        except ClientFailed as error:
            failed = error.name
    finally:
        link.clear()
        link.restore()
    found = {n: [value.rstrip("-") for value in bench.logged(slow, n)] for n in range(PARTITIONS)}
    wrong = sorted(n for n, words in found.items() if "other" in words)
    facts = {
        "partitions_of_slow": {str(n): words for n, words in found.items()},
        "in_the_wrong_topic": wrong,
        "producer": failed,
    }
    return Observation(shown=bool(wrong), facts=facts)


@case("late-marker", ONE, claim={"late": True}, control={"late": False})
def late_marker(bench: Bench, *, late: bool) -> Observation:
    """T1 is aborted. Its ABORT arrives again while T2 is open. T2 is committed, and the commit is
    acknowledged."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.add((topic, 0))
    writer.write((topic, 0), b"first")
    writer.end(commit=False)
    writer.add((topic, 0))
    writer.write((topic, 0), b"second")
    answered = writer.wire.write_markers((topic, 0), writer.producer, commit=False) if late else ""
    committed = writer.end(commit=True)
    read = bench.texts(topic)
    facts = {
        "late_marker": answered,
        "commit": committed,
        "read_committed": read,
        "markers": bench.markers(topic),
    }
    return Observation(shown=committed == "none" and "second" not in read, facts=facts)


@case("KAFKA-17754", ONE, claim={"late": True}, control={"late": False})
def late_end_of_transaction(bench: Bench, *, late: bool) -> Observation:
    """The first transaction is committed. A duplicate of that EndTxn arrives while the next
    transaction is open."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.add((topic, 0))
    writer.write((topic, 0), b"first")
    writer.end(commit=True)
    writer.add((topic, 0))
    writer.write((topic, 0), b"second, to be aborted")
    answered = writer.end(commit=True) if late else ""
    aborted = writer.end(commit=False)
    read = bench.texts(topic)
    facts = {
        "late_end": answered,
        "abort": aborted,
        "read_committed": read,
        "markers": bench.markers(topic),
    }
    return Observation(shown="second, to be aborted" in read, facts=facts)


@case("KIP-1228", ONE, claim={"late": True}, control={"late": False})
def kip_1228(bench: Bench, *, late: bool) -> Observation:
    """T1 is aborted. Its ABORT arrives again while T2 is open. T2 is committed, and the commit is
    acknowledged."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.write((topic, 0), b"first", version=12)
    writer.end_v2(commit=False)
    (sent,) = markers(bench.log(topic))
    writer.write((topic, 0), b"second", version=12)
    of_the_second = writer.producer.epoch
    who = ProducerIdentity(id=sent.producer_id, epoch=sent.producer_epoch)
    answered = (
        writer.wire.write_markers((topic, 0), who, commit=False, transactions=2) if late else ""
    )
    committed = writer.end_v2(commit=True)
    read = bench.texts(topic)
    facts = {
        "epoch_of_the_marker": sent.producer_epoch,
        "epoch_of_the_second_transaction": of_the_second,
        "late_marker": answered,
        "commit": committed,
        "read_committed": read,
        "markers": bench.markers(topic),
    }
    return Observation(shown=committed == "none" and "second" not in read, facts=facts)


@case("KAFKA-16386", THREE, claim={"dead": True}, control={"dead": False})
def kafka_16386(bench: Bench, *, dead: bool) -> Observation:
    """KAFKA-16386: a produce fails with NETWORK_EXCEPTION when its leader cannot reach the
    transaction coordinator."""
    writer = bench.wire_transactional()
    home = bench.other(writer.coordinator)
    topic = bench.topic(replicas=[home.id])
    writer.add((topic, 0))
    leader = bench.ask(home)
    leader.leadership(topic)
    if dead:
        writer.coordinator.kill()
    batch = record_batch([b"record"], producer=writer.producer, sequence=0, transactional=True)
    answers = []
    for _ in range(20):
        error, _ = leader.produce((topic, 0), batch, transactional_id=writer.id)
        answers.append(error)
        if error in ("none", "network_exception"):
            break
    return Observation(shown="network_exception" in answers, facts={"answers": answers})


ROUNDS = 100


@case("KAFKA-17507", ONE, claim={"transactional": True}, control={"transactional": False})
def kafka_17507(bench: Bench, *, transactional: bool) -> Observation:
    """Offsets 1, 2, 3, … of a group, each fetched as soon as the coordinator reports its
    transaction as complete."""
    topic, group = bench.topic(), bench.name("group")
    asked = bench.ask(bench.coordinator(group, 0))
    writer = bench.wire_transactional()
    stale: dict[str, int] = {}
    for offset in range(1, ROUNDS + 1):
        if transactional:
            writer.send_offsets(asked, group, (topic, 0), offset)
            writer.end(commit=True)
        else:
            asked.commit_offset(group, (topic, 0), offset)
        found = asked.committed(group, (topic, 0))
        if found != offset:
            stale[str(offset)] = found
    facts = {"rounds": ROUNDS, "stale": len(stale), "first_of_them": dict(list(stale.items())[:5])}
    return Observation(shown=bool(stale), facts=facts)


INPUTS = 6


@case("KAFKA-17582", ONE, claim={"rewind": False}, control={"rewind": True})
def kafka_17582(bench: Bench, *, rewind: bool) -> Observation:
    """Consume, transform, produce. The transaction of the first inputs is aborted; otherwise
    nothing happens to the group."""
    source, target = bench.topic("input"), bench.topic("output")
    bench.write(source, [b"%d" % n for n in range(INPUTS)])
    consumer = bench.consumer(
        bench.name("relay"), auto_offset_reset="earliest", isolation_level="read_committed"
    )
    producer = bench.producer(transactional_id=bench.name("relay"))
    producer.init_transactions(WITHIN)
    consumer.subscribe([source])
    turn = read = 0

    def done() -> bool:
        nonlocal turn, read
        found = [message for message in consumer.consume(2, 0.5) if message.error() is None]
        if not found:
            return read >= INPUTS
        read += len(found)
        producer.begin_transaction()
        for message in found:
            producer.produce(target, message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN
        )
        turn += 1
        if turn == 1:
            producer.abort_transaction(WITHIN)
            if rewind:
                consumer.seek(TopicPartition(source, 0, 0))
                read = 0
        else:
            producer.commit_transaction(WITHIN)
        return False

    wait_for("the relay to read its inputs", done, state=lambda: read)
    outputs = bench.texts(target)
    (committed,) = consumer.committed([TopicPartition(source, 0)], timeout=30)
    missing = [str(n) for n in range(INPUTS) if str(n) not in outputs]
    facts = {
        "outputs": outputs,
        "inputs_without_output": missing,
        "committed_offset": committed.offset,
    }
    return Observation(shown=bool(missing) and committed.offset == INPUTS, facts=facts)


@case(
    "KAFKA-18019",
    one(
        {
            "transactional.id.expiration.ms": "3000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        }
    ),
    claim={"expire": True},
    control={"expire": False},
)
def kafka_18019(bench: Bench, *, expire: bool) -> Observation:
    """KAFKA-18019: a producer whose transactional id expired and was taken over meanwhile recovers,
    and fences its successor."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    zombie = bench.transactional("writer")
    transaction(zombie, topic, b"first")
    if expire:
        gone = "(transactional_id_not_found)"
        wait_for(
            "the id to expire",
            lambda: asked.transaction_state(bench.name("writer"))[0] == gone,
            every=0.2,
        )
    successor = bench.transactional("writer")
    transaction(successor, topic, b"of the successor")
    answers = []
    for attempt in range(2):
        try:
            transaction(zombie, topic, b"of the zombie %d" % attempt)
            answers.append("committed")
            break
        except ClientFailed as error:
            answers.append(error.name)
        try:
            zombie.abort()
            answers.append("aborted")
        except ClientFailed as error:
            answers.append(error.name)
            break
    try:
        transaction(successor, topic, b"again of the successor")
        after = "committed"
    except ClientFailed as error:
        after = error.name
    read = bench.texts(topic)
    facts = {"zombie": answers, "successor_after_that": after, "read_committed": read}
    return Observation(shown="committed" in answers, facts=facts)


CHECKS = 4.0
"""In seconds: eight rounds of the group coordinator's cleanup."""


@case(
    "KAFKA-19163",
    one({"offsets.retention.check.interval.ms": "500", "offsets.retention.minutes": "1"}),
    claim={"only_pending": True},
    control={"only_pending": False},
)
def kafka_19163(bench: Bench, *, only_pending: bool) -> Observation:
    """KAFKA-19163: a group whose only offsets are in an open transaction is deleted, together with
    these offsets."""
    topic, group = bench.topic(), bench.name("group")
    coordinator = bench.ask(bench.coordinator(group, 0))
    if not only_pending:
        coordinator.commit_offset(group, (bench.topic("other"), 0), 1)
    writer = bench.wire_transactional()
    sent = writer.send_offsets(coordinator, group, (topic, 0), 5)
    pause(CHECKS, lambda: False)
    ended = writer.end(commit=True)
    before = coordinator.committed(group, (topic, 0), stable=True)
    bench.end()
    bench.broker().stop()
    bench.broker().start()
    asked = bench.ask(bench.broker())
    wait_for("the coordinator to be back", lambda: asked.coordinator(group, 0) == bench.broker().id)
    after = asked.committed(group, (topic, 0), stable=True)
    facts = {
        "txn_offset_commit": sent,
        "commit": ended,
        "committed": before,
        "committed_after_a_restart": after,
    }
    return Observation(shown=ended == "none" and (before != 5 or after != 5), facts=facts)


@case("KAFKA-19367", ONE, claim={"opened": True}, control={"opened": False})
def kafka_19367(bench: Bench, *, opened: bool) -> Observation:
    """A producer restarts while its predecessor's transaction is open, or complete."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.write((topic, 0), b"record", version=12)
    if not opened:
        writer.end_v2(commit=False)
    before = writer.producer.epoch
    after = writer.wire.init_producer_id(writer.id)
    found = markers(bench.log(topic))
    facts = {
        "epoch_before": before,
        "epoch_given": after.epoch,
        "same_id": after.id == writer.producer.id,
        "epochs_of_markers": [one.producer_epoch for one in found],
    }
    return Observation(shown=opened and after.epoch > before + 2, facts=facts)


@case(
    "KAFKA-19690",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"past_its_timeout": True},
    control={"past_its_timeout": False},
)
def kafka_19690(bench: Bench, *, past_its_timeout: bool) -> Observation:
    """The client pauses beyond its transaction timeout, the coordinator aborts, then the client
    continues to write."""
    topic = bench.topic()
    writer = bench.wire_transactional(timeout=1.0 if past_its_timeout else 60.0)
    writer.add((topic, 0))
    writer.write((topic, 0), b"before")
    if past_its_timeout:
        wait_for("the coordinator to abort the transaction", lambda: markers(bench.log(topic)))
        writer.settled()
    answer = writer.write((topic, 0), b"after the pause")
    if not past_its_timeout:
        writer.end(commit=False)
    return Observation(
        shown=answer[0] == "invalid_txn_state",
        facts={"produce": answer, "markers": bench.markers(topic)},
    )


GREATEST = 32_766
"""Short.MAX_VALUE - 1: from this epoch on the coordinator allocates a new producer id."""
TIMEOUT, PATIENCE = 2.0, 20.0


@case(
    "KAFKA-20090",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"greatest": True},
    control={"greatest": False},
)
def kafka_20090(bench: Bench, *, greatest: bool) -> Observation:
    """KAFKA-20090 (and 19367): a transaction with the largest producer epoch times out, and cannot
    be aborted."""
    topic = bench.topic()
    writer = bench.wire_transactional(timeout=TIMEOUT)
    while greatest and writer.producer.epoch < GREATEST:
        writer.producer = writer.wire.init_producer_id(writer.id, timeout=TIMEOUT)
    epoch = writer.producer.epoch
    written = writer.write((topic, 0), b"record", version=12)
    state = ""

    def aborted() -> bool:
        nonlocal state
        state = writer.wire.transaction_state(writer.id)[0]
        return state in ("CompleteAbort", "Empty") and bool(markers(bench.log(topic)))

    stuck = not happens("the abort", aborted, within=PATIENCE if greatest else WITHIN, every=0.2)
    late = _late_abort(writer)
    following = _taken_again(writer)
    found = markers(bench.log(topic))
    facts = {
        "epoch": epoch,
        "produce": written,
        "state_long_after_the_timeout": state,
        "late_abort": late,
        "init_producer_id_after_that": following,
        "markers": [one.words for one in found],
        "last_stable_offset": bench.bound("stable", topic),
        "high_watermark": bench.bound("high", topic),
    }
    return Observation(
        shown=stuck or following == "stuck" or any(one.producer_epoch < 0 for one in found),
        facts=facts,
    )


def _late_abort(writer: WireTransactional) -> str:
    """The client's own EndTxn(abort), after the coordinator's."""
    m = messages.request("end_txn", 5)
    who = writer.producer
    body = m.EndTxnRequest(
        transactional_id=writer.id, producer_id=who.id, producer_epoch=who.epoch, committed=False
    )
    return str(writer.wire.call("end_txn", 5, body).error_code.name)


def _taken_again(writer: WireTransactional) -> str:
    """Whether a new producer can initialise the transactional id within a minute."""
    try:
        given = writer.wire.init_producer_id(writer.id, timeout=TIMEOUT)
    except DeadlineExceeded:
        return "stuck"
    return (
        f"producer {'of the same id' if given.id == writer.producer.id else 'of a new id'}, epoch "
        f"{given.epoch}"
    )


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
        transaction(writer, topic, value, commit=commit)
    consumer = RawJavaConsumer(
        bench.java(), bench.bootstrap(), group, {}, name="KafkaShareConsumer"
    )
    bench.closing(consumer)
    consumer.subscribe(topic)
    read: list[str] = []

    def to_the_last() -> bool:
        read.extend(value.decode() for _, value in consumer.poll(0.5))
        return LAST in read

    wait_for("the share group to read to the end", to_the_last, state=lambda: read)
    return Observation(shown="aborted" in read, facts={"read": read})


@case("KIP-890-late-copy", ONE, claim={"late": True}, control={"late": False})
def late_copy(bench: Bench, *, late: bool) -> Observation:
    """A client sent a batch twice, on two connections. The broker reads the second copy when the
    transaction has been committed; the producer goes on with its next transaction, and with one
    more after it has aborted that."""
    topic = bench.topic()
    writer = bench.wire_transactional()
    writer.add((topic, 0))
    writer.write((topic, 0), b"first")
    writer.end(commit=True)
    facts = {"late copy": writer.repeat()} if late else {}
    for name in ("next transaction", "after an abort"):
        writer.add((topic, 0))
        facts[name], _ = writer.write((topic, 0), b"second")
        writer.end(commit=False)
    refused = facts["next transaction"] == "out_of_order_sequence_number"
    return Observation(shown=refused, facts={**facts})
