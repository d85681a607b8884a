"""KAFKA-20734: a commit that is acknowledged while a partition has no leader never gets its marker
there."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools import wire
from linkflap.chaos.cases.tools.clients import Transactional
from linkflap.chaos.cases.tools.logs import markers, table
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Broker
from linkflap.harness.model.wait import until

RECORDS = 10
CAUSE = (
    "TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue: no endpoint of a known partition "
    "is taken for a deleted one"
)
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
    home = next(
        broker for broker in bench.cluster().brokers.values() if broker.id != coordinator.id
    )
    topic = bench.topic(replicas=[home.id])
    producer.begin()
    for number in range(RECORDS):
        producer.send(topic, b"first %d" % number)
    producer.flush()
    home.kill()
    until(
        lambda: wire.leader(coordinator.client_address, topic) == -1,
        within=WITHIN,
        what=f"{topic} to have no leader",
    )
    return Leaderless(producer=producer, coordinator=coordinator, home=home, topic=topic)


def completed(bench: Bench, coordinator: Wire) -> str:
    """Waits until the coordinator reports the writer's transaction as complete. Returns its
    state."""
    return until(
        lambda: (
            found
            if (found := coordinator.transaction_state(bench.name("writer"))[0]) in ENDED
            else None
        ),
        within=WITHIN,
        what="the coordinator to call the transaction complete",
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
    producer.begin()
    producer.send(topic, b"aborted")
    producer.flush()
    producer.abort()
    until(
        lambda: len(markers(bench.log(topic, broker=home.id))) > len(markers(before)),
        within=WITHIN,
        what="the next marker",
    )
    until(
        lambda: bench.bound("stable", topic) == bench.bound("high", topic),
        within=WITHIN,
        what="the LSO to move on",
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

    with contextlib.suppress(DeadlineExceeded):
        until(complete, within=2, what="the transaction to be complete")
    return state


def _timed(act: object) -> float:
    began = time.monotonic()
    act()  # type: ignore[operator]
    return round(time.monotonic() - began, 3)
