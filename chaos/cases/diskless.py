"""Topics without a log on disk (KIP-1150, KIP-1163), on one broker of a build that has them, or on
three that share a control plane and a store. Where a case is about what is different, the control
plays the same on a classic topic of that broker.

What such topics must do as all topics do is in `guarantees`, with their settings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from linkflap.chaos.cases.bench import (
    DISKLESS,
    ON_DISKLESS,
    THREE_DISKLESS,
    WITHIN,
    Bench,
    happens,
    one,
    transaction,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import RawJavaProducer, answer_to
from linkflap.chaos.cases.wire import ProducerIdentity, record_batch
from linkflap.harness.model.errors import EnvironmentFailure

HERE: Final[dict[str, Any]] = {"config": {}}
CLASSIC: Final[dict[str, Any]] = {"config": {"diskless.enable": "false"}}


@case(
    "KIP-1163-epoch-bump-lost",
    DISKLESS,
    topics=ON_DISKLESS,
    claim=HERE | {"records": 1},
    control=CLASSIC | {"records": 1},
)
@case(
    "KIP-1163-epoch-bump-refused",
    DISKLESS,
    topics=ON_DISKLESS,
    claim=HERE | {"records": 2},
    control=CLASSIC | {"records": 2},
)
def epoch_bump(bench: Bench, *, config: Mapping[str, str], records: int) -> Observation:
    """A producer without a transactional id has raised its epoch by itself, as Kafka's Java client
    does after a batch that timed out (KIP-360), and begins with sequence 0 again."""
    topic = bench.topic(config=config)
    asked = bench.ask(bench.up())
    drawn = asked.init_producer_id()
    answers = [
        asked.produce((topic, 0), record_batch([value], producer=drawn, sequence=sequence))
        for sequence, value in enumerate((b"before", b"before too"))
    ]
    raised = ProducerIdentity(id=drawn.id, epoch=drawn.epoch + 1)
    batch = record_batch([b"after"] * records, producer=raised, sequence=0)
    error, offset = asked.produce((topic, 0), batch)
    log = bench.logged(topic)
    missing = error == "none" and "after" not in log
    facts = {"before": answers, "after": [error, offset], "log": log}
    return Observation(shown=missing if records == 1 else error != "none", facts=facts)


@case(
    "KIP-1163-epoch-bump-client",
    DISKLESS,
    topics=ON_DISKLESS,
    claim=HERE,
    control=CLASSIC,
)
def epoch_bump_client(bench: Bench, *, config: Mapping[str, str]) -> Observation:
    """The broker is suspended until a batch of Kafka's Java producer has timed out; then it takes
    what the producer sends next."""
    topic = bench.topic(config=config)
    settings = {
        "enable.idempotence": True,
        "acks": "all",
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 3000,
    }
    producer = RawJavaProducer(bench.java(), bench.bootstrap(), settings)
    bench.closing(producer)
    producer.send(topic, b"first")
    producer.flush()
    bench.broker().pause()
    try:
        producer.send(topic, b"times out")
        timed_out = answer_to(producer.flush)
    finally:
        bench.broker().resume()
    if timed_out == "none":
        raise EnvironmentFailure("a batch to a suspended broker was acknowledged")
    answers: list[str] = []

    def answered() -> bool:
        producer.send(topic, b"after %d" % len(answers))
        answers.append(answer_to(producer.flush))
        return answers[-1] == "none"

    happens("a record to be acknowledged", answered, within=WITHIN / 2)
    log = bench.logged(topic)
    lost = [n for n, answer in enumerate(answers) if answer == "none" and f"after {n}" not in log]
    facts = {"timed_out": timed_out, "after_it": answers, "acknowledged_and_lost": lost, "log": log}
    return Observation(shown=bool(lost), facts=facts)


LATER: Final = 10
"""Objects that are written after the first one, to a cache of one."""


@case(
    "KIP-1163-read-later",
    one({"diskless.storage.system.enable": "true", "inkless.consume.cache.max.count": "1"}),
    topics=ON_DISKLESS,
    claim={"later": LATER},
    control={"later": 0},
)
def read_later(bench: Bench, *, later: int) -> Observation:
    """A record is read from the store, after its object has left the cache."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    bench.write(topic, [b"first"])
    at_once, _ = asked.fetch((topic, 0), 0)
    for n in range(later):
        bench.write(topic, [b"later %d" % n])
    errors: list[str] = []

    def refused() -> bool:
        errors.append(asked.fetch((topic, 0), 0)[0])
        return errors[-1] != "none"

    happens("the broker to refuse the first record", refused, within=5, every=0.2)
    start = bench.bound("start", topic)
    facts = {"read_at_once": at_once, "read_later": errors[-1], "log_start": start}
    return Observation(shown=at_once == "none" != errors[-1] and start == 0, facts=facts)


ROUNDS: Final = 10
SWITCHED: Final = 3
"""Records before a topic is switched, and after that."""


@case(
    "KIP-1163-fetch-after-ack",
    DISKLESS,
    topics=ON_DISKLESS,
    claim={"acks": "all"},
    control={"acks": "0"},
)
def fetch_after_ack(bench: Bench, acks: str) -> Observation:
    """Fetches at the end of the log, so that whatever the broker caches of it is warm, and again
    right after the next record was sent."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = bench.producer(acks=acks)
    missed = []
    for n in range(ROUNDS):
        asked.fetch((topic, 0), n)
        producer.produce(topic, b"%d" % n, partition=0)
        if producer.flush(WITHIN):
            raise EnvironmentFailure(f"{topic} could not be written")
        if not asked.fetch((topic, 0), n)[1]:
            missed.append(n)
        bench.ends_at(n + 1, topic, cluster="A")
    log = bench.log(topic)
    offsets = [(batch.base_offset, batch.last_offset) for batch in log]
    gaps = [first for first, n in zip(offsets, range(ROUNDS), strict=True) if first != (n, n)]
    facts = {"missed": missed, "out_of_place": gaps, "log": bench.logged(topic)}
    return Observation(shown=bool(missed or gaps), facts=facts)


@case(
    "KIP-1163-fetch-elsewhere",
    THREE_DISKLESS,
    topics=ON_DISKLESS,
    claim={"acknowledged": True},
    control={"acknowledged": False},
)
def fetch_elsewhere(bench: Bench, *, acknowledged: bool) -> Observation:
    """Fetches at the end of the log from one broker, and again once another one has acknowledged
    the next record, or just before."""
    topic = bench.topic(copies=1)
    writer, reader = (bench.ask(bench.broker(number)) for number in (1, 2))
    missed, answers = [], []
    for n in range(ROUNDS):
        _, got = reader.fetch((topic, 0), n)
        answers.append(writer.produce((topic, 0), record_batch([b"%d" % n])))
        if acknowledged:
            _, got = reader.fetch((topic, 0), n)
        if not got:
            missed.append(n)
    facts = {"answers": answers, "missed": missed, "log": bench.logged(topic, broker=2)}
    gaps = answers != [("none", n) for n in range(ROUNDS)]
    return Observation(shown=bool(missed) or gaps, facts=facts)


@case(
    "KIP-1163-repeat-elsewhere",
    THREE_DISKLESS,
    topics=ON_DISKLESS,
    claim={"idempotent": True},
    control={"idempotent": False},
)
def repeat_elsewhere(bench: Bench, *, idempotent: bool) -> Observation:
    """A producer's batches go to two brokers in turn, and each is repeated at the other one."""
    topic = bench.topic(copies=1)
    brokers = [bench.ask(bench.broker(number)) for number in (1, 2)]
    drawn = brokers[0].init_producer_id() if idempotent else None
    answers = []
    for n in range(ROUNDS):
        batch = record_batch([b"%d" % n], producer=drawn, sequence=n if idempotent else -1)
        first, other = brokers[n % 2], brokers[1 - n % 2]
        answers += [first.produce((topic, 0), batch), other.produce((topic, 0), batch)]
    log = bench.logged(topic)
    shown = log != [str(n) for n in range(ROUNDS)]
    return Observation(shown=shown, facts={"answers": answers, "log": log})


@case(
    "KIP-1163-transaction",
    DISKLESS,
    topics=ON_DISKLESS,
    claim=HERE,
    control=CLASSIC,
)
def refused_transaction(bench: Bench, *, config: Mapping[str, str]) -> Observation:
    """One transaction over a classic topic and another one, which is committed as far as the client
    lets it."""
    topic = bench.topic(config=config)
    beside = bench.topic("beside", config=CLASSIC["config"])
    writer = bench.transactional()
    answers = {}
    calls = {
        "begin": writer.begin,
        "send beside": lambda: writer.send(beside, b"beside"),
        "send": lambda: writer.send(topic, b"record"),
        "flush": writer.flush,
        "commit": writer.commit,
    }
    answers.update({name: answer_to(call) for name, call in calls.items()})
    if answers["commit"] != "none":
        answers["abort"] = answer_to(writer.abort)
        answers["next"] = answer_to(lambda: transaction(writer, beside, b"next"))
    facts = {
        "answers": answers,
        "read_committed": bench.texts(topic),
        "beside": bench.texts(beside),
    }
    return Observation(shown=answers["commit"] != "none", facts=facts)


@case(
    "KIP-1163-made-anew",
    DISKLESS,
    topics=ON_DISKLESS,
    claim={"deleted": True},
    control={"deleted": False},
)
def made_anew(bench: Bench, *, deleted: bool) -> Observation:
    """A topic of a name that another had; a producer of the first one goes on with sequence 0."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    drawn = asked.init_producer_id()
    asked.produce((topic, 0), record_batch([b"old"] * 3, producer=drawn, sequence=0))
    if deleted:
        bench.delete_topic(topic)
        bench.topic()
    answer = asked.produce((topic, 0), record_batch([b"new"] * 3, producer=drawn, sequence=0))
    read = bench.read(topic)
    facts = {"produce": answer, "read": [[offset, value.decode()] for offset, value in read]}
    return Observation(shown=read != [(n, b"new") for n in range(3)], facts=facts)


@case(
    "KIP-1163-switched",
    DISKLESS,
    topics=CLASSIC["config"],
    claim={"anew": False},
    control={"anew": True},
)
def switched(bench: Bench, *, anew: bool) -> Observation:
    """A classic topic with records becomes a diskless one, as far as the broker lets it, and gets
    more records."""
    topic = bench.topic()
    bench.write(topic, [b"%d" % n for n in range(SWITCHED)])
    answer = "none"
    if anew:
        bench.delete_topic(topic)
        bench.topic(config=ON_DISKLESS)
    else:
        answer = answer_to(lambda: bench.topic_setting(topic, "diskless.enable", "true"))
    bench.write(topic, [b"%d" % n for n in range(SWITCHED, 2 * SWITCHED)])
    read = bench.read(topic)
    facts = {"answer": answer, "read": [[offset, value.decode()] for offset, value in read]}
    return Observation(shown=read != [(n, b"%d" % n) for n in range(2 * SWITCHED)], facts=facts)


MIDDLE: Final = 4
"""An offset in the middle of the second batch."""


@case(
    "KIP-1163-deleted-records",
    DISKLESS,
    topics=ON_DISKLESS,
    claim={"deleted": True},
    control={"deleted": False},
)
def deleted_records(bench: Bench, *, deleted: bool) -> Observation:
    """Records are deleted up to the middle of the second batch."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    for n in range(3):
        asked.produce((topic, 0), record_batch([b"batch %d" % n] * 3))
    if deleted:
        admin = bench.admin()
        upto = TopicPartition(topic, 0, MIDDLE)
        (answer,) = admin.delete_records([upto]).values()
        answer.result(WITHIN)
    start = bench.bound("start", topic)
    below = asked.fetch((topic, 0), MIDDLE - 1)[0]
    read = [offset for offset, _ in bench.read(topic)]
    facts = {"log_start": start, "fetch_below_it": below, "read": read}
    wanted = (MIDDLE, "offset_out_of_range", list(range(MIDDLE, 9)))
    return Observation(shown=(start, below, read) != wanted, facts=facts)


@case(
    "KIP-1163-offset-for-time",
    DISKLESS,
    topics=ON_DISKLESS,
    claim=HERE,
    control=CLASSIC,
)
def offset_for_time(bench: Bench, *, config: Mapping[str, str]) -> Observation:
    """Asks for the first offset of a time, between two records of one batch."""
    topic = bench.topic(config=config)
    producer = bench.producer(linger_ms=1000, enable_idempotence=True)
    now = int(time.time() * 1000)
    times = [now - 1000 * n for n in (4, 3, 2, 1)]
    for at in times:
        producer.produce(topic, b"%d" % at, timestamp=at, partition=0)
    if producer.flush(WITHIN):
        raise EnvironmentFailure(f"{topic} could not be written")
    admin = bench.admin()
    wanted = times[2]
    asked = {TopicPartition(topic, 0): OffsetSpec.for_timestamp(wanted)}
    (answer,) = admin.list_offsets(asked).values()
    found = answer.result(WITHIN)
    batches = [[batch.base_offset, batch.last_offset] for batch in bench.log(topic)]
    facts = {"batches": batches, "asked": wanted, "offset": found.offset, "time": found.timestamp}
    return Observation(shown=(found.offset, found.timestamp) != (2, wanted), facts=facts)


RETAINING: Final = one(
    {
        "diskless.storage.system.enable": "true",
        "inkless.retention.enforcement.interval.ms": "1000",
        "log.initial.task.delay.ms": "15000",
    }
)
MADE_WITHIN: Final = 8.0
"""Seconds after its start in which a broker must have the topic: it looks for new ones after
log.initial.task.delay.ms, and then every five minutes."""
BATCHES: Final = 10
KEPT: Final = 3
_OLD: Final = 3_600_000
"""How old the batches are that retention is to delete, in ms."""


@case(
    "KIP-1163-retention",
    RETAINING,
    topics=ON_DISKLESS,
    claim={"limit": "bytes"},
    control={"limit": ""},
)
@case(
    "KIP-1163-retention-time",
    RETAINING,
    topics=ON_DISKLESS,
    claim={"limit": "ms"},
    control={"limit": ""},
)
def retention(bench: Bench, *, limit: str) -> Observation:
    """Ten batches of the same size in a topic that keeps three: by its retention.bytes, or by its
    retention.ms. Then the first seven are old. Others must not be: a consumer reads old records
    from the store, which the default one does not give."""
    now = int(time.time() * 1000)
    old = BATCHES - KEPT if limit == "ms" else 0
    times = [now - (_OLD if n < old else 0) for n in range(BATCHES)]
    batches = [record_batch([b"batch %d" % n], at=at) for n, at in enumerate(times)]
    limits = {"bytes": KEPT * len(batches[0]), "ms": _OLD // 2}
    settings = {f"retention.{name}": "-1" for name in limits}
    if limit:
        settings[f"retention.{limit}"] = str(limits[limit])
    bench.broker().stop()
    bench.settle()
    began = time.monotonic()
    topic = bench.topic(config=settings)
    if time.monotonic() - began > MADE_WITHIN:
        raise EnvironmentFailure(f"{topic} was made too late for its broker to find it")
    asked = bench.ask(bench.up())
    answers = [asked.produce((topic, 0), batch) for batch in batches]
    happens("the log start to move", lambda: bench.bound("start", topic), within=20, every=0.2)
    happens(  # what one pass deletes too much of, the next ones go on with
        "the log to be empty", lambda: bench.bound("start", topic) == BATCHES, within=4, every=0.2
    )
    start = bench.bound("start", topic)
    below = asked.fetch((topic, 0), max(0, start - 1))[0]
    read = [offset for offset, _ in bench.read(topic)]
    facts = {"produce": answers, "log_start": start, "fetch_below_it": below, "read": read}
    first = BATCHES - KEPT
    wanted = (first, "offset_out_of_range", list(range(first, BATCHES)))
    return Observation(shown=(start, below, read) != wanted, facts=facts)
