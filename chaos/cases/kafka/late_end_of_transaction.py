"""KAFKA-17754: a delayed EndTxn ends the producer's next transaction (before transactions V2)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _played(bench: Bench, *, late: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-17754",
    title=(
        "A delayed EndTxn(commit) commits half of the next transaction, which its producer aborts"
    ),
    kind="defect",
    claim_text=(
        "Before transactions V2, consecutive transactions of a producer have the same epoch. If "
        "the network delays an EndTxn and the client has retried it meanwhile, the coordinator "
        "takes the late copy for the end of the transaction that is open when it arrives."
    ),
    sources=(
        "KAFKA-17754 (Apache JIRA)",
        "KIP-890, part 2: the epoch rises with every transaction",
        "Jepsen, Bufstream 0.1.0 (2024)",
    ),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        "1. T1: write, EndTxn(commit); 2. T2: AddPartitions, write; 3. T1's EndTxn arrives "
        "again; 4. the producer aborts T2"
    ),
    reproduced=(
        "the late EndTxn is accepted, T2's record is committed and read, and the abort is refused"
    ),
    control_text=(
        "the same without the late EndTxn: T2 is aborted, and read_committed only gets T1"
    ),
    refuted="the late EndTxn is refused, or leaves T2 open",
    topology=ONE,
    claim=lambda bench: _played(bench, late=True),
    control=lambda bench: _played(bench, late=False),
    clients=("wire",),
    protocols=("", "V1"),
)
