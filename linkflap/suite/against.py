"""A suite against an earlier one, such as that of another build: which failures are new, gone, more
frequent or less frequent, each with the interval of its rate.

A failure is a kind of anomaly, or a reason for an unknown verdict, in the runs that have it. Rates
have Wilson's intervals (95 %). Only where those of both suites do not overlap is a difference
`shown`: a failure that was never seen before may be a rare one that the earlier suite missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from linkflap.chaos.cases import case
from linkflap.harness.model.texts import counted, in_markdown
from linkflap.harness.rundir import write_document
from linkflap.suite.folder import Plan, RunResult, SuiteFolder

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
    """What differs between two suites, new failures first. `differs`: options of the suites that
    are not the same, so that rates may differ for that reason."""

    before: str
    differs: tuple[str, ...]
    kinds: tuple[ComparedKind, ...]


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
    return SuiteComparison(
        before=str(before.root),
        differs=tuple(_differs(now.plan, before.plan)),
        kinds=tuple(
            sorted(kinds, key=lambda each: (_ORDER.index(each.change), -each.now.failed, each.kind))
        ),
    )


def _counts(results: Sequence[RunResult]) -> Counter[str]:
    """How many runs have each kind."""
    return Counter(kind for result in results for kind in set(result.kinds))


def _compared(kind: str, now: RateOfKind, before: RateOfKind) -> ComparedKind:
    apart = now.low > before.high or now.high < before.low
    change: Change = "as frequent"
    if not before.failed:
        change = "new"
    elif not now.failed:
        change = "gone"
    elif apart:
        change = "more frequent" if now.low > before.high else "less frequent"
    return ComparedKind(kind=kind, change=change, shown=apart, now=now, before=before)


def _differs(now: Plan, before: Plan) -> Iterator[str]:
    """Of the options that decide what is played, those that are not the same; the builds of Kafka
    are meant to differ."""
    for name in ("name", "given", "guided"):
        if getattr(now, name) != getattr(before, name):
            yield {"name": "the kind of suite", "given": "the scenario file"}.get(name, "--uniform")
    for name in ("topologies", "mirrors", "faults", "clients", "runtime"):
        if getattr(now.bounds, name) != getattr(before.bounds, name):
            yield f"--{name}"


def text(found: SuiteComparison) -> str:
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
    return "\n".join(lines) + "\n"


def write(found: SuiteComparison, folder: Path) -> Path:
    """Writes the comparison into a suite directory, as JSON."""
    path = folder / AGAINST
    write_document(path, found)
    return path
