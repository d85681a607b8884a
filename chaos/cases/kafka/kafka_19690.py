"""KAFKA-19690: after a transaction timed out, a produce is refused with INVALID_TXN_STATE (fatal)
instead of INVALID_PRODUCER_EPOCH."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.wait import until


@case(
    "KAFKA-19690",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"past_its_timeout": True},
    control={"past_its_timeout": False},
)
def kafka_19690(bench: Bench, *, past_its_timeout: bool) -> Observation:
    """The client pauses beyond its transaction timeout, the coordinator aborts, then the client
    continues to write."""
    topic = bench.topic()
    writer = WireTransactional(bench, timeout=1.0 if past_its_timeout else 60.0)
    writer.add((topic, 0))
    writer.write((topic, 0), b"before")
    if past_its_timeout:
        until(
            lambda: markers(bench.log(topic)),
            within=WITHIN,
            what="the coordinator to abort the transaction",
        )
        writer.settled()
    answer = writer.write((topic, 0), b"after the pause")
    if not past_its_timeout:
        writer.end(commit=False)
    return Observation(
        shown=answer[0] == "invalid_txn_state",
        facts={"produce": answer, "markers": [one.words for one in markers(bench.log(topic))]},
    )
