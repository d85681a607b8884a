"""Successive suites (`--after`): a suite takes over the coverage of the suites before it, and
reports their results as a trend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from linkflap.harness.model.errors import InputError
from linkflap.suite.folder import SuiteFolder
from linkflap.suite.plan import Night, Plan
from linkflap.suite.regression import REGRESSION
from linkflap.suite.summary import per_hour


def following(plan: Plan, last: SuiteFolder) -> Plan:
    """The plan with the coverage of `last` and of the suites before it. Raises InputError if either
    suite does not generate its runs."""
    if last.plan.given or last.plan.name == REGRESSION:
        raise InputError(
            f"{last.root} did not generate its runs and has no coverage to continue from; name a "
            "suite that did"
        )
    if plan.given or plan.name == REGRESSION:
        raise InputError(
            f"--after is for suites that generate their runs, and {plan.name} does not; leave "
            "--after out"
        )
    return replace(plan, before=dict(last.coverage.hits), nights=(*last.plan.nights, night(last)))


def night(folder: SuiteFolder) -> Night:
    """The results of a suite so far."""
    cells = {cell for result in folder.results for cell in result.cells}
    verdicts: Mapping[str, int] = Counter(result.verdict for result in folder.results)
    return Night(
        name=folder.root.absolute().name,
        linkflap=folder.plan.linkflap,
        verdicts=dict(verdicts),
        per_hour=round(per_hour(folder.results), 1),
        cells=len(cells),
        new=len(cells - folder.plan.before.keys()),
    )
