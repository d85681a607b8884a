"""KIP-98: read_committed gets no aborted and no open records, and all or nothing of a
transaction."""

from __future__ import annotations

from typing import Final

from linkflap.chaos.cases.bench import Bench, Isolation
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE

PARTITIONS = 3
COMMITTED: Final = {"isolation": "read_committed"}
UNCOMMITTED: Final = {"isolation": "read_uncommitted"}


@case("KIP-98-aborted-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
def aborted(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        writer.commit() if commit else writer.abort()
    read = [value.decode() for _, value in bench.read(topic, isolation)]
    return Observation(shown="aborted" in read, facts={"read": read})


@case("KIP-98-open-read", ONE, claim=COMMITTED, control=UNCOMMITTED)
def still_open(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    writer.begin()
    writer.send(topic, b"open")
    writer.flush()
    read = [value.decode() for _, value in bench.read(topic, isolation)]
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
