"""docs/checks.md, from the declarations of the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from linkflap.harness.guarantees import ALLOWED
from linkflap.harness.model.guarantee import Allowance
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import RUN_GUARANTEES, Check

HEAD = """# What is checked

Written by `python docs/make.py` from the declarations in `spark_verify/checks`; a test compares
the two.

A check is *invalid* if it found an anomaly that the mirror's guarantee does not allow, and no part
of the run directory that the finding depends on is damaged. Else it is *unknown* if it could not
run, crashed, or did not get what it needs of the run. Else it is *valid*. A check that the run has
nothing for is *not due*, and does not count; a run for which no check is due is unknown.
The worst check is the run's verdict: valid < unknown < invalid. Neighbouring records make one
anomaly; its evidence has their number (`records`). In the examples digits are payloads, and offsets
begin at 0.

run.json names the readers and relays of a run. If one of them left no row, every check that reads
polls is unknown, because its reads are unknown. If a reader did not read to the end (like a
consumer that hangs), the checks that judge readers are unknown. A reader of a cluster that was dead
when the run ended need not have read to the end. If a group committed offsets but the run has no
sample of them, checks of its offsets are unknown.

Rows and events of clusters or times that the run does not have are named and left out, and
everything that depends on them is unknown: the record contradicts itself, and proves nothing about
Kafka. The same goes for a mirror that reports one truncation when it makes it and another when it
stops. A wrong leader epoch in the last sample of a cluster is not found: nothing later can
contradict it.

What programs of the user's wrote with `record = "wire"` is judged by the requests and answers that
crossed the wire. A record is then identified by its producer id, epoch and sequence, or without a
producer id by its acknowledged offset and the CRC of its batch; behind a mirror that moves offsets
by its content. What a program showed to its own callers is not known; readers of linkflap's that
read its topics got what the log of their cluster had at each offset. Each check below says under
"On the wire" what it proves of such a history.

Histories of linkflap's own workloads name records by payload id, and the seed of the run gives the
key and value of each. Histories of `linkflap.Producer` do not keep contents: a value that a test
wrote and that is changed alike on all replicas of all clusters, with right CRCs, is not found.

A transaction without a marker at the end of copied or fetched logs counts as open, not as hanging:
no data log shows whether its coordinator knows it. linkflap does not ask a running cluster either:
ListTransactions (KIP-664) silently omits every transactional id that the user may not DESCRIBE, so
a transaction that is not listed may only be hidden. `kafka-transactions.sh find-hanging`, with
those rights, finds it.
"""


LEFT_OUT = (
    (
        "lost-write",
        "the tail that had not been copied; it is the failover's RPO",
        "the destination of a forced failover",
        "of the source, behind all that arrived of the partition",
        "until the failover; not what the destination had shown by then",
        "those that did not arrive, counted one by one",
    ),
    (
        "lost-write, torn-transaction",
        "records of a transaction without a marker",
        "a cluster that died or was given up",
        "open at the end of its last log",
        "at its death; commit-unmarked says whether the marker was due before",
        "those",
    ),
    (
        "commit-unmarked",
        "a marker that was not written any more",
        "a cluster that died or was given up",
        "open at the end of its last log",
        "commits acknowledged since 5 s before its death, or since 5 s before faults on its "
        "brokers that lasted until then",
        "those",
    ),
    (
        "hanging-transaction",
        "open transactions",
        "a cluster that died or was given up",
        "its last log",
        "at its death",
        "all: nobody waits for its last stable offset any more",
    ),
    (
        "checkpoint-regression, offset-behind, commit-missing",
        "samples that step back (KAFKA-15910)",
        "a cluster with a fault on its brokers",
        "an earlier commit of the same group that its log, or its group, has",
        "from the first such fault on: leaders move back minutes after its heal",
        "those",
    ),
    (
        "lso-regression, high-watermark-regression, log-start-regression",
        "samples without a leader epoch",
        "the cluster of the sample",
        "two neighbouring samples",
        "between which its brokers were broken, or a mirror began or ended",
        "those two; samples with an epoch are compared within it",
    ),
    (
        "replica-end-regression",
        "a replica that gets shorter",
        "where logs are truncated, and downstream of it",
        "what it had before",
        "during a truncation, failback, unclean election or partition, and 10 s after",
        "that replica",
    ),
    (
        "every check of reads",
        "polls that may be of either log",
        "a cluster that is made to follow",
        "offsets from the truncation on",
        "from the start of the failback until it is over",
        "polls with an answer in between",
    ),
)
"""What checks leave out around failovers and faults: checks or kinds, what, cluster, era, time,
number."""


def render() -> str:
    """The complete page."""
    return "\n".join([HEAD, *_lines()])


def _lines() -> Iterator[str]:
    for check in REGISTRY.values():
        yield from _check(check)
    yield "## The run itself\n"
    yield "Unknown at worst, never invalid: a run that did nothing has not violated anything.\n"
    for name, guarantee in RUN_GUARANTEES.items():
        yield f"- **{name}**: {guarantee}"
    yield "\n## What is allowed\n"
    yield (
        "Anomalies that a mirror's own guarantee or a lossy fault allows are reported and counted, "
        "and do not make a verdict invalid. Outside of any column they are violations. Runs of "
        "older versions do not list what an unclean election took away. There it is the first "
        "record at each offset that the deposed leader acknowledged, or that its readers got, "
        "before the fault was measured; markers are not known, and not allowed to be missing.\n"
    )
    yield "| anomalies | mirror | cluster | era and epoch | from when to when | at most | source |"
    yield "|---|---|---|---|---|---|---|"
    for (mirror, line), kinds in _allowed().items():
        row = (", ".join(kinds), mirror, line.cluster, line.era, line.window, line.bound)
        yield f"| {' | '.join(row)} | {line.citation} |"
    yield ""
    yield from _left_out()


def _left_out() -> Iterator[str]:
    yield "## What is left out around failovers and faults\n"
    yield "These are no anomalies in this place; elsewhere they are.\n"
    yield "| checks or kinds | what | cluster | era | from when to when | at most |"
    yield "|---|---|---|---|---|---|"
    for row in LEFT_OUT:
        yield f"| {' | '.join(row)} |"
    yield ""


def _allowed() -> Mapping[tuple[str, Allowance], list[str]]:
    """The kinds that one line of the table allows: those that differ in nothing else."""
    found: dict[tuple[str, Allowance], list[str]] = {}
    for mirror, lines in ALLOWED.items():
        for line in lines:
            found.setdefault((mirror, replace(line, kind="")), []).append(line.kind)
    return found


def _check(check: Check) -> Iterator[str]:
    yield f"## {check.name}\n"
    yield f"{check.guarantee}\n"
    yield from (f"- {name}: {text}" for name, text in check.facts.items())
    yield ""
    if check.anomalies:
        yield "| anomaly | meaning | smallest example | judged in torn logs |"
        yield "|---|---|---|---|"
        for kind in check.anomalies:
            yield (
                f"| {kind.name} | {kind.meaning} | {kind.smallest} | "
                f"{'yes' if kind.despite_torn else 'no'} |"
            )
        yield ""
