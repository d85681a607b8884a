"""KIP-890, part 1 (KAFKA-14402): a produce that arrives after the end of its transaction does not
open a hanging one."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _late(bench: Bench, *, verification: bool) -> Observation:
    """The network delays a produce of the transaction, so that it arrives after the marker."""
    if not verification:
        bench.setting("transaction.partition.verification.enable", "false")
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.add((topic, 0))
    writer.write((topic, 0), b"in time")
    writer.end(commit=True)
    answer = writer.write((topic, 0), b"late")
    state = writer.wire.transaction_state(writer.id)
    stable, high = bench.bound("stable", topic), bench.bound("high", topic)
    if stable < high:  # nobody but an operator can end it (KIP-664)
        writer.wire.write_markers((topic, 0), writer.producer, commit=False)
    facts = {
        "late_produce": answer,
        "coordinator": state,
        "last_stable_offset": stable,
        "high_watermark": high,
    }
    return Observation(shown=stable < high, facts=facts)


CASE = Case(
    name="KIP-890-late-produce",
    title=(
        "A produce that arrives after its transaction's marker is refused, and opens no hanging "
        "transaction"
    ),
    kind="guarantee",
    claim_text=(
        "Anomaly (KAFKA-14402): a transactional produce after the marker opens a transaction "
        "that the coordinator does not know, and the last stable offset does not advance until "
        "an operator writes a marker. The verification is also the barrier that diskless topics "
        "(KIP-1150) need between a produce in flight and the marker."
    ),
    sources=(
        "KIP-890, part 1; KAFKA-14402 (hanging transactions)",
        "KIP-1150 discussion: commit barrier",
    ),
    expected=(Expected(shows=False, basis="runs"),),
    schedule="1. a transaction writes and is committed; 2. another produce of it arrives",
    reproduced=(
        "the produce is accepted, LSO < high watermark, and the coordinator has no open transaction"
    ),
    control_text=(
        "transaction.partition.verification.enable=false: the produce is accepted and the "
        "transaction hangs"
    ),
    refuted="a late produce is accepted while verification is on",
    topology=ONE,
    claim=lambda bench: _late(bench, verification=True),
    control=lambda bench: _late(bench, verification=False),
    control_shows=True,
    clients=("wire",),
    protocols=("", "V1"),
)
