"""KAFKA-17507: a transaction is complete before its group offsets are visible, so the next owner
repeats work."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional, send_offsets

ROUNDS = 100


@case("KAFKA-17507", ONE, claim={"transactional": True}, control={"transactional": False})
def kafka_17507(bench: Bench, *, transactional: bool) -> Observation:
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
