"""Transactions whose markers do not reach every partition: KAFKA-20734, KAFKA-16352,
KAFKA-17877."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from linkflap.chaos.cases.bench import (
    THREE,
    Bench,
    happens,
    markers,
    nodes,
    table,
    transaction,
    wait_for,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clients import Transactional
from linkflap.chaos.cases.wire import ProducerIdentity, Wire
from linkflap.harness.model.protocols import Broker
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.messages import Message
from linkflap.harness.wire.requests import coordinating_partition

RECORDS = 10
ENDED = ("CompleteCommit", "CompleteAbort", "Empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderless:
    """A transaction of ten acknowledged records in a topic whose only broker is dead."""

    producer: Transactional
    coordinator: Broker
    home: Broker
    topic: str


def leaderless(bench: Bench) -> Leaderless:
    """Writes the transaction and kills the broker, which is not the coordinator. Returns once the
    coordinator knows that the topic has no leader."""
    producer = bench.transactional("writer")
    coordinator = bench.coordinator(bench.name("writer"))
    home = bench.other(coordinator)
    topic = bench.topic(replicas=[home.id])
    producer.begin()
    for number in range(RECORDS):
        producer.send(topic, b"first %d" % number)
    producer.flush()
    home.kill()
    bench.unled(topic, by=coordinator)
    return Leaderless(producer=producer, coordinator=coordinator, home=home, topic=topic)


def completed(bench: Bench, coordinator: Wire) -> str:
    """Waits until the coordinator reports the writer's transaction as complete. Returns its
    state."""
    return wait_for(
        "the coordinator to call the transaction complete",
        lambda: (
            found
            if (found := coordinator.transaction_state(bench.name("writer"))[0]) in ENDED
            else None
        ),
    )


@case("KAFKA-20734", THREE, claim={"commit_while_down": True}, control={"commit_while_down": False})
def kafka_20734(bench: Bench, *, commit_while_down: bool) -> Observation:
    """KAFKA-20734: a commit that is acknowledged while a partition has no leader never gets its
    marker there."""
    made = leaderless(bench)
    producer, coordinator, home, topic = made.producer, made.coordinator, made.home, made.topic
    if not commit_while_down:
        home.start()
        bench.led(topic, by=coordinator)
    seconds = _timed(producer.commit)
    asked = bench.ask(coordinator)
    while_down = _state_while_down(asked, bench.name("writer")) if commit_while_down else ""
    if commit_while_down:
        home.start()
        bench.led(topic, by=coordinator)
    state = completed(bench, asked)
    before = bench.log(topic, broker=home.id)
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    visible = len(bench.read(topic))
    transaction(producer, topic, b"aborted", commit=False)
    wait_for(
        "the next marker",
        lambda: len(markers(bench.log(topic, broker=home.id))) > len(markers(before)),
    )
    wait_for(
        "the LSO to move on", lambda: bench.bound("stable", topic) == bench.bound("high", topic)
    )
    after = bench.log(topic, broker=home.id)
    read = [value for _, value in bench.read(topic)]
    facts = {
        "commit_seconds": seconds,
        "state_while_down": while_down,
        "state_after": state,
        "markers_after_commit": [one.words for one in markers(before)],
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed_after_commit": visible,
        "markers_after_the_next_abort": [one.words for one in markers(after)],
        "read_committed_after_the_next_abort": len(read),
        "log": table(after),
    }
    lost = not markers(before) and stable < high and not read
    return Observation(shown=lost, facts=facts)


def _state_while_down(asked: Wire, transactional_id: str) -> str:
    """The coordinator's state of a transaction without a reachable leader: complete at once, or not
    within 2 s."""
    state = ""

    def complete() -> bool:
        nonlocal state
        state = asked.transaction_state(transactional_id)[0]
        return state in ENDED

    happens("the transaction to be complete", complete, within=2)
    return state


def _timed(act: object) -> float:
    began = time.monotonic()
    act()  # type: ignore[operator]
    return round(time.monotonic() - began, 3)


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
    transaction(producer, topic, b"committed")
    wait_for(
        "the LSO to reach the end of the log",
        lambda: bench.bound("stable", topic) == bench.bound("high", topic) > high,
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


TRANSACTIONS = "__transaction_state"


def _send_unfinished(producer: Transactional, topic: str) -> None:
    """A transaction whose records are delivered and that is not ended."""
    producer.begin()
    for number in range(RECORDS):
        producer.send(topic, b"committed %d" % number)
    producer.flush()


@case(
    "KAFKA-20734-three-replicas",
    nodes(7),
    claim={"replicas": 3, "commit_while_down": True},
    control={"replicas": 3, "commit_while_down": False},
)
@case(
    "KAFKA-20734-replicas",
    nodes(5),
    claim={"replicas": 2, "commit_while_down": True},
    control={"replicas": 2, "commit_while_down": False},
)
def kafka_20734_replicas(bench: Bench, *, replicas: int, commit_while_down: bool) -> Observation:
    """With more than two replicas, the others leave the ISR first, so that only the two that
    acknowledge the write remain."""
    producer = bench.transactional("writer")
    coordinator = bench.coordinator(bench.name("writer"))
    asked = bench.ask(coordinator)
    busy = asked.leadership(TRANSACTIONS)[0].replicas
    first, second, *others = [
        broker for broker in bench.cluster().brokers.values() if broker.id not in busy
    ][:replicas]
    everyone = (first, second, *others)
    topic = bench.topic(
        replicas=[broker.id for broker in everyone], config={"min.insync.replicas": "2"}
    )
    for broker in others:
        broker.kill()
    bench.in_sync(topic, first, second, by=asked)
    _send_unfinished(producer, topic)
    second.kill()
    first.kill()
    bench.unled(topic, by=coordinator)
    if commit_while_down:
        producer.commit()
    for broker in everyone:
        broker.start()
    bench.led(topic, by=coordinator)
    bench.in_sync(topic, *everyone, by=asked)
    if not commit_while_down:
        producer.commit()
    completed(bench, asked)
    before = {broker.id: markers(bench.log(topic, broker=broker.id)) for broker in everyone}
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    transaction(producer, topic, b"aborted", commit=False)
    wait_for(
        "the LSO to move on",
        lambda: bench.bound("stable", topic) == bench.bound("high", topic) > high,
    )
    read = bench.read(topic)
    facts = {
        "replicas": [broker.id for broker in everyone],
        "markers_after_commit": {
            str(number): [one.words for one in found] for number, found in before.items()
        },
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed_after_the_next_abort": len(read),
        "log": table(bench.log(topic, broker=first.id)),
    }
    return Observation(shown=not any(before.values()) and stable < high and not read, facts=facts)


PATIENT = nodes(3, {"broker.session.timeout.ms": "90000"})
"""A suspended broker is not fenced and remains the leader: without a leader, 4.3 drops the marker
(KAFKA-20734)."""

PATIENCE = 30.0
"""Seconds within which a marker has to arrive once all brokers run again."""


@case("KAFKA-16352", PATIENT, claim={"moves": 2}, control={"moves": 0})
@case(
    "KIP-1164-coordinator-moves", PATIENT, claim={"moves": 1}, control={"moves": 0, "commit": False}
)
def kafka_16352(bench: Bench, *, moves: int, commit: bool = True) -> Observation:
    """A commit is decided, and its marker cannot be delivered. The coordinator's partition moves to
    another broker and back. The pending entry of the first term is cleaned up late, and removes
    that of the second term with it: the transaction stays in PrepareCommit. Otherwise the marker
    arrives once the data partition's leader continues. A diskless log has to keep that guarantee
    too.

    Suspends the leader of the data partition, decides the commit, moves the coordinator's
    partition, and resumes the leader.
    """
    writer = bench.wire_transactional()
    home = bench.other(writer.coordinator)
    topic = bench.topic(replicas=[home.id])
    writer.add((topic, 0))
    writer.write((topic, 0), b"committed", to=bench.ask(home))
    partition = coordinating_partition(writer.id, len(writer.wire.leadership(TRANSACTIONS)))
    home.pause()
    answer = (
        writer.wire.end_transaction(writer.id, writer.producer, commit=True)
        if commit
        else "not asked for"
    )
    others = [
        broker
        for broker in bench.cluster().brokers.values()
        if broker.id not in (home.id, writer.coordinator.id)
    ]
    for turn in range(moves):
        bench.lead(TRANSACTIONS, partition, (others[0], writer.coordinator)[turn % 2])
    home.resume()
    state = ""

    def complete() -> bool:
        nonlocal state
        state = bench.ask(bench.coordinator(writer.id)).transaction_state(writer.id)[0]
        return state == "CompleteCommit" and bool(markers(bench.log(topic, broker=home.id)))

    patience = PATIENCE if commit else 3
    happens("the transaction to be complete", complete, within=patience, every=0.5)
    log = markers(bench.log(topic, broker=home.id))
    bench.led(topic, by=home)
    read = bench.texts(topic) if log else []
    facts = {
        "commit": answer,
        "state": state,
        "markers": [one.words for one in log],
        "read_committed": read,
    }
    return Observation(shown=state != "CompleteCommit" or not read, facts=facts)


OFFSETS = "__consumer_offsets"
PRODUCERS, ROUNDS, GROUP_PARTITION = 3, 10, 0


@case(
    "KAFKA-17877",
    nodes(3, {"group.coordinator.rebalance.protocols": "classic,consumer"}),
    claim={"moved": True},
    control={"moved": False},
)
def kafka_17877(bench: Bench, *, moved: bool) -> Observation:
    """Sends markers of several transactions, each for a data partition and a partition of
    __consumer_offsets. With `moved`, the broker does not coordinate that group."""
    bench.coordinator(bench.name("group"), 0)  # creates __consumer_offsets
    producers = [
        bench.wire_transactional(f"writer{number}").producer for number in range(PRODUCERS)
    ]
    coordinator = bench.ask(bench.up()).leadership(OFFSETS)[GROUP_PARTITION].leader
    home = next(
        broker for broker in bench.cluster().brokers.values() if (broker.id != coordinator) == moved
    )
    topic = bench.topic(replicas=[home.id], partitions=2)
    asked, request = bench.ask(home), _request(producers, topic)
    missing: list[str] = []
    errors: set[str] = set()
    for _ in range(ROUNDS):
        try:
            answer = asked.call("write_txn_markers", 1, request)
        except Unanswered as error:
            missing.append(f"no answer: {error}")
            break
        errors |= {
            str(p.error_code.name)
            for one in answer.markers
            for t in one.topics
            for p in t.partitions
        }
        missing += _left_out(
            answer, producers, {(topic, 0), (topic, 1), (OFFSETS, GROUP_PARTITION)}
        )
    return Observation(
        shown=bool(missing),
        facts={"rounds": ROUNDS, "left_out": missing[:5], "errors": sorted(errors)},
    )


def _request(producers: Sequence[ProducerIdentity], topic: str) -> Message:
    m = messages.request("write_txn_markers", 1)
    marked = tuple(
        m.WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            coordinator_epoch=0,
            topics=(
                m.WritableTxnMarkerTopic(name=topic, partition_indexes=(0, 1)),
                m.WritableTxnMarkerTopic(name=OFFSETS, partition_indexes=(GROUP_PARTITION,)),
            ),
        )
        for producer in producers
    )
    return m.WriteTxnMarkersRequest(markers=marked)


def _left_out(
    answer: Message, producers: Sequence[ProducerIdentity], asked: set[TopicPartition]
) -> Iterator[str]:
    """Producer -> the partitions without a result in a response."""
    for producer in producers:
        rows = [one for one in answer.markers if one.producer_id == producer.id]
        found = {
            (t.name, int(p.partition_index))
            for one in rows
            for t in one.topics
            for p in t.partitions
        }
        if absent := asked - found:
            yield f"producer {producer.id}: {sorted(absent)}"
