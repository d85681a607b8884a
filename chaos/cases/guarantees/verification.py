"""KIP-890, part 1 (KAFKA-14402): a produce that arrives after the end of its transaction does not
open a hanging one."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KIP-890-late-produce", ONE, claim={"verification": True}, control={"verification": False})
def verification(bench: Bench, *, verification: bool) -> Observation:
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
