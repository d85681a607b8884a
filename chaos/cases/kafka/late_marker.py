"""A coordinator's duplicate marker, delayed by the network, ends the producer's next transaction
(V1)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("late-marker", ONE, claim={"late": True}, control={"late": False})
def late_marker(bench: Bench, *, late: bool) -> Observation:
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
