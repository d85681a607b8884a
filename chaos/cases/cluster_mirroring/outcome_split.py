"""AS30: a transaction that is open at a failover ends by an ABORT on the destination, and by its
own commit on the source."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional

RECORDS = 3


@case(
    "AS30-outcome-split",
    PAIR,
    claim={"open_at_the_failover": True},
    control={"open_at_the_failover": False},
)
def outcome_split(bench: Bench, *, open_at_the_failover: bool) -> Observation:
    """The source stays up, as in a planned failover whose producers were not stopped, or behind a
    link that is down."""
    topic = bench.topic()
    mirror = bench.mirror("shadow")
    mirror.start()
    writer = WireTransactional(bench, "X")
    writer.add((topic, 0))
    writer.write((topic, 0), *[b"of X"] * RECORDS)
    commit_error = "" if open_at_the_failover else writer.end(commit=True)
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    mirror.stop()
    bench.led(topic, cluster="B")
    if open_at_the_failover:
        commit_error = writer.end(commit=True)
    read = {name: len(bench.read(topic, cluster=name)) for name in ("A", "B")}
    facts = {
        "commit_on_A": commit_error,
        "A_read_committed": read["A"],
        "B_read_committed": read["B"],
        "A_markers": [one.words for one in markers(bench.log(topic))],
        "B_markers": [one.words for one in markers(bench.log(topic, cluster="B"))],
    }
    return Observation(
        shown=commit_error == "none" and read["A"] == RECORDS and not read["B"], facts=facts
    )
