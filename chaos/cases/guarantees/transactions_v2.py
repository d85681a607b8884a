"""KIP-890, part 2: with transactions V2, the epoch rises at every end, so that late requests have
an older epoch."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional

OLDEST = "4.0.0"


def _late_end(bench: Bench, *, v2: bool) -> Observation:
    """The end of T1 arrives again while T2, which its producer will abort, is open."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    first = writer.producer
    _write(writer, topic, b"first", v2=v2)
    _end(writer, v2=v2, commit=True)
    _write(writer, topic, b"second, to be aborted", v2=v2)
    late = writer.end_v2(commit=True, producer=first) if v2 else writer.end(commit=True)
    _end(writer, v2=v2, commit=False)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {
        "late_end": late,
        "read_committed": read,
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown="second, to be aborted" in read, facts=facts)


def _write(writer: WireTransactional, topic: str, value: bytes, *, v2: bool) -> None:
    if not v2:
        writer.add((topic, 0))
    writer.write((topic, 0), value, version=12 if v2 else 9)


def _end(writer: WireTransactional, *, v2: bool, commit: bool) -> str:
    return writer.end_v2(commit=commit) if v2 else writer.end(commit=commit)


_SOURCES = (
    "KIP-890, part 2 (transactions V2)",
    "KIP-1228: versions of transactions in WriteTxnMarkers",
)

CASES = [
    Case(
        name="KIP-890-late-end",
        title="With transactions V2, a delayed EndTxn ends no transaction",
        kind="guarantee",
        claim_text=(
            "Anomaly: the EndTxn(commit) of a finished transaction commits half of the next one."
        ),
        sources=_SOURCES,
        expected=(Expected(shows=False, since=OLDEST, basis="runs"),),
        schedule=(
            "1. T1: write, EndTxn(commit); 2. T2: write; 3. T1's EndTxn arrives again; 4. the "
            "producer aborts T2"
        ),
        reproduced="read_committed gets T2's record",
        control_text=(
            "the same with the requests of transactions V1: T2's record is committed (KAFKA-17754)"
        ),
        refuted="the late EndTxn is accepted",
        topology=ONE,
        claim=lambda bench: _late_end(bench, v2=True),
        control=lambda bench: _late_end(bench, v2=False),
        control_shows=True,
        clients=("wire",),
        oldest=OLDEST,
    ),
]
