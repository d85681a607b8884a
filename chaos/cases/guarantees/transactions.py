"""Isolation of consumers, and requests that come after a transaction has ended (KIP-98, KIP-890,
KIP-1163)."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import ONE, Bench, Isolation, one, transaction, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.wait import pause

PARTITIONS = 3
COMMITTED: Final = {"isolation": "read_committed"}
UNCOMMITTED: Final = {"isolation": "read_uncommitted"}


@case("KIP-98-aborted-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
def aborted(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        transaction(writer, topic, value, commit=commit)
    read = bench.texts(topic, isolation)
    return Observation(shown="aborted" in read, facts={"read": read})


@case("KIP-98-open-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
def still_open(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    writer.begin()
    writer.send(topic, b"open")
    writer.flush()
    read = bench.texts(topic, isolation)
    writer.abort()
    return Observation(shown="open" in read, facts={"read": read})


@case("KIP-98-atomic", ONE, claim=COMMITTED, control=UNCOMMITTED)
def torn(bench: Bench, isolation: Isolation) -> Observation:
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


TIMEOUT = 1.5
_NOT_FENCED = {"broker.session.timeout.ms": "90000"}
"""A suspended broker remains the leader: without a leader, 4.3 drops the coordinator's marker
(KAFKA-20734)."""


@case(
    "KIP-1163-late-commit",
    one(_NOT_FENCED | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"suspended": True},
    control={"suspended": False},
)
def late_commit(bench: Bench, *, suspended: bool) -> Observation:
    """Suspends the broker between the produce and the marker, longer than the transaction timeout,
    and resumes it."""
    topic = bench.topic()
    writer = WireTransactional(bench, timeout=TIMEOUT if suspended else 60.0)
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
    found = [one.words for one in markers(bench.log(topic))]
    facts = {"produce": written, "commit": answer, "markers": found, "read_committed": read}
    return Observation(shown=answer == "none" or bool(read), facts=facts)


@case("KIP-890-late-end", ONE, claim={"v2": True}, control={"v2": False})
def transactions_v2(bench: Bench, *, v2: bool) -> Observation:
    """The end of T1 arrives again while T2, which its producer will abort, is open."""
    topic = bench.topic()
    writer = WireTransactional(bench)
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
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown="second, to be aborted" in read, facts=facts)


def _write(writer: WireTransactional, topic: str, value: bytes, *, v2: bool) -> None:
    if not v2:
        writer.add((topic, 0))
    writer.write((topic, 0), value, version=12 if v2 else 9)


def _end(writer: WireTransactional, *, v2: bool, commit: bool) -> str:
    return writer.end_v2(commit=commit) if v2 else writer.end(commit=commit)


@case("KIP-890-late-produce", ONE, claim={"verification": True}, control={"verification": False})
def verification(bench: Bench, *, verification: bool) -> Observation:
    """The network delays a produce of the transaction, so that it arrives after the marker."""
    if not verification:
        bench.setting("transaction.partition.verification.enable", "false")
    topic = bench.topic()
    writer = WireTransactional(bench)
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
