"""Writes docs/checks.md from the declarations: `python -m linkflap.spark_verify.checks.document >
docs/checks.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from linkflap.harness.guarantees import ALLOWED
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.facts.run_guarantees import GUARANTEES

HEAD = """# What is checked

Written by `python -m linkflap.spark_verify.checks.document` from the declarations in
`spark_verify/checks`; a test compares the two.

Rows and events of clusters or times that the run does not have are named and left out, and what
rests on them is unknown: the record contradicts itself, which says nothing of Kafka. So it does
where a mirror reports one truncation when it makes it and another when it stops. A wrong leader
epoch in the last sample of a cluster is not found: nothing later can contradict it.

A transaction without a marker at the end of copied or fetched logs counts as open, not as hanging:
whether its coordinator knows it is in no log of data. A running cluster is not asked for that
either: ListTransactions (KIP-664) leaves out, without a word, every transactional id that the user
may not DESCRIBE, so that a transaction that nobody shows may be one that is hidden.
`kafka-transactions.sh find-hanging`, with those rights, finds it.

A check is *invalid* when it found an anomaly that the mirror's guarantee does not allow, and the
run directory is not damaged in a part that it needs whole; else *unknown* when it could not look,
crashed, or examined nothing where something was due; else *valid*. One for which nothing was due is
*not due*, and counts neither way; a run in which nothing at all was due is unknown. The worst check
is the run's verdict: valid < unknown < invalid. Neighbouring records make one anomaly; its evidence
says how many `records`. In the examples digits are payloads, and offsets begin at 0.

run.json names the readers and relays of a run. Where one of them left no row, every check that
reads polls is unknown, because what that reader got is not known. Where a reader did not read to
the end (a consumer that hangs looks like that), the checks that judge readers are unknown. A reader
of a cluster that was dead when the run ended need not have read on. Where a group committed offsets
but the run has no sample of them, checks of its offsets are unknown.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_lines()])


def _lines() -> Iterator[str]:
    for check in REGISTRY.values():
        yield from _check(check)
    yield "## The run itself\n"
    yield "Never invalid: a run that did nothing has not violated anything. Unknown instead.\n"
    for name, guarantee in GUARANTEES.items():
        yield f"- **{name}**: {guarantee}"
    yield "\n## What is allowed\n"
    yield (
        "Anomalies that a mirror's own guarantee allows are reported and counted, and do not make a"
        " verdict invalid.\n"
    )
    yield "| anomaly | mirror | window | bound | where it is written |"
    yield "|---|---|---|---|---|"
    for mirror, line in ((mirror, line) for mirror, lines in ALLOWED.items() for line in lines):
        yield f"| {line.kind} | {mirror} | {line.window} | {line.bound} | {line.citation} |"
    yield ""


def facts(check: Check) -> Mapping[str, str]:
    """The properties of a check beside its guarantee, for this page and for reports."""
    whole = (
        f"; proves nothing when {' or '.join(sorted(check.complete))} are damaged"
        if check.complete
        else ""
    )
    alone = "; also runs on logs without a client history" if check.from_bytes else ""
    return {
        "Source": check.source,
        "Examines": f"{check.unit}; due are {check.due_where}",
        "Reads": f"{', '.join(sorted(check.inputs))}{whole}{alone}",
        "May follow from": ", ".join(sorted(check.follows)) or "no other check",
    }


def _check(check: Check) -> Iterator[str]:
    yield f"## {check.name}\n"
    yield f"{check.guarantee}\n"
    yield from (f"- {name}: {text}" for name, text in facts(check).items())
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


if __name__ == "__main__":
    sys.stdout.write(render())
