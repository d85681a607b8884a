"""KAFKA-18019: a producer whose transactional id expired and was taken over meanwhile recovers, and
fences its successor."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.clients import ClientFailed, Transactional
from linkflap.harness.model.wait import until


def _played(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    zombie = bench.transactional("writer")
    _commit(zombie, topic, b"first")
    if expire:
        gone = "(transactional_id_not_found)"
        until(
            lambda: asked.transaction_state(bench.name("writer"))[0] == gone,
            within=WITHIN,
            what="the id to expire",
            every=0.2,
        )
    successor = bench.transactional("writer")
    _commit(successor, topic, b"of the successor")
    answers = []
    for attempt in range(2):
        try:
            _commit(zombie, topic, b"of the zombie %d" % attempt)
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
        _commit(successor, topic, b"again of the successor")
        after = "committed"
    except ClientFailed as error:
        after = error.name
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {"zombie": answers, "successor_after_that": after, "read_committed": read}
    return Observation(shown="committed" in answers, facts=facts)


def _commit(producer: Transactional, topic: str, value: bytes) -> None:
    producer.begin()
    producer.send(topic, value)
    producer.flush()
    producer.commit()


CASE = Case(
    name="KAFKA-18019",
    title=(
        "After its transactional id has expired, a replaced producer recovers, continues to "
        "write, and fences its successor"
    ),
    kind="defect",
    claim_text=(
        "The client treats INVALID_PRODUCER_ID_MAPPING as recoverable: it aborts, requests a new "
        "epoch for the transactional id, and continues, although another producer has taken the "
        "id over. The error must be fatal."
    ),
    sources=(
        "KAFKA-18019 (Apache JIRA): Java client up to 3.9; fatal since 4.0 (KIP-1050)",
        "KIP-360",
    ),
    expected=(
        Expected(shows=True, until="3.9.9", clients=("java",)),
        Expected(shows=False, since="4.0.0", clients=("java",)),
        Expected(shows=True, clients=("librdkafka",)),
    ),
    schedule=(
        "1. A commits; 2. its transactional id expires; 3. B takes the id and commits; 4. A writes,"
        " aborts, writes and commits"
    ),
    reproduced="A's second attempt is committed",
    control_text="the same without the expiry: A is fenced",
    refuted="A fails for good at its first attempt",
    tried=(
        "the Java client of 3.9.2 does treat INVALID_PRODUCER_ID_MAPPING as abortable, but is "
        "then fenced by its successor's producer id. No record of the zombie is committed, "
        "neither on 3.9.2 nor on 4.3.1"
    ),
    topology=one(
        {
            "transactional.id.expiration.ms": "3000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        }
    ),
    claim=lambda bench: _played(bench, expire=True),
    control=lambda bench: _played(bench, expire=False),
    clients=("java", "librdkafka"),
)
