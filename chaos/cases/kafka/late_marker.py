"""A coordinator's duplicate marker, delayed by the network, ends the producer's next transaction
(V1)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _played(bench: Bench, *, late: bool) -> Observation:
    """T1 is aborted. Its ABORT arrives again while T2 is open. T2 is committed, and the commit is
    acknowledged."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.add((topic, 0))
    writer.write((topic, 0), b"first")
    writer.end(commit=False)
    writer.add((topic, 0))
    writer.write((topic, 0), b"second")
    answered = writer.wire.write_markers((topic, 0), writer.producer, commit=False) if late else ""
    committed = writer.end(commit=True)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {
        "late_marker": answered,
        "commit": committed,
        "read_committed": read,
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown=committed == "none" and "second" not in read, facts=facts)


CASE = Case(
    name="late-marker",
    title=(
        "A duplicate marker aborts the next transaction, whose commit is then acknowledged and lost"
    ),
    kind="defect",
    claim_text=(
        "Before transactions V2, a marker names producer id and epoch, which the next "
        "transaction has too. If a coordinator retries WriteTxnMarkers after a lost answer, a "
        "partition leader appends the late copy as the end of the transaction that is open by "
        "then."
    ),
    sources=(
        "KIP-890, motivation: delayed markers and hanging transactions",
        "KIP-1228: versions of transactions in WriteTxnMarkers",
    ),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        "1. T1: write, abort; 2. T2: write; 3. T1's ABORT marker arrives again; 4. T2 is committed"
    ),
    reproduced=(
        "the commit is acknowledged, the log has ABORT and then COMMIT after T2, and "
        "read_committed does not get T2"
    ),
    control_text="the same without the duplicate marker: T2 is read",
    refuted="the duplicate marker is refused, or changes nothing",
    topology=ONE,
    claim=lambda bench: _played(bench, late=True),
    control=lambda bench: _played(bench, late=False),
    clients=("wire",),
    protocols=("", "V1"),
)
