"""One suite after another: what earlier suites hit is not new to the next, and their results are
its trend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from linkflap.harness.model.errors import InputError
from linkflap.harness.suite.folder import SuiteFolder
from linkflap.harness.suite.plan import Night, Plan
from linkflap.harness.suite.regression import REGRESSION
from linkflap.harness.suite.summary import per_hour


def following(plan: Plan, last: SuiteFolder) -> Plan:
    """The plan of a suite that goes on where another, and those before it, left the coverage.
    Raises InputError."""
    if last.plan.given or last.plan.name == REGRESSION:
        raise InputError(
            f"{last.root} generated no runs, and has no coverage to go on from; name a suite "
            "that did"
        )
    if plan.given or plan.name == REGRESSION:
        raise InputError(
            f"--after is for suites that generate their runs, and {plan.name} does not; omit it"
        )
    return replace(plan, before=dict(last.coverage.hits), nights=(*last.plan.nights, night(last)))


def night(folder: SuiteFolder) -> Night:
    """How a suite went so far."""
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
