"""KAFKA-19367: with transactions V2, InitProducerId during an open transaction raises the epoch
twice."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KAFKA-19367", ONE, claim={"opened": True}, control={"opened": False})
def kafka_19367(bench: Bench, *, opened: bool) -> Observation:
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
