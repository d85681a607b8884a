"""The summary of a suite, as Markdown and JUnit XML: failures with the command that replays each,
and coverage. A suite after another one (`--after`) takes over the coverage of those before it, and
reports their results as a trend.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree

from linkflap.chaos.faults import FAULTS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import counted, in_markdown, printable
from linkflap.harness.model.verdict import Verdict, worst
from linkflap.suite import rounds
from linkflap.suite.failures import failures
from linkflap.suite.folder import Night, Plan, RunResult, SuiteFolder
from linkflap.suite.regression import REGRESSION
from linkflap.suite.shrink import Rate


def verdict_of(results: Sequence[RunResult]) -> Verdict:
    """The worst verdict of all runs; unknown if there are none."""
    return worst(Verdict(result.verdict) for result in results)


def unreached(folder: SuiteFolder) -> list[str]:
    """The patterns of `Plan.reach` that no run hit."""
    cells = {cell for result in folder.results for cell in result.cells}
    parts = {part for cell in cells for part in cell.split("/")}
    return [
        wanted
        for wanted in folder.plan.reach
        if not fnmatch.filter(cells if "/" in wanted else parts, wanted)
    ]


def came_to(folder: SuiteFolder) -> Verdict:
    """The worst verdict of all runs; at best unknown if a pattern of `Plan.reach` was never hit."""
    found = verdict_of(folder.results)
    return worst([found, Verdict.UNKNOWN]) if unreached(folder) else found


def per_hour(results: Sequence[RunResult]) -> float:
    """Runs with a verdict for each hour that the suite worked."""
    took = max((result.ended for result in results), default=0.0)
    return 3600 * len(results) / took if took else 0.0


def summary(folder: SuiteFolder) -> str:
    """The summary as Markdown, readable as plain text."""
    results = folder.results
    counts = Counter(result.verdict for result in results)
    lines = [
        f"# linkflap suite {in_markdown(folder.plan.name)}: {came_to(folder)}",
        "",
        (
            f"{counted(len(results), 'run')}: "
            f"{', '.join(f'{n} {verdict}' for verdict, n in sorted(counts.items()))}; "
            f"{counted(per_hour(results), 'run')} an hour, seed {folder.plan.seed}, "
            f"{folder.plan.jobs} at once; {sum(result.again for result in results)} recorded again "
            "because the environment had failed."
        ),
        "",
        *_rates(folder),
        *_unreached(folder),
        *_failures(folder),
        *rounds.table(folder),
        *_coverage(results),
    ]
    return "\n".join(lines) + "\n"


def _rates(folder: SuiteFolder) -> Iterable[str]:
    """For a repeated scenario: how often each verdict occurred, with its confidence interval."""
    if folder.plan.given:
        for verdict, n in sorted(Counter(result.verdict for result in folder.results).items()):
            yield f"{verdict} in {Rate(failed=n, tries=len(folder.results))}"
        yield ""


def _unreached(folder: SuiteFolder) -> Iterable[str]:
    missing = unreached(folder)
    if missing:
        patterns = [f"`{in_markdown(wanted, code=True)}`" for wanted in missing]
        yield f"Required, and never reached: {', '.join(patterns)}."
        yield ""


def junit(folder: SuiteFolder, names: Mapping[int, str] | None = None) -> bytes:
    """JUnit XML: a test case for each run (its name, or else its number, mirror and faults), and
    for each pattern of `Plan.reach`.

    An unknown verdict is an error, not a failure.
    """
    results, missing = folder.results, unreached(folder)
    suite = ElementTree.Element("testsuite", name=printable(f"linkflap suite {folder.plan.name}"))
    suite.set("tests", str(len(results) + len(folder.plan.reach)))
    suite.set("failures", str(sum(result.verdict == Verdict.INVALID for result in results)))
    suite.set(
        "errors", str(sum(result.verdict == Verdict.UNKNOWN for result in results) + len(missing))
    )
    for result in sorted(results, key=lambda result: (not result.failed, result.number)):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname="linkflap.suite",
            name=printable((names or {}).get(result.number, _described(result))),
        )
        case.set("time", str(result.seconds))
        if result.failed:
            kind = "failure" if result.verdict == Verdict.INVALID else "error"
            found = ElementTree.SubElement(case, kind, message=printable(", ".join(result.kinds)))
            found.text = printable(result.cause or result.reason)
    for wanted in folder.plan.reach:
        case = ElementTree.SubElement(
            suite, "testcase", classname="linkflap suite reaches", name=printable(wanted)
        )
        if wanted in missing:
            ElementTree.SubElement(case, "error", message=printable(f"no run reached {wanted}"))
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written


def _described(result: RunResult) -> str:
    """A run's number, its mirrors, and the faults that struck: `0007 shadow: link-cut`."""

    def second_parts(kind: str) -> str:
        parts = (cell.split("/") for cell in sorted(result.cells) if cell.startswith(f"{kind}/"))
        return ", ".join(dict.fromkeys(second for _, second, *_ in parts))

    on, faults = second_parts("on"), second_parts("strike")
    return " ".join(f"{result.number:04d} {on}: {faults}".split()).rstrip(": ")


def _failures(folder: SuiteFolder) -> Iterable[str]:
    found = failures(folder)
    if not found:
        return
    yield "| failure | runs | not explained | first | replay |"
    yield "|---|---|---|---|---|"
    for one in found:
        yield (
            f"| {in_markdown(one.title)} | {len(one.runs)} | {len(one.unexplained) or ''} | "
            f"{one.runs[0].number} | `linkflap run "
            f"{in_markdown(str(one.scenario(folder)), code=True)} "
            f"--runtime {in_markdown(folder.plan.bounds.runtime, code=True)}` |"
        )
    yield ""


def strikes(results: Sequence[RunResult]) -> Counter[tuple[str, str]]:
    """By fault and log state: the number of runs and positions in which the fault bit in that
    state."""
    counts: Counter[tuple[str, str]] = Counter()
    for cell in (cell for result in results for cell in result.cells if cell.startswith("strike/")):
        _, fault, state, *_ = (*cell.split("/"), "")
        counts[fault, state] += 1
    return counts


def never_true(results: Sequence[RunResult]) -> Counter[str]:
    """Conditions that a fault waited for and that never came true, with the number of times."""
    return Counter(text.partition(": ")[2] for result in results for text in result.missed)


def _coverage(results: Sequence[RunResult]) -> Iterable[str]:
    """What was covered; suite.html has the tables."""
    known = {fault for fault, _ in strikes(results)}
    if not known:
        return
    cells = {cell for result in results for cell in result.cells}
    yield f"Coverage: {len(cells)} cells (suite.html)."
    if never := [fault for fault in FAULTS if fault not in known]:
        yield f"Never struck: {', '.join(never)}."
    if missed := never_true(results):
        yield (
            "Conditions that never came true: "
            f"{', '.join(f'{in_markdown(text)} ({n})' for text, n in missed.most_common())}."
        )


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
