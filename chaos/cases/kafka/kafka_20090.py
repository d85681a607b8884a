"""KAFKA-20090 (and 19367): a transaction with the largest producer epoch times out, and cannot be
aborted."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages

GREATEST = 32_766
"""Short.MAX_VALUE - 1: from this epoch on the coordinator allocates a new producer id."""
TIMEOUT, PATIENCE = 2.0, 20.0


def _timed_out(bench: Bench, *, greatest: bool) -> Observation:
    topic = bench.topic()
    writer = WireTransactional(bench, timeout=TIMEOUT)
    while greatest and writer.producer.epoch < GREATEST:
        writer.producer = writer.wire.init_producer_id(writer.id, timeout=TIMEOUT)
    epoch = writer.producer.epoch
    written = writer.write((topic, 0), b"record", version=12)
    state = ""

    def aborted() -> bool:
        nonlocal state
        state = writer.wire.transaction_state(writer.id)[0]
        return state in ("CompleteAbort", "Empty") and bool(markers(bench.log(topic)))

    try:
        until(aborted, within=PATIENCE if greatest else WITHIN, what="the abort", every=0.2)
        stuck = False
    except DeadlineExceeded:
        stuck = True
    late = _late_abort(writer)
    following = _taken_again(writer)
    found = markers(bench.log(topic))
    facts = {
        "epoch": epoch,
        "produce": written,
        "state_long_after_the_timeout": state,
        "late_abort": late,
        "init_producer_id_after_that": following,
        "markers": [one.words for one in found],
        "last_stable_offset": bench.bound("stable", topic),
        "high_watermark": bench.bound("high", topic),
    }
    return Observation(
        shown=stuck or following == "stuck" or any(one.producer_epoch < 0 for one in found),
        facts=facts,
    )


def _late_abort(writer: WireTransactional) -> str:
    """The client's own EndTxn(abort), after the coordinator's."""
    m = messages.request("end_txn", 5)
    who = writer.producer
    body = m.EndTxnRequest(
        transactional_id=writer.id, producer_id=who.id, producer_epoch=who.epoch, committed=False
    )
    return str(writer.wire.call("end_txn", 5, body).error_code.name)


def _taken_again(writer: WireTransactional) -> str:
    """Whether a new producer can initialise the transactional id within a minute."""
    try:
        given = writer.wire.init_producer_id(writer.id, timeout=TIMEOUT)
    except DeadlineExceeded:
        return "stuck"
    return (
        f"producer {'of the same id' if given.id == writer.producer.id else 'of a new id'}, epoch "
        f"{given.epoch}"
    )


CASE = Case(
    name="KAFKA-20090",
    title="A transaction whose producer has the largest epoch times out and stays open for ever",
    kind="defect",
    claim_text=(
        "With transactions V2, the abort of a timed-out transaction raises the epoch twice, for "
        "the fencing and for the end. At the largest epoch that overflows: every attempt to "
        "abort fails, and the last stable offset does not advance."
    ),
    sources=(
        "KAFKA-20090 (Apache JIRA): stuck in Ongoing, fixed in 4.3",
        "KAFKA-19367: a negative epoch, up to 4.0.0",
    ),
    expected=(
        Expected(shows=True, since="4.0.0", until="4.2.1"),
        Expected(shows=False, since="4.3.0"),
    ),
    schedule=(
        f"1. InitProducerId until the epoch is {GREATEST}; 2. a transaction (V2) writes; 3. its "
        f"timeout of {TIMEOUT} s expires; 4. the client's own EndTxn(abort) arrives; 5. a new "
        "producer takes the id"
    ),
    reproduced=(
        "the transaction is Ongoing, the id cannot be initialised again, or a marker has a "
        "negative epoch"
    ),
    control_text="the same at epoch 0: aborted within seconds of the timeout",
    refuted="an ABORT marker with an epoch above 0",
    tried=(
        "a V2 transaction with epoch 32766 that times out is aborted on 4.2.0 with epoch 32767; the"
        " client's late abort is accepted, and a new producer gets the id, with a new producer id"
    ),
    topology=one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim=partial(_timed_out, greatest=True),
    control=partial(_timed_out, greatest=False),
    runs=1,
    clients=("wire",),
    oldest="4.0.0",
)
