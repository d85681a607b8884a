"""KIP-98: read_committed gets no aborted and no open records, and all or nothing of a
transaction."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench, Isolation
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE

CLIENTS = ("librdkafka", "java")
PARTITIONS = 3


def _aborted(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        writer.commit() if commit else writer.abort()
    read = [value.decode() for _, value in bench.read(topic, isolation)]
    return Observation(shown="aborted" in read, facts={"read": read})


def _open(bench: Bench, isolation: Isolation) -> Observation:
    topic = bench.topic()
    writer = bench.transactional()
    writer.begin()
    writer.send(topic, b"open")
    writer.flush()
    read = [value.decode() for _, value in bench.read(topic, isolation)]
    writer.abort()
    return Observation(shown="open" in read, facts={"read": read})


def _torn(bench: Bench, isolation: Isolation) -> Observation:
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


def _case(name: str, title: str, anomaly: str, schedule: str, steps: object) -> Case:
    return Case(
        name=name,
        title=title,
        kind="guarantee",
        claim_text=f"Anomaly: {anomaly}.",
        sources=("KIP-98, isolation of consumers",),
        expected=(Expected(shows=False, basis="runs"),),
        schedule=schedule,
        reproduced=f"{anomaly}, with isolation.level=read_committed",
        control_text="the same with isolation.level=read_uncommitted, which shows it",
        refuted=anomaly,
        topology=ONE,
        claim=lambda bench: steps(bench, "read_committed"),  # type: ignore[operator]
        control=lambda bench: steps(bench, "read_uncommitted"),  # type: ignore[operator]
        control_shows=True,
        clients=CLIENTS,  # type: ignore[arg-type]
        protocols=("", "V1"),
    )


CASES = [
    _case(
        "KIP-98-aborted-read",
        "A read_committed consumer gets no aborted record",
        "a consumer gets a record of an aborted transaction",
        "1. a transaction is committed; 2. another one is aborted; 3. a consumer reads",
        _aborted,
    ),
    _case(
        "KIP-98-open-read",
        "A read_committed consumer gets no record of an open transaction",
        "a consumer gets a record of an open transaction",
        "1. a transaction writes, and is not ended; 2. a consumer reads",
        _open,
    ),
    _case(
        "KIP-98-atomic",
        "A transaction over three partitions is visible in all of them or in none",
        "some partitions show a record of an open or aborted transaction, or lack one of a "
        "committed one",
        "1. a transaction writes to three partitions; 2. all are read before and after it is "
        "aborted; 3. one is committed",
        _torn,
    ),
]
