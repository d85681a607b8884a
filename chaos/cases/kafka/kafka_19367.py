"""KAFKA-19367: with transactions V2, InitProducerId during an open transaction raises the epoch
twice."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _taken_over(bench: Bench, *, opened: bool) -> Observation:
    """A producer restarts while its predecessor's transaction is open, or complete."""
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
        "With transactions V2, InitProducerId during an open transaction raises the producer "
        "epoch once too often"
    ),
    kind="defect",
    claim_text=(
        "The coordinator raises the epoch to abort the predecessor's transaction, again when "
        "that completes, and once more for the answer. So a producer that restarts often uses up "
        "its epochs early, and at the largest epoch the next one is negative."
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
    reproduced="the returned epoch is more than two above the open transaction's",
    control_text="the same after the producer aborted the transaction itself",
    refuted="an epoch at most two above",
    topology=ONE,
    claim=partial(_taken_over, opened=True),
    control=partial(_taken_over, opened=False),
    clients=("wire",),
    oldest="4.0.0",
)
