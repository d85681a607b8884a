"""KAFKA-18019: a producer whose transactional id expired and was taken over meanwhile recovers, and
fences its successor."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.clients import ClientFailed, Transactional
from linkflap.harness.model.wait import until


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
