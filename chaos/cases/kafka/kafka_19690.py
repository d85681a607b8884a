"""KAFKA-19690: after a transaction timed out, a produce is refused with INVALID_TXN_STATE (fatal)
instead of INVALID_PRODUCER_EPOCH."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.wait import until


def _paused(bench: Bench, *, past_its_timeout: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-19690",
    title=(
        "A client that continues after its transaction timed out gets INVALID_TXN_STATE, which "
        "is fatal, instead of INVALID_PRODUCER_EPOCH"
    ),
    kind="defect",
    claim_text=(
        "A leader checks the coordinator's verification before the epoch. So a producer whose "
        "transaction was aborted by its timeout gets INVALID_TXN_STATE, from which it cannot "
        "recover, instead of INVALID_PRODUCER_EPOCH, which is abortable."
    ),
    sources=("KAFKA-19690 (Apache JIRA): up to 3.9.1, 4.0.x, 4.1.0; fixed in 3.9.2, 4.1.1",),
    expected=(
        Expected(shows=True, until="3.9.1"),
        Expected(shows=False, since="3.9.2", until="3.9.9"),
        Expected(shows=True, since="4.0.0", until="4.1.0"),
        Expected(shows=False, since="4.1.1"),
    ),
    schedule=(
        "1. a transaction with a timeout of 1 s writes; 2. the coordinator aborts it; 3. the "
        "client continues to write with its old epoch"
    ),
    reproduced="the answer to the produce is INVALID_TXN_STATE",
    control_text="the same within the timeout: the produce is accepted",
    refuted="INVALID_PRODUCER_EPOCH",
    tried=(
        "a client that writes after its transaction timed out gets INVALID_PRODUCER_EPOCH on "
        "each of these releases. The issue needs the marker to arrive between a leader's "
        "verification and its append, which no schedule can cause from outside"
    ),
    topology=one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim=lambda bench: _paused(bench, past_its_timeout=True),
    control=lambda bench: _paused(bench, past_its_timeout=False),
    clients=("wire",),
    protocols=("", "V1"),
)
