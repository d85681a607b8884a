"""What a suite found, in text and Markdown: runs, failures first, coverage, and the command for
each failure."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from linkflap.chaos.faults import FAULTS
from linkflap.harness.model.verdict import Verdict, worst
from linkflap.harness.suite import rounds
from linkflap.harness.suite.failures import by_kind, name_of
from linkflap.harness.suite.folder import Result, SuiteFolder
from linkflap.harness.suite.shrink import Rate


def verdict_of(results: Sequence[Result]) -> Verdict:
    """The worst of all runs; of none at all it is unknown."""
    return worst(Verdict(result.verdict) for result in results)


def unreached(folder: SuiteFolder) -> list[str]:
    """What the suite was to reach (`Plan.reach`) and no run did."""
    cells = {cell for result in folder.results for cell in result.cells}
    parts = {part for cell in cells for part in cell.split("/")}
    return [
        wanted
        for wanted in folder.plan.reach
        if not fnmatch.filter(cells if "/" in wanted else parts, wanted)
    ]


def came_to(folder: SuiteFolder) -> Verdict:
    """The worst of all runs; at best unknown where a state that had to be reached never was."""
    found = verdict_of(folder.results)
    return worst([found, Verdict.UNKNOWN]) if unreached(folder) else found


def per_hour(results: Sequence[Result]) -> float:
    """Runs with a verdict an hour, by the suite's own time."""
    took = max((result.ended for result in results), default=0.0)
    return 3600 * len(results) / took if took else 0.0


def summary(folder: SuiteFolder) -> str:
    """Markdown that can be read as text."""
    results = folder.results
    counts = Counter(result.verdict for result in results)
    lines = [
        f"# linkflap suite {folder.plan.name}: {came_to(folder)}",
        "",
        (
            f"{len(results)} runs: "
            f"{', '.join(f'{n} {verdict}' for verdict, n in sorted(counts.items()))}; "
            f"{per_hour(results):.0f} runs an hour, seed {folder.plan.seed}, {folder.plan.jobs} at "
            f"once; {sum(result.again for result in results)} recorded again because the "
            "environment had failed."
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
    """How often one repeated scenario had which verdict."""
    if folder.plan.given:
        for verdict, n in sorted(Counter(result.verdict for result in folder.results).items()):
            yield f"{verdict} in {Rate(failed=n, tries=len(folder.results))}"
        yield ""


def _unreached(folder: SuiteFolder) -> Iterable[str]:
    missing = unreached(folder)
    if missing:
        yield f"Never reached, and had to be: {', '.join(f'`{wanted}`' for wanted in missing)}."
        yield ""


def junit(folder: SuiteFolder, names: Mapping[int, str] | None = None) -> bytes:
    """JUnit XML: a test case for each run, by its number or its name, and for each state that had
    to be reached.

    What is unknown is an error, not a failure.
    """
    results, missing = folder.results, unreached(folder)
    suite = ElementTree.Element("testsuite", name=f"linkflap suite {folder.plan.name}")
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
            name=(names or {}).get(result.number, f"{result.number:04d}"),
        )
        case.set("time", str(result.seconds))
        if result.failed:
            kind = "failure" if result.verdict == Verdict.INVALID else "error"
            found = ElementTree.SubElement(case, kind, message=", ".join(result.kinds))
            found.text = result.cause or result.reason
    for wanted in folder.plan.reach:
        case = ElementTree.SubElement(
            suite, "testcase", classname="linkflap suite reaches", name=wanted
        )
        if wanted in missing:
            ElementTree.SubElement(case, "error", message=f"no run reached {wanted}")
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written


def _failures(folder: SuiteFolder) -> Iterable[str]:
    kinds = by_kind(folder.results)
    if not kinds:
        return
    yield "| failure | runs | first | replay |"
    yield "|---|---|---|---|"
    for kind, runs in sorted(
        kinds.items(), key=lambda pair: (pair[0].startswith("unknown:"), -len(pair[1]))
    ):
        smallest = folder.root / "failures" / name_of(kind) / "smallest.toml"
        file = smallest if smallest.exists() else folder.scenario_path(runs[0].number)
        yield (
            f"| {kind} | {len(runs)} | {runs[0].number} | `linkflap run {file} --runtime "
            f"{folder.plan.bounds.runtime}` |"
        )
    yield ""


def strikes(results: Sequence[Result]) -> Counter[tuple[str, str]]:
    """By fault and log state: runs and positions in which the fault was seen to bite in that
    state."""
    counts: Counter[tuple[str, str]] = Counter()
    for cell in (cell for result in results for cell in result.cells if cell.startswith("strike/")):
        _, fault, state, *_ = cell.split("/")
        counts[fault, state] += 1
    return counts


def never_true(results: Sequence[Result]) -> Counter[str]:
    """Conditions that faults waited for in vain, with how often."""
    return Counter(text.partition(": ")[2] for result in results for text in result.missed)


def _in_states(struck: Mapping[tuple[str, str], int], fault: str, states: Sequence[str]) -> str:
    """How often a fault struck in each log state, as cells of a table's row."""
    return " | ".join(str(struck[fault, state] or "") for state in states)


def _coverage(results: Sequence[Result]) -> Iterable[str]:
    struck = strikes(results)
    states = sorted({state for _, state in struck})
    if not states:
        return
    cells = {cell for result in results for cell in result.cells}
    yield (
        f"Coverage: {len(cells)} cells. Runs in which a fault struck in a log state, by fault and "
        "state:"
    )
    yield ""
    known = {fault for fault, _ in struck}
    yield f"| fault | {' | '.join(states)} |"
    yield f"|---|{'---|' * len(states)}"
    for fault in FAULTS:
        if fault in known:
            yield f"| {fault} | {_in_states(struck, fault, states)} |"
    yield ""
    if never := [fault for fault in FAULTS if fault not in known]:
        yield f"Never struck: {', '.join(never)}."
    if missed := never_true(results):
        yield (
            "Conditions that never came true: "
            f"{', '.join(f'{text} ({n})' for text, n in missed.most_common())}."
        )
