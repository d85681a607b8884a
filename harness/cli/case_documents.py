"""JSON documents of `linkflap case --json`: a case, and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkflap.chaos.cases.case import Case
    from linkflap.chaos.cases.runner import CaseResult


def of_case(each: Case) -> dict[str, object]:
    """The document of a case."""
    return {
        "name": each.name,
        "title": each.title,
        "kind": each.kind,
        "claim": each.claim,
        "sources": list(each.sources),
        "expected": [one.words for one in each.expected],
        "schedule": each.schedule,
        "reproduced": each.reproduced,
        "control": each.control,
        "refuted": each.refuted,
        "runs": each.runs,
        "clients": list(each.clients),
        "oldest": each.oldest,
        "tried": each.tried,
    }


def of_result(result: CaseResult) -> dict[str, object]:
    """The document of a case's result with one Kafka."""
    low, high = result.bounds
    return {
        "case": result.case,
        "version": result.version,
        "client": result.variant.client,
        "transactions": result.variant.transactions,
        "outcome": str(result.outcome),
        "shown": result.shown,
        "runs": result.runs,
        "low": low,
        "high": high,
        "expected": result.expected.words if result.expected else None,
        "exit_code": result.exit_code,
        "why": result.why,
        "failures": list(result.failures),
        "facts": dict(result.facts),
        "control_facts": dict(result.control_facts),
    }
