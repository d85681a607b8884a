"""Negative producer ids, as KIP-1279's draft of February 2026 mapped them: brokers track no
transaction of theirs (VK4, VK8)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.mirrors.shadow.log.producer_ids import negate


def _open_transaction(bench: Bench, *, mapped: bool) -> Observation:
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


CASE = Case(
    name="VK4-negative-ids",
    title=(
        "Records of an open transaction are visible to read_committed when the producer id is "
        "negative"
    ),
    kind="proposal",
    claim_text=(
        "KIP-1279's draft of February 2026 writes -(pid + 2) into mirrored batches. A stock broker "
        "takes any negative id for none (AbstractRecordBatch.hasProducerId): no open transaction, "
        "LSO = high watermark, aborted and open records are visible."
    ),
    sources=(
        "KIP-1279 discussion, VK4 and VK8 (Vaquar Khan, February 2026)",
        "DefaultRecordBatch.hasProducerId: producerId > -1",
    ),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        "1. a transactional batch with producer id -(pid + 2) is appended, and no marker; 2. a "
        "read_committed consumer reads"
    ),
    reproduced=(
        "LSO = high watermark with the transaction open, and read_committed gets its records"
    ),
    control_text=(
        "the same batch with the id that the coordinator gave: LSO stays at 0, read_committed gets "
        "nothing"
    ),
    refuted="an LSO below the batch of the negative id, or a broker that refuses it",
    topology=ONE,
    claim=lambda bench: _open_transaction(bench, mapped=True),
    control=lambda bench: _open_transaction(bench, mapped=False),
    clients=("wire",),
)
