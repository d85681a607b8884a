"""librdkafka issue 3297: after one failed commit every call of a transactional producer ends as
fenced, although no other producer has its transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, Producer

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

TIMEOUT_SECONDS: Final = 5
_LOOKS_OFTEN: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def _ended(call: Callable[[float], None] | Callable[[], None], *within: float) -> str:
    """How a call of the producer ended: ok, or the name of its error."""
    try:
        call(*within)
    except KafkaException as error:
        cause = error.args[0]
        return f"{cause.name()}{', fatal' if cause.fatal() else ''}"
    return "ok"


@case("librdkafka-3297", one(_LOOKS_OFTEN), claim={"late": True}, control={"late": False})
def librdkafka_3297(bench: Bench, *, late: bool) -> Observation:
    """librdkafka issue 3297: after one failed commit every call of a transactional producer ends as
    fenced, although no other producer has its transactional id."""
    topic, name = bench.topic(), bench.name("producer")
    own = {
        "transactional.id": name,
        "transaction.timeout.ms": 1000 * TIMEOUT_SECONDS,
        "linger.ms": 0,
        "error_cb": lambda _: None,
    }
    producer = Producer(quiet(bench.bootstrap()) | own)
    producer.init_transactions(WITHIN)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(WITHIN)
    if late:
        until(
            lambda: bench.ask(bench.up()).transaction_state(name)[0] == "CompleteAbort",
            within=WITHIN,
            what="the coordinator to abort the transaction after its timeout",
            every=0.2,
        )
    facts: dict[str, object] = {
        "first_commit": _ended(producer.commit_transaction, WITHIN),
        "commit_again": _ended(producer.commit_transaction, WITHIN) if late else "not called",
        "abort": _ended(producer.abort_transaction, WITHIN) if late else "not called",
        "next_transaction": _ended(producer.begin_transaction),
        "producers_of_this_id": 1,
        "read": [value.decode() for _, value in bench.read(topic)],
    }
    after = [facts[name] for name in ("commit_again", "abort", "next_transaction")]
    return Observation(shown=after == ["_FENCED, fatal"] * len(after), facts=facts)
