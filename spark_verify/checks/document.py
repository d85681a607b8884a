"""Writes docs/checks.md from the declarations: `python -m linkflap.spark_verify.checks.document >
docs/checks.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from linkflap.harness.guarantees import ALLOWED
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.facts.run_guarantees import GUARANTEES

HEAD = """# What is checked

Written by `python -m linkflap.spark_verify.checks.document` from the declarations in
`spark_verify/checks`; a test compares the two.

A check is *invalid* if it found an anomaly that the mirror's guarantee does not allow, and no part
of the run directory that the finding depends on is damaged. Else it is *unknown* if it could not
run, crashed, or examined nothing where something was due. Else it is *valid*. A check for which
nothing was due is *not due*, and does not count; a run in which nothing at all was due is unknown.
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

A transaction without a marker at the end of copied or fetched logs counts as open, not as hanging:
no data log shows whether its coordinator knows it. linkflap does not ask a running cluster either:
ListTransactions (KIP-664) silently omits every transactional id that the user may not DESCRIBE, so
a transaction that is not listed may only be hidden. `kafka-transactions.sh find-hanging`, with
those rights, finds it.
"""


def render() -> str:
    """The complete page."""
    return "\n".join([HEAD, *_lines()])


def _lines() -> Iterator[str]:
    for check in REGISTRY.values():
        yield from _check(check)
    yield "## The run itself\n"
    yield "Unknown at worst, never invalid: a run that did nothing has not violated anything.\n"
    for name, guarantee in GUARANTEES.items():
        yield f"- **{name}**: {guarantee}"
    yield "\n## What is allowed\n"
    yield (
        "Anomalies that a mirror's own guarantee allows are reported and counted, and do not make a"
        " verdict invalid.\n"
    )
    yield "| anomaly | mirror | window | bound | source |"
    yield "|---|---|---|---|---|"
    for mirror, line in ((mirror, line) for mirror, lines in ALLOWED.items() for line in lines):
        yield f"| {line.kind} | {mirror} | {line.window} | {line.bound} | {line.citation} |"
    yield ""


_PROMISED: Final[Mapping[str, str]] = {
    "order": "records keep their order",
    "records": "records keep their offsets",
}


def facts(check: Check) -> Mapping[str, str]:
    """The properties of a check beside its guarantee, for this page and for reports."""
    whole = (
        f"; proves nothing when {' or '.join(sorted(check.complete))} are damaged"
        if check.complete
        else ""
    )
    alone = (
        "; also runs on logs without a client history"
        if check.from_bytes or check.from_content
        else ""
    )
    if check.from_content:
        alone += f", if their mirror promises that {_PROMISED[check.from_content]}"
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
