"""KIP-890, part 2: with transactions V2, the epoch rises at every end, so that late requests have
an older epoch."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional

OLDEST = "4.0.0"


@case("KIP-890-late-end", ONE, claim={"v2": True}, control={"v2": False})
def transactions_v2(bench: Bench, *, v2: bool) -> Observation:
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
