"""KAFKA-20090 (and 19367): a transaction with the largest producer epoch times out, and cannot be
aborted."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages

GREATEST = 32_766
"""Short.MAX_VALUE - 1: from this epoch on the coordinator allocates a new producer id."""
TIMEOUT, PATIENCE = 2.0, 20.0


@case(
    "KAFKA-20090",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"greatest": True},
    control={"greatest": False},
)
def kafka_20090(bench: Bench, *, greatest: bool) -> Observation:
    """KAFKA-20090 (and 19367): a transaction with the largest producer epoch times out, and cannot
    be aborted."""
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
