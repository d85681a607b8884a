"""KAFKA-16352: a coordinator that lost its partition and leads it again waits for a marker for
ever. And what diskless commits need (KIP-1150).

A commit is decided, and its marker cannot be delivered. The coordinator's partition moves to
another broker and back. The pending entry of the first term is cleaned up late, and removes that of
the second term with it: the transaction stays in PrepareCommit. Otherwise the marker arrives once
the data partition's leader continues. A diskless log has to keep that guarantee too.
"""

from __future__ import annotations

import contextlib

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import nodes
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

PATIENT = nodes(3, {"broker.session.timeout.ms": "90000"})
"""A suspended broker is not fenced and remains the leader: without a leader, 4.3 drops the marker
(KAFKA-20734)."""

OFFICES = "__transaction_state"
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
    writer = WireTransactional(bench)
    home = next(
        broker for broker in bench.cluster().brokers.values() if broker.id != writer.coordinator.id
    )
    topic = bench.topic(replicas=[home.id])
    writer.add((topic, 0))
    writer.write_to(home, bench, (topic, 0), b"committed")
    office = _office(bench, writer)
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
        bench.lead(OFFICES, office, (others[0], writer.coordinator)[turn % 2])
    home.resume()
    state = ""

    def complete() -> bool:
        nonlocal state
        state = bench.ask(bench.coordinator(writer.id)).transaction_state(writer.id)[0]
        return state == "CompleteCommit" and bool(markers(bench.log(topic, broker=home.id)))

    with contextlib.suppress(DeadlineExceeded):
        until(
            complete,
            within=PATIENCE if commit else 3,
            what="the transaction to be complete",
            every=0.5,
        )
    log = markers(bench.log(topic, broker=home.id))
    bench.led(topic, by=home)
    read = [value.decode() for _, value in bench.read(topic)] if log else []
    facts = {
        "commit": answer,
        "state": state,
        "markers": [one.words for one in log],
        "read_committed": read,
    }
    return Observation(shown=state != "CompleteCommit" or not read, facts=facts)


def _office(bench: Bench, writer: WireTransactional) -> int:
    """The partition of __transaction_state that this id belongs to (Utils.abs of
    String.hashCode)."""
    code = 0
    for character in writer.id:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % len(writer.wire.leadership(OFFICES))


_SCHEDULE = (
    "1. three nodes; a topic with one replica, on a broker that is not the coordinator; 2. a "
    "transaction writes; 3. SIGSTOP of that broker; 4. EndTxn(commit) is accepted; 5. the "
    "coordinator's partition moves {how}; 6. SIGCONT"
)
