"""Stored results of cases: one JSON line per result, one file per case, in one folder; this
project's own are in the package.

With the cases to reproduce again (etcd's track record).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec

from linkflap.chaos.cases import registry, runner
from linkflap.chaos.cases.bench import Client, TransactionProtocol, Variant
from linkflap.chaos.cases.case import Case, Outcome, interval, number, too_few, words
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError
from linkflap.harness.rundir import with_current_kinds
from linkflap.harness.version import VERSION

STORED: Final = Path(__file__).parent / "stored"
"""The stored results of this project: docs/track-record.md is generated from them."""
FORMAT: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """One stored result. `date` is the day of the run (UTC), `schedule` what was played; `low` and
    `high` bound the rate."""

    format: int
    date: str
    case: str
    version: str
    client: Client
    transactions: TransactionProtocol
    outcome: Outcome
    shown: Count
    runs: Count
    needed: Count
    controls: Count
    low: float
    high: float
    expected: bool | None
    schedule: str
    seconds: float
    linkflap: str
    why: str = ""
    failures: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    control_facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The subject of the result: case, version, client, transaction protocol."""
        return self.case, self.version, self.client, self.transactions


def row(case: Case, result: runner.CaseResult) -> StoredResult:
    """The stored form of a result, with the present time."""
    low, high = interval(result.shown, result.runs)
    given = {name: getattr(result, name) for name in _AS_THEY_ARE}
    return StoredResult(
        format=FORMAT,
        date=datetime.now(UTC).date().isoformat(),
        client=result.variant.client,
        transactions=result.variant.transactions,
        low=round(low, 4),
        high=round(high, 4),
        expected=None if result.expected is None else result.expected.shows,
        schedule=case.schedule,
        linkflap=VERSION,
        **given,
    )


_AS_THEY_ARE: Final = (
    *("case", "version", "outcome", "shown", "runs", "needed", "controls", "seconds", "why"),
    *("failures", "facts", "control_facts"),
)
"""The fields that a stored result takes over from the result of a case."""


def store(folder: Path, new: StoredResult) -> Path:
    """Appends a row to the file of its case. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{new.case}.jsonl"
    with path.open("ab") as file:
        file.write(msgspec.json.encode(new) + b"\n")
    return path


def load(folder: Path) -> list[StoredResult]:
    """Every row of a folder, by case and then as they were written; none where there is no folder.
    InputError for a bad line."""
    return [one for path in sorted(folder.glob("*.jsonl")) for one in _rows(path)]


def _rows(path: Path) -> Iterable[StoredResult]:
    try:
        content = untrusted_files.content(path)
    except OSError as error:
        raise InputError(
            f"{path} has no stored results that can be read ({error.strerror}); remove it"
        ) from None
    for index, line in enumerate(content.splitlines(), start=1):
        try:
            found = untrusted_files.decoded(with_current_kinds(line), StoredResult)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{path}, line {index}, is no stored result ({error}); remove that line"
            ) from error
        if found.format != FORMAT:
            raise InputError(
                f"{path}, line {index}, has format {found.format}; this linkflap reads {FORMAT}, "
                "use the other one"
            )
        if found.shown > found.runs:
            raise InputError(
                f"{path}, line {index}, has a case that showed {found.shown} times in "
                f"{found.runs} runs; remove that line"
            )
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTally:
    """Everything that was stored of one case, version, client and transaction protocol, of the
    schedule that is played now."""

    version: str
    client: str
    transactions: str
    outcome: Outcome
    shown: int
    runs: int
    date: str
    why: str
    expected: bool | None


def tallies(rows: Iterable[StoredResult]) -> dict[tuple[str, str, str, str], CaseTally]:
    """Key of a row -> the result of its rows together. An unknown result counts only where there is
    no other."""
    groups: dict[tuple[str, str, str, str], list[StoredResult]] = {}
    for one in rows:
        groups.setdefault(one.key, []).append(one)
    return {key: _tally(group) for key, group in groups.items()}


def _tally(group: list[StoredResult]) -> CaseTally:
    known = [one for one in group if one.outcome in (Outcome.REPRODUCED, Outcome.NOT_REPRODUCED)]
    last = (known or group)[-1]
    known = [one for one in known if one.schedule == last.schedule]
    shown, runs = sum(one.shown for one in known), sum(one.runs for one in known)
    outcome = last.outcome if not known else Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED
    return CaseTally(
        version=last.version,
        client=last.client,
        transactions=last.transactions,
        outcome=outcome,
        shown=shown,
        runs=runs,
        date=last.date,
        why=last.why,
        expected=last.expected,
    )


def listed(case: Case, rows: Iterable[StoredResult]) -> list[tuple[CaseTally, str]]:
    """The stored results of a case in words, by release, client and transaction protocol."""
    mine = [tally for key, tally in tallies(rows).items() if key[0] == case.name]
    return [(tally, in_words(tally, case)) for tally in sorted_tallies(mine)]


def sorted_tallies(of_one_case: Iterable[CaseTally]) -> list[CaseTally]:
    return sorted(
        of_one_case, key=lambda one: (release_order(one.version), one.client, one.transactions)
    )


def release_order(version: str) -> tuple[int, int, int]:
    try:
        return number(version)
    except InputError:  # a build of one's own has any name
        return 1 << 31, 0, 0


def in_words(tally: CaseTally, case: Case) -> str:
    if tally.outcome in (Outcome.NEEDS, Outcome.UNKNOWN):
        return f"{tally.outcome}: {tally.why}"
    if not tally.shown and tally.runs < case.runs:
        return f"{Outcome.UNKNOWN}: {too_few(tally.runs, case.runs)}"
    return f"{tally.outcome} {words(tally.shown, tally.runs)}"


def run_and_store(
    case: Case,
    variant: Variant,
    folder: Path,
    *,
    count: int | None = None,
    benches: runner.Benches,
    report: runner.Report,
) -> runner.CaseResult:
    """Plays a case like `run_case`, stores its result in `folder`, and reports both."""
    wanted = count or case.runs
    report(f"{case.name} on {variant.title}: {wanted} run{'s' if wanted > 1 else ''}")
    result = runner.run_case(
        case, variant, count=count, benches=benches, report=lambda line: report(f"  {line}")
    )
    path = store(folder, row(case, result))
    expectation = (
        f"expected: {result.expected.words}"
        if result.expected
        else "nothing is expected of this release"
    )
    report(
        f"{case.name} on {variant.title}: {result.words}; {expectation}; exit {result.exit_code}; "
        f"stored in {path}"
    )
    return result


def run_missing(
    cases: Iterable[tuple[Case, Variant]],
    folder: Path,
    *,
    count: int | None = None,
    again: bool = False,
    benches: runner.Benches,
    report: runner.Report,
) -> Iterator[int]:
    """Plays the cases that have too few runs in `folder`, or all of them `again`; yields the exit
    code of each. Cases with the same clusters follow one another, so that they can share these."""
    stored = {} if again else tallies(load(folder))
    for case, variant in sorted(cases, key=lambda one: (one[1].kafka, repr(one[0].topology))):
        if interrupts.asked():
            raise KeyboardInterrupt
        known = stored.get(
            (case.name, runner.version_of(variant), variant.client, variant.transactions)
        )
        if known and known.runs >= (count or case.runs):
            expected = case.expectation(variant, known.version)
            code = runner.exit_code(expected, shown=known.shown, runs=known.runs, needed=case.runs)
            report(f"{case.name} on {variant.title}: stored already; exit {code}")
            yield code
        else:
            yield run_and_store(
                case, variant, folder, count=count, benches=benches, report=report
            ).exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCase:
    """A case that was reproduced, with what, and how often: `shown` of `runs`."""

    case: Case
    variant: Variant
    shown: int
    runs: int


def reproduced(folder: Path = STORED) -> list[KnownCase]:
    """Every case that was reproduced, in the registry's order; play each with `runner.run_case`."""
    return of_rows(load(folder))


def of_rows(rows: Iterable[StoredResult]) -> list[KnownCase]:
    newest: dict[str, KnownCase] = {}
    for (name, version, client, transactions), tally in tallies(rows).items():
        case = registry().get(name)
        if case is None or tally.outcome is not Outcome.REPRODUCED or not _is_release(version):
            continue
        variant = Variant(
            kafka=version,
            client=cast(Client, client),
            transactions=cast(TransactionProtocol, transactions),
        )
        known = newest.get(name)
        if known is None or number(version) > number(known.variant.kafka):
            newest[name] = KnownCase(case=case, variant=variant, shown=tally.shown, runs=tally.runs)
    return [newest[name] for name in registry() if name in newest]


def _is_release(version: str) -> bool:
    try:
        number(version)
    except InputError:
        return False
    return True
