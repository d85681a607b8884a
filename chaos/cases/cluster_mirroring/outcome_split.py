"""AS30: a transaction that is open at a failover ends by an ABORT on the destination, and by its
own commit on the source."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional

RECORDS = 3


def _played(bench: Bench, *, open_at_the_failover: bool) -> Observation:
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


CASE = Case(
    name="AS30-outcome-split",
    title=(
        "A transaction that is open at a failover is aborted on the destination, and its commit is "
        "acknowledged on the source"
    ),
    kind="limit",
    claim_text=(
        "Open transactions end on the destination by ABORT markers. The source knows nothing of "
        "that: its coordinator acknowledges the commit, and one transaction has two outcomes. "
        "KIP-1279 accepts it; a failback takes the acknowledged commit away."
    ),
    sources=(
        "KIP-1279 discussion, AS30 (Andrew Schofield): transactions in flight at a stop",
        "KIP-98, atomicity",
    ),
    expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
    schedule=(
        "1. X writes and stays open; 2. all is mirrored; 3. failover, the source stays up; 4. X "
        "commits on the source"
    ),
    reproduced=(
        "the commit is acknowledged; read_committed gets X's records on the source and none of them"
        " on the destination"
    ),
    control_text="X commits before the failover: its records are read on both sides",
    refuted="a commit that the source refuses, or one outcome on both sides",
    topology=PAIR,
    claim=partial(_played, open_at_the_failover=True),
    control=partial(_played, open_at_the_failover=False),
    clients=("wire",),
    oldest="3.9.1",
    apart=True,
)
