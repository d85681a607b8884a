"""KIP-1228: with transactions V2, a marker has the epoch of the *next* transaction, so that a
duplicate of it ends that one."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _played(bench: Bench, *, late: bool) -> Observation:
    """T1 is aborted. Its ABORT arrives again while T2 is open. T2 is committed, and the commit is
    acknowledged."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.write((topic, 0), b"first", version=12)
    writer.end_v2(commit=False)
    (sent,) = markers(bench.log(topic))
    writer.write((topic, 0), b"second", version=12)
    of_the_second = writer.producer.epoch
    who = ProducerIdentity(id=sent.producer_id, epoch=sent.producer_epoch)
    answered = (
        writer.wire.write_markers((topic, 0), who, commit=False, transactions=2) if late else ""
    )
    committed = writer.end_v2(commit=True)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {
        "epoch_of_the_marker": sent.producer_epoch,
        "epoch_of_the_second_transaction": of_the_second,
        "late_marker": answered,
        "commit": committed,
        "read_committed": read,
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown=committed == "none" and "second" not in read, facts=facts)


CASE = Case(
    name="KIP-1228",
    title=(
        "With transactions V2, a duplicate marker aborts the next transaction, whose commit is "
        "acknowledged and lost"
    ),
    kind="defect",
    claim_text=(
        "With transactions V2, the end of a transaction raises the epoch. Its marker has the "
        "raised epoch, and so has the next transaction. As long as WriteTxnMarkers has no "
        "transaction version (KIP-1228), a leader takes a duplicate marker for the end of the "
        "next transaction."
    ),
    sources=(
        "KIP-1228: transaction version in WriteTxnMarkers",
        "KIP-890, part 2: strictly greater epochs at the end of a transaction",
    ),
    expected=(
        Expected(shows=True, since="4.0.0", until="4.1.2", basis="runs"),
        Expected(shows=False, since="4.2.0", basis="runs"),
    ),
    schedule=(
        "1. T1: write, abort; 2. T2: write; 3. T1's ABORT marker arrives again; 4. T2 is committed"
    ),
    reproduced=(
        "the marker is appended, T2's commit is acknowledged, and read_committed does not get "
        "T2's record"
    ),
    control_text="the same without the duplicate marker: T2 is read",
    refuted="the duplicate marker is refused",
    topology=ONE,
    claim=lambda bench: _played(bench, late=True),
    control=lambda bench: _played(bench, late=False),
    clients=("wire",),
    oldest="4.0.0",
)
