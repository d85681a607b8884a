"""KAFKA-17507: after a transaction is complete its group offsets are not there yet: the next owner
repeats what was done."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets

ROUNDS = 100


def _fetched(bench: Bench, *, transactional: bool) -> Observation:
    """Offsets 1, 2, 3, … of a group, each fetched as soon as the coordinator says that its
    transaction is complete."""
    topic, group = bench.topic(), bench.name("group")
    asked = bench.ask(bench.coordinator(group, 0))
    writer = WireTransactional(bench)
    stale: dict[str, int] = {}
    for offset in range(1, ROUNDS + 1):
        if transactional:
            send_offsets(asked, writer, group, (topic, 0), offset)
            writer.end(commit=True)
        else:
            asked.commit_offset(group, (topic, 0), offset)
        found = asked.committed(group, (topic, 0))
        if found != offset:
            stale[str(offset)] = found
    facts = {"rounds": ROUNDS, "stale": len(stale), "first_of_them": dict(list(stale.items())[:5])}
    return Observation(shown=bool(stale), facts=facts)


CASE = Case(
    name="KAFKA-17507",
    title="A group's offset is the old one after the transaction that moved it is complete",
    kind="defect",
    claim_text=(
        "The answer to WriteTxnMarkers is sent when the marker is in the log, and before the group "
        "coordinator has applied it: the transaction is complete, and OffsetFetch returns the "
        "offset of before. A relay that starts there repeats what was done."
    ),
    sources=("KAFKA-17507 (Apache JIRA): fixed in 3.9.1 and 4.0.0", "KIP-447"),
    expected=(Expected(shows=True, until="3.9.0"), Expected(shows=False, since="3.9.1")),
    schedule=(
        "1. TxnOffsetCommit; 2. EndTxn(commit); 3. the coordinator says CompleteCommit; 4. "
        "OffsetFetch; a hundred times"
    ),
    reproduced="an OffsetFetch that returns the offset of the transaction before",
    control_text="the same with OffsetCommit: every fetch returns the new offset",
    refuted="the new offset in every round",
    tried=(
        "a hundred transactions of offsets on one broker, each fetched as soon as the coordinator "
        "calls it complete"
    ),
    topology=ONE,
    claim=partial(_fetched, transactional=True),
    control=partial(_fetched, transactional=False),
    clients=("wire",),
)
