"""KAFKA-17507: a transaction is complete before its group offsets are visible, so the next owner
repeats work."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets

ROUNDS = 100


def _fetched(bench: Bench, *, transactional: bool) -> Observation:
    """Offsets 1, 2, 3, … of a group, each fetched as soon as the coordinator reports its
    transaction as complete."""
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
    title=(
        "A group's offset is still the old one after the transaction that committed a new one is "
        "complete"
    ),
    kind="defect",
    claim_text=(
        "A broker answers WriteTxnMarkers when the marker is in the log, but before the group "
        "coordinator has applied it. The transaction is complete, and OffsetFetch returns the "
        "previous offset. A relay that starts then processes inputs again."
    ),
    sources=("KAFKA-17507 (Apache JIRA): fixed in 3.9.1 and 4.0.0", "KIP-447"),
    expected=(Expected(shows=True, until="3.9.0"), Expected(shows=False, since="3.9.1")),
    schedule=(
        "1. TxnOffsetCommit; 2. EndTxn(commit); 3. the coordinator reports CompleteCommit; 4. "
        "OffsetFetch; a hundred times"
    ),
    reproduced="an OffsetFetch returns the previous transaction's offset",
    control_text="the same with OffsetCommit: every fetch returns the new offset",
    refuted="the new offset in every round",
    tried=(
        "a hundred transactions of offsets on one broker, each fetched as soon as the "
        "coordinator reports it as complete"
    ),
    topology=ONE,
    claim=partial(_fetched, transactional=True),
    control=partial(_fetched, transactional=False),
    clients=("wire",),
)
