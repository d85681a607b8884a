"""`linkflap suite regression`: plays every case again that was reproduced before, until it is
reproduced or has had all its runs.

cases.json         the cases to play, written before the first is played
results.jsonl      Result, one line for each case
cases/             the results in the format of `linkflap case run`

A case that is not reproduced any more is invalid: either the release has changed, or linkflap has a
defect. A person has to find out which.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from linkflap.chaos.cases import case_named
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.results import KnownCase, reproduced, row, store
from linkflap.chaos.cases.runner import Benches, run_case
from linkflap.chaos.cases.runner import CaseResult as Played
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError, LinkflapError
from linkflap.harness.model.texts import in_markdown
from linkflap.harness.model.verdict import Verdict, worst
from linkflap.harness.rundir import write_document
from linkflap.suite.folder import CASES, Count, RunResult, SuiteFolder

REGRESSION: Final = "regression"
BY_CHANCE: Final = 0.05
"""Limit for calling a case invalid. It applies to the probability that a case with the rate of its
stored result is reproduced in no run of this regression."""
ENTRIES: Final = "cases.json"
_VERDICTS: Final = {Outcome.REPRODUCED: Verdict.VALID, Outcome.NOT_REPRODUCED: Verdict.INVALID}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A case to be played, with its variant. When its result was stored, it was reproduced in
    `shown` of `runs`."""

    number: Count
    case: str
    variant: Variant
    shown: Count
    runs: Annotated[int, Meta(ge=1, le=1 << 31)]

    @property
    def title(self) -> str:
        return f"{self.case} on {self.variant.title}"


Play = Callable[[Entry, Benches], Played]


def write_entries(folder: SuiteFolder, known: Sequence[KnownCase] | None = None) -> None:
    """Writes cases.json: this shard's part of all cases that were reproduced. Results that are
    stored later do not change it."""
    part, of = folder.plan.shard
    entries = [
        Entry(
            number=number, case=one.case.name, variant=one.variant, shown=one.shown, runs=one.runs
        )
        for number, one in enumerate(reproduced() if known is None else known)
    ]
    write_document(folder.root / ENTRIES, entries[part::of])


def entries(folder: SuiteFolder) -> list[Entry]:
    """The cases of a suite, from cases.json. Raises InputError if it cannot be read."""
    path = folder.root / ENTRIES
    try:
        return untrusted_files.decoded(untrusted_files.content(path), list[Entry])
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); begin a new suite: linkflap suite regression"
        ) from None


def run(folder: SuiteFolder, say: Callable[[str], None], play: Play | None = None) -> None:
    """Plays the cases that have no result yet, until the time is over. A KeyboardInterrupt is not
    caught. Raises InputError for a case that no longer exists."""
    known = {result.number for result in folder.results}
    left = [entry for entry in entries(folder) if entry.number not in known]
    # Cases with the same clusters follow one another, so that they can share these.
    left.sort(
        key=lambda one: (
            one.variant.kafka,
            repr(case_named(one.case).topology),
            one.variant.transactions,
            one.number,
        )
    )
    began, before = time.monotonic(), max((result.ended for result in folder.results), default=0.0)
    # remains of a case that was being played when its suite was killed
    shutil.rmtree(folder.root / "runs", ignore_errors=True)
    with Benches(folder.root / "runs") as benches:
        for entry in left:
            if interrupts.asked():
                raise KeyboardInterrupt
            if before + time.monotonic() - began >= folder.plan.seconds:
                return
            played = (play or until_shown)(entry, benches)
            ended = round(before + time.monotonic() - began, 1)
            folder.append(result_of(entry, played, ended=ended))
            store(folder.root / CASES, row(case_named(entry.case), played))
            say(f"{folder.results[-1].verdict:8} {entry.title}: {played.words}")


def until_shown(entry: Entry, benches: Benches) -> Played:
    """Plays a case until it is reproduced, at most `case.runs` times. If its steps fail, the result
    is unknown with the reason."""
    case = case_named(entry.case)
    runs: list[Played] = []
    for _ in range(case.runs):
        try:
            runs.append(run_case(case, entry.variant, count=1, benches=benches))
        except InputError:
            raise
        except LinkflapError as error:
            benches.drop()
            return (
                _together(runs, why=str(error)) if runs else _unplayed(entry, case.runs, str(error))
            )
        if runs[-1].shown or runs[-1].outcome in (Outcome.NEEDS, Outcome.UNKNOWN):
            break
    return _together(runs)


def _together(runs: Sequence[Played], why: str = "") -> Played:
    """Joins several results of one run each."""
    last = runs[-1]
    return replace(
        last,
        outcome=Outcome.UNKNOWN if why else last.outcome,
        why=why or last.why,
        shown=sum(one.shown for one in runs),
        runs=sum(one.runs for one in runs),
        controls=sum(one.controls for one in runs),
        failures=tuple(failure for one in runs for failure in one.failures),
        seconds=round(sum(one.seconds for one in runs), 1),
    )


def _unplayed(entry: Entry, needed: int, why: str) -> Played:
    return Played(
        case=entry.case,
        variant=entry.variant,
        version=entry.variant.kafka,
        outcome=Outcome.UNKNOWN,
        shown=0,
        runs=0,
        needed=needed,
        controls=0,
        why=why,
    )


def result_of(entry: Entry, played: Played, *, ended: float) -> RunResult:
    """A case's verdict: valid if it was reproduced, invalid if it was not in as many runs as an
    answer takes.

    Unknown if it was played less often. Unknown also if the case was rare before, so that this
    outcome has a probability of more than BY_CHANCE.
    """
    verdict = _VERDICTS.get(played.outcome, Verdict.UNKNOWN)
    reason, chance = played.words, (1 - entry.shown / entry.runs) ** played.runs
    if verdict is Verdict.INVALID and played.runs < played.needed:
        verdict = Verdict.UNKNOWN
    elif verdict is Verdict.INVALID and chance > BY_CHANCE:
        verdict = Verdict.UNKNOWN
        reason += (
            f"; at the rate before ({entry.shown} of {entry.runs}), {100 * chance:.0f} % of "
            "regressions do not reproduce it"
        )
    kind = {Verdict.VALID: (), Verdict.INVALID: (f"regression:{entry.case}",)}.get(
        verdict, (f"unknown:{entry.case}",)
    )
    return RunResult(
        number=entry.number,
        verdict=verdict,
        reason=reason,
        cause=(
            f"it was reproduced in {entry.shown} of {entry.runs} runs before"
            if verdict is Verdict.INVALID
            else ""
        ),
        kinds=kind,
        seconds=played.seconds,
        ended=ended,
    )


def verdict_of(folder: SuiteFolder) -> Verdict:
    """The worst verdict of all cases; at best unknown while some were not played."""
    found = [Verdict(result.verdict) for result in folder.results]
    return worst([*found, Verdict.UNKNOWN] if len(found) < len(entries(folder)) else found)


def summary(folder: SuiteFolder) -> str:
    """Markdown: failures first, and for each case the command that plays it."""
    known, every = {result.number: result for result in folder.results}, entries(folder)
    again = sum(result.verdict == Verdict.VALID for result in folder.results)
    order = {Verdict.INVALID: 0, Verdict.UNKNOWN: 1}
    every.sort(
        key=lambda one: (
            order.get(Verdict(known[one.number].verdict), 3) if one.number in known else 2,
            one.number,
        )
    )
    lines = [
        f"# linkflap suite regression: {verdict_of(folder)}",
        "",
        (
            f"{len(folder.results)} of {len(every)} cases were played; {again} reproduced again; "
            f"{sum(result.seconds for result in folder.results):.0f} s."
        ),
        "",
        "| case | verdict | result | before | again |",
        "|---|---|---|---|---|",
    ]
    for one in every:
        found = known.get(one.number)
        said = f"{found.verdict} | {in_markdown(found.reason)}" if found else "not played | "
        lines.append(
            f"| {in_markdown(one.title)} | {said} | {one.shown} of {one.runs} | "
            f"`{in_markdown(command(one), code=True)}` |"
        )
    return "\n".join(lines) + "\n"


def command(entry: Entry) -> str:
    """The command that plays the case of an entry alone."""
    given = f" --transactions {entry.variant.transactions}" if entry.variant.transactions else ""
    return (
        f"linkflap case run {entry.case} --kafka {entry.variant.kafka} --client "
        f"{entry.variant.client}{given}"
    )
