"""The summary of a suite, as Markdown and JUnit XML: failures with the command that replays each,
and coverage. A suite after another one (`--after`) takes over the coverage of those before it, and
reports their results as a trend.

A suite can also be compared with an earlier one (`--against`), such as that of another build: which
failures are new, gone, more frequent or less frequent. A failure is a kind of anomaly, or a reason
for an unknown verdict, in the runs that have it. Rates have Wilson's intervals (95 %). Only where
those of both suites do not overlap is a difference `shown`: a failure that was never seen before
may be a rare one that the earlier suite missed. Of the cases that a suite plays (`Plan.cases`), the
rates at which they showed are compared in the same way.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypedDict
from xml.etree import ElementTree

from linkflap.chaos.cases import case, runner
from linkflap.chaos.cases.results import load, tallies
from linkflap.chaos.faults import FAULTS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.texts import counted, in_markdown, printable
from linkflap.harness.model.topology import DEFAULT_KAFKA, of_release
from linkflap.harness.model.verdict import ORDER, Verdict, worst
from linkflap.harness.rundir import write_document
from linkflap.suite import rounds
from linkflap.suite.failures import failures
from linkflap.suite.folder import CASES, Night, Plan, RunResult, SuiteFolder
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOfSuite:
    """A case that the suite plays. It showed in `shown` of `runs`.

    Valid: it did not show, or it is `known` to show there; invalid: it showed, and nobody expected
    that of the release; unknown: nothing was expected, or there are too few runs; not due: the
    Kafka lacks what the case needs.
    """

    name: str
    verdict: Verdict
    result: str
    shown: int
    runs: int
    command: str

    @property
    def said(self) -> str:
        """The verdict in the words of the table."""
        if self.verdict is Verdict.NOT_DUE:
            return "not played"
        return "known" if self.verdict is Verdict.VALID and self.shown else str(self.verdict)


def cases_of(folder: SuiteFolder) -> list[CaseOfSuite]:
    """The cases of a suite with their results, the worst first."""
    stored = tallies(load(folder.root / CASES))
    found = []
    for each, variant in folder.plan.played_cases:
        version = runner.version_of(variant)
        tally = stored.get((each.name, version, variant.client, variant.transactions))
        verdict, result = Verdict.UNKNOWN, "not played"
        if tally is not None:
            expected = each.expectation(variant, version)
            code = runner.exit_code(expected, shown=tally.shown, runs=tally.runs, needed=each.runs)
            verdict = _BY_CODE[code]
            if verdict is Verdict.INVALID and not tally.shown:
                verdict = Verdict.VALID  # this build does not have what others have
            result = f"{tally.outcome} {case.words(tally.shown, tally.runs)}"
            if tally.outcome is case.Outcome.NEEDS:
                verdict, result = Verdict.NOT_DUE, f"NEEDS {tally.why}"
            elif not tally.runs:
                verdict, result = Verdict.UNKNOWN, tally.why
            elif not tally.shown and tally.runs < each.runs:
                result = case.too_few(tally.runs, each.runs)
            else:
                result += f"; {expected.words if expected else 'nothing is expected'}"
        found.append(
            CaseOfSuite(
                name=each.name,
                verdict=verdict,
                result=result,
                shown=tally.shown if tally else 0,
                runs=tally.runs if tally else 0,
                command=f"linkflap case run {each.name} --kafka {shlex.quote(variant.kafka)}",
            )
        )
    return sorted(found, key=lambda one: (-ORDER.index(one.verdict), not one.shown))


_BY_CODE: Final = {verdict.exit_code: verdict for verdict in ORDER[1:]}


def came_to(folder: SuiteFolder) -> Verdict:
    """The worst verdict of all runs and cases; at best unknown if a pattern of `Plan.reach` was
    never hit."""
    found = verdict_of(folder.results)
    found = worst([found, *(one.verdict for one in cases_of(folder))])
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
        *(_verdicts(folder) if folder.plan.cases else _failures(folder)),
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
    cases = cases_of(folder)
    verdicts = Counter([*(str(one.verdict) for one in cases), *(one.verdict for one in results)])
    suite.set("tests", str(len(results) + len(cases) + len(folder.plan.reach)))
    suite.set("failures", str(verdicts[Verdict.INVALID]))
    suite.set("errors", str(verdicts[Verdict.UNKNOWN] + len(missing)))
    suite.set("skipped", str(verdicts[Verdict.NOT_DUE]))
    for one in cases:
        played = ElementTree.SubElement(
            suite, "testcase", classname="linkflap case", name=printable(one.name)
        )
        if one.verdict is not Verdict.VALID:
            ElementTree.SubElement(played, _IN_JUNIT[one.verdict], message=printable(one.result))
    for result in sorted(results, key=lambda result: (not result.failed, result.number)):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname="linkflap.suite",
            name=printable((names or {}).get(result.number, _described(result))),
        )
        case.set("time", str(result.seconds))
        if result.failed:
            kind = _IN_JUNIT[Verdict(result.verdict)]
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


_IN_JUNIT: Final = {
    Verdict.INVALID: "failure",
    Verdict.UNKNOWN: "error",
    Verdict.NOT_DUE: "skipped",
}


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
            f"{in_markdown(shlex.quote(str(one.scenario(folder))), code=True)} "
            f"--runtime {in_markdown(folder.plan.bounds.runtime, code=True)}` |"
        )
    yield ""


def _verdicts(folder: SuiteFolder) -> Iterable[str]:
    """One table of everything that was played: each case, the generated runs, each failure."""
    results, cases = folder.results, cases_of(folder)
    builds = ", ".join(folder.plan.bounds.kafka)
    yield f"Kafka: {in_markdown(builds)}"
    yield ""
    yield "| played | verdict | result | again |"
    yield "|---|---|---|---|"
    rows = [(f"case {one.name}", one.said, one.result, one.command) for one in cases]
    valid = sum(result.verdict == Verdict.VALID for result in results)
    rows.append(
        (
            "generated runs",
            str(verdict_of(results)),
            f"valid in {case.words(valid, len(results))}",
            "",
        )
    )
    for one in failures(folder):
        more = f"; {len(one.unexplained)} not explained" if one.unexplained else ""
        rows.append(
            (
                f"generated runs: {one.title}",
                one.runs[0].verdict,
                f"in {case.words(len(one.runs), len(results))}{more}",
                f"linkflap run {shlex.quote(str(one.scenario(folder)))} --runtime "
                f"{folder.plan.bounds.runtime}",
            )
        )
    for name, said, result, command in rows:
        code = f"`{in_markdown(command, code=True)}`" if command else ""
        yield f"| {in_markdown(name)} | {said} | {in_markdown(result)} | {code} |"
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
    """The coverage; suite.html has the tables."""
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


AGAINST: Final = "against.json"
Change = Literal["new", "more frequent", "gone", "less frequent", "as frequent"]
_ORDER: Final[tuple[Change, ...]] = (
    "new", "more frequent", "gone", "less frequent", "as frequent",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOfKind:
    """`failed` of `runs` had a failure; the true rate is between `low` and `high`."""

    failed: int
    runs: int
    low: float
    high: float

    @classmethod
    def of(cls, failed: int, runs: int) -> RateOfKind:
        low, high = case.interval(failed, runs)
        return cls(failed=failed, runs=runs, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKind:
    """One kind of failure in both suites. `shown`: the two intervals do not overlap."""

    kind: str
    change: Change
    shown: bool
    now: RateOfKind
    before: RateOfKind

    @property
    def words(self) -> str:
        rates = (
            f"{case.words(self.now.failed, self.now.runs)}, before "
            f"{case.words(self.before.failed, self.before.runs)}"
        )
        doubt = "" if self.shown or self.change == "as frequent" else "; may be chance"
        return f"{rates}{doubt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteComparison:
    """The differences between two suites, new failures first. `differs`: options of the suites that
    are not the same, so that rates may differ for that reason. `cases`: in how many of its runs
    each case showed. `once`: sentences about cases that only one of the suites could play."""

    before: str
    differs: tuple[str, ...]
    kinds: tuple[ComparedKind, ...]
    cases: tuple[ComparedKind, ...] = ()
    once: tuple[str, ...] = ()


def compare(now: SuiteFolder, before: SuiteFolder) -> SuiteComparison:
    """Compares the failures of a suite with those of an earlier one."""
    ours, theirs = _counts(now.results), _counts(before.results)
    kinds = [
        _compared(
            kind,
            RateOfKind.of(ours[kind], len(now.results)),
            RateOfKind.of(theirs[kind], len(before.results)),
        )
        for kind in sorted({*ours, *theirs})
    ]
    cases = _compared_cases(cases_of(now), cases_of(before))
    if bool(now.results) != bool(before.results):  # no rate is known of a suite without runs
        runs = (counted(len(suite.results), "run") for suite in (now, before))
        cases["once"] = (*cases["once"], f"generated runs: {'; before: '.join(runs)}")
        kinds = []
    return SuiteComparison(
        before=str(before.root),
        differs=tuple(_differs(now.plan, before.plan)),
        kinds=_sorted(kinds),
        **cases,
    )


def _sorted(kinds: Iterable[ComparedKind]) -> tuple[ComparedKind, ...]:
    return tuple(
        sorted(kinds, key=lambda each: (_ORDER.index(each.change), -each.now.failed, each.kind))
    )


class _ComparedCases(TypedDict):
    cases: tuple[ComparedKind, ...]
    once: tuple[str, ...]


def _compared_cases(now: Sequence[CaseOfSuite], before: Sequence[CaseOfSuite]) -> _ComparedCases:
    ours, theirs = {one.name: one for one in now}, {one.name: one for one in before}
    nothing = CaseOfSuite(
        name="", verdict=Verdict.NOT_DUE, result="not played", shown=0, runs=0, command=""
    )
    found, once = [], []
    for name in sorted({*ours, *theirs}):
        own, other = ours.get(name, nothing), theirs.get(name, nothing)
        if own.runs and other.runs:
            rates = RateOfKind.of(own.shown, own.runs), RateOfKind.of(other.shown, other.runs)
            found.append(_compared(name, *rates))
        elif own.runs or other.runs:
            once.append(f"case {name}: {own.result}; before: {other.result}")
    return {"cases": _sorted(found), "once": tuple(once)}


def _counts(results: Sequence[RunResult]) -> Counter[str]:
    """How many runs have each kind."""
    return Counter(kind for result in results for kind in set(result.kinds))


def _compared(kind: str, now: RateOfKind, before: RateOfKind) -> ComparedKind:
    apart = now.low > before.high or now.high < before.low
    change: Change = "as frequent"
    if not now.failed and not before.failed:
        change = "as frequent"  # a case that showed in neither suite
    elif not before.failed:
        change = "new"
    elif not now.failed:
        change = "gone"
    elif apart:
        change = "more frequent" if now.low > before.high else "less frequent"
    return ComparedKind(kind=kind, change=change, shown=apart, now=now, before=before)


def _differs(now: Plan, before: Plan) -> Iterator[str]:
    """The options that decide which runs are played and that differ; the builds of Kafka are meant
    to differ."""
    for name in ("name", "given", "cases", "guided"):
        if getattr(now, name) != getattr(before, name):
            yield {
                "name": "the kind of suite",
                "given": "the scenario file",
                "cases": "--cases",
                "guided": "--uniform",
            }[name]
    for name in ("topologies", "mirrors", "faults", "clients", "runtime"):
        if getattr(now.bounds, name) != getattr(before.bounds, name):
            yield f"--{name}"
    if _without_kafka(now.bounds.like) != _without_kafka(before.bounds.like):
        yield "--like"


def _without_kafka(scenario: Scenario | None) -> Scenario | None:
    if scenario is None:
        return None
    return replace(scenario, topology=of_release(scenario.topology, lambda: DEFAULT_KAFKA))


def comparison(found: SuiteComparison) -> str:
    """The comparison as Markdown, readable as plain text."""
    lines = [f"## Against {in_markdown(found.before)}", ""]
    if found.differs:
        lines += [f"The suites differ in {', '.join(found.differs)}, so rates may too.", ""]
    changed = [each for each in found.kinds if each.change != "as frequent"]
    lines += [f"- {each.change}: {in_markdown(each.kind)}, {each.words}" for each in changed]
    same = len(found.kinds) - len(changed)
    if same or not changed:
        lines.append(
            f"- {counted(same, 'failure')} as frequent as before, as far as the runs can tell"
            if same
            else "- neither suite has a failure"
        )
    lines += _of_cases(found)
    return "\n".join(lines) + "\n"


def _of_cases(found: SuiteComparison) -> Iterator[str]:
    if not found.cases and not found.once:
        return
    changed = [each for each in found.cases if each.change != "as frequent"]
    for each in changed:
        yield f"- {each.change}: case {in_markdown(each.kind)}, shown in {each.words}"
    yield from (f"- played by one of the suites: {in_markdown(text)}" for text in found.once)
    if same := len(found.cases) - len(changed):
        yield f"- {counted(same, 'case')} as before, as far as the runs can tell"


def write_comparison(found: SuiteComparison, folder: Path) -> Path:
    """Writes the comparison into a suite directory, as JSON."""
    path = folder / AGAINST
    write_document(path, found)
    return path
