"""KAFKA-19367: with transactions V2 InitProducerId over an open transaction raises the epoch
twice."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _taken_over(bench: Bench, *, opened: bool) -> Observation:
    """A producer comes back while its predecessor's transaction is open, or complete."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.write((topic, 0), b"record", version=12)
    if not opened:
        writer.end_v2(commit=False)
    before = writer.producer.epoch
    after = writer.wire.init_producer_id(writer.id)
    found = markers(bench.log(topic))
    facts = {
        "epoch_before": before,
        "epoch_given": after.epoch,
        "same_id": after.id == writer.producer.id,
        "epochs_of_markers": [one.producer_epoch for one in found],
    }
    return Observation(shown=opened and after.epoch > before + 2, facts=facts)


CASE = Case(
    name="KAFKA-19367",
    title=(
        "InitProducerId over an open transaction of V2 raises the producer's epoch once too often"
    ),
    kind="defect",
    claim_text=(
        "The abort of the predecessor's transaction raises the epoch, the completion raises it "
        "again, and the answer once more: a producer that is restarted often comes to the end of "
        "its epochs early, and at the boundary the epoch turns negative."
    ),
    sources=("KAFKA-19367 (Apache JIRA): fixed in 4.0.1 and 4.1.0", "KIP-890, part 2"),
    expected=(
        Expected(shows=True, since="4.0.0", until="4.0.0", basis="runs"),
        Expected(shows=False, since="4.0.1"),
    ),
    schedule=(
        "1. a transaction (V2) writes and stays open; 2. InitProducerId of the same "
        "transactional id"
    ),
    reproduced="the epoch that is given is more than two above the open transaction's",
    control_text="the same after the transaction was aborted by its producer",
    refuted="an epoch at most two above",
    topology=ONE,
    claim=partial(_taken_over, opened=True),
    control=partial(_taken_over, opened=False),
    clients=("wire",),
    oldest="4.0.0",
)
