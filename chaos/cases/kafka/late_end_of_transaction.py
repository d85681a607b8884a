"""KAFKA-17754: a delayed EndTxn ends the producer's next transaction (before transactions V2)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KAFKA-17754", ONE, claim={"late": True}, control={"late": False})
def late_end_of_transaction(bench: Bench, *, late: bool) -> Observation:
    """The first transaction is committed. A duplicate of that EndTxn arrives while the next
    transaction is open."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.add((topic, 0))
    writer.write((topic, 0), b"first")
    writer.end(commit=True)
    writer.add((topic, 0))
    writer.write((topic, 0), b"second, to be aborted")
    answered = ""
    if late:
        answered = writer.end(commit=True)
    aborted = writer.end(commit=False)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {
        "late_end": answered,
        "abort": aborted,
        "read_committed": read,
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown="second, to be aborted" in read, facts=facts)
