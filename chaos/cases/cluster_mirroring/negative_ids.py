"""Negative producer ids, as KIP-1279's draft of February 2026 mapped them: brokers track no
transaction of theirs (VK4, VK8)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.mirrors.shadow.log.producer_ids import negate


@case("VK4-negative-ids", ONE, claim={"mapped": True}, control={"mapped": False})
def negative_ids(bench: Bench, *, mapped: bool) -> Observation:
    """A batch of a transaction that is open; with the id as it is, or as the draft would have
    mapped it."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    own = writer.producer
    if mapped:
        batch = record_batch(
            [b"open"] * 3,
            producer=ProducerIdentity(id=negate(own.id), epoch=own.epoch),
            sequence=0,
            transactional=True,
        )
        answer = writer.wire.produce((topic, 0), batch, transactional_id=writer.id)
    else:
        writer.add((topic, 0))
        answer = writer.write((topic, 0), *[b"open"] * 3)
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    read = len(bench.read(topic))
    if not mapped:
        writer.end(commit=False)
    facts = {
        "producer_id": bench.log(topic)[0].producer_id if high else None,
        "produce": answer,
        "last_stable_offset": stable,
        "high_watermark": high,
        "read_committed": read,
    }
    return Observation(shown=high > 0 and stable == high and read > 0, facts=facts)
