"""From findings to a verdict: one run's findings in, its checks, anomalies, failovers and document
out. No Spark in here.

Each check has its result (`spark_verify.verdict.check_result`), those of the run itself
(`spark_verify.verdict.run_checks`) are merged in, and the worst verdict is the run's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from linkflap.harness.model.events import ClientDied, Event, of_kind
from linkflap.harness.model.failover_cost import Failover
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.verdict import (
    Anomaly,
    CheckResult,
    ClientDeath,
    Document,
    Verdict,
    worst,
)
from linkflap.harness.rundir import Damage, RunReader
from linkflap.spark_verify.checks.base import Check, Measured
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.reader_histories import UnheardReader, asks_readers, silent
from linkflap.spark_verify.spark.finding_rows import FindingRow, partial_of
from linkflap.spark_verify.verdict.anomaly_rows import anomaly_rows, came_from
from linkflap.spark_verify.verdict.certificate import certificate
from linkflap.spark_verify.verdict.check_result import UNACKNOWLEDGED, check_result
from linkflap.spark_verify.verdict.due import foreign_homes
from linkflap.spark_verify.verdict.era_table import eras_of
from linkflap.spark_verify.verdict.run_checks import Done, copied, done_in, run_checks, unwritten
from linkflap.spark_verify.verdict.sentences import SentenceNames, labels
from linkflap.spark_verify.verdict.shown import show


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on one run directory: the document, and all anomalies, which are not capped.

    `kept` is the folder that has it, once it was written.
    """

    folder: Path
    judged: Document
    anomalies: Sequence[Anomaly]
    kept: Path | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of its checks."""
        return self.judged.verdict

    @property
    def checks(self) -> Sequence[CheckResult]:
        """What each check examined and found."""
        return self.judged.checks

    @property
    def failovers(self) -> Sequence[Failover]:
        """What each failover cost."""
        return self.judged.failovers

    @cached_property
    def document(self) -> Mapping[str, object]:
        """The document as plain JSON values: what verdict.json holds and `--json` prints."""
        encoded: Mapping[str, object] = msgspec.json.decode(msgspec.json.encode(self.judged))
        return encoded


def _by_check(rows: Sequence[FindingRow]) -> defaultdict[str, list[FindingRow]]:
    by_check: defaultdict[str, list[FindingRow]] = defaultdict(list)
    for row in rows:
        by_check[row.check].append(row)
    return by_check


def judge(
    folder: Path,
    rows: Sequence[FindingRow],
    checks: Sequence[Check],
    *,
    planned: RunPlan | None = None,
) -> Judgement:
    """Judges one run directory by the findings of `checks` in it (planned already, or not).
    InputError when it is not one."""
    reader, planned = RunReader(folder), planned or plan(folder)
    events, _ = reader.events()
    by_check = _by_check(rows)
    done = done_in(reader) if reader.run.recorded else Done()
    quiet = _quiet_readers(reader, planned, events, done)
    foreign = foreign_homes(planned, reader.run, done.rows)
    needless = unwritten(reader.run.scenario, foreign=bool(foreign))
    damage = [
        each for each in _all_damage(planned, by_check[""], quiet) if each.path not in needless
    ]
    anomalies: list[Anomaly] = []
    results: list[CheckResult] = []
    failovers: list[Failover] = []
    for check in checks:
        guarantee = reader.run.scenario.mirror.guarantee
        if not check.runs_on(guarantee, recorded=reader.run.recorded):
            results.append(_without_history(check))
            continue
        found = anomaly_rows(check, by_check[check.name], planned)
        measured = _measured(check, by_check[check.name], events)
        failovers += measured.failovers
        result = check_result(
            check,
            by_check[check.name],
            found,
            planned,
            reader.run,
            events,
            damage,
            measured.missing,
            quiet,
            done.asked_for,
            foreign,
        )
        results.append(
            _without_followers(result) if reader.run.leaders_only and check.of_replicas else result
        )
        anomalies += found
    results += _of_the_run(reader, events, planned, damage, done, quiet, foreign=bool(foreign))
    verdict = _of_all(results, len(checks))
    proven = {result.name for result in results if result.verdict is Verdict.INVALID}
    shown = show(
        anomalies,
        proven,
        {check.name: check for check in checks},
        _names(planned, done),
        came_from(planned),
    )
    eras, eras_left_out = eras_of(planned, rows, anomalies, checks)
    run = reader.run
    document = Document(
        verdict=verdict,
        reason=_reason(verdict, results),
        run=str(folder),
        seed=run.scenario.seed,
        scenario=run.scenario.name,
        runtime=run.runtime,
        mirror=_mirror(run.scenario.mirror),
        checks=tuple(results),
        failovers=certificate(failovers, anomalies, events),
        cause=shown.cause,
        causes=tuple(shown.causes),
        anomalies=tuple(shown.anomalies),
        anomalies_left_out=shown.left_out,
        eras=tuple(eras),
        eras_left_out=eras_left_out,
        clients_died=tuple(_clients_died(events)),
        by_bytes=UNACKNOWLEDGED if foreign or not run.recorded else "",
    )
    return Judgement(folder=folder, anomalies=anomalies, judged=document)


def _of_all(results: Sequence[CheckResult], checks: int) -> Verdict:
    """The worst verdict of the checks that were due. Valid needs one of them: the checks of the run
    itself are not enough."""
    verdicts = [result.verdict for result in results]
    return worst([worst(verdicts[:checks]), *verdicts[checks:]])


def _of_the_run(
    reader: RunReader,
    events: Sequence[Event],
    planned: RunPlan,
    damage: Sequence[Damage],
    done: Done,
    quiet: Sequence[UnheardReader],
    *,
    foreign: bool,
) -> Iterable[CheckResult]:
    """What is checked of the recording and its faults, or of logs that were copied."""
    if not reader.run.recorded:
        return copied(reader, planned.replicas, damage)
    unfinished = [each.reason for each in quiet if not each.missing]
    return run_checks(
        reader,
        events,
        planned.facts.windows,
        damage,
        planned.facts.ended,
        done,
        unfinished,
        foreign=foreign,
    )


def _quiet_readers(
    reader: RunReader, planned: RunPlan, events: Sequence[Event], done: Done
) -> Sequence[UnheardReader]:
    """Readers that left no rows, or did not read to the end; none where nothing asks for
    readers."""
    if not asks_readers(reader.run):
        return ()
    return silent(reader.run.scenario, events, done.readers, planned.replicas)


def _all_damage(
    planned: RunPlan, rows: Sequence[FindingRow], quiet: Sequence[UnheardReader]
) -> Iterable[Damage]:
    """What is damaged or missing, once each: found by the plan, by Spark's tasks (their rows of no
    check), and of readers."""
    # Spark returns rows in the order in which its tasks ended, which is another one each time.
    reported = sorted(map(_damage, rows), key=lambda d: (d.path, len(d.reason), d.reason))
    missing = [each.damage for each in quiet if each.missing]
    return dict.fromkeys([*planned.damage, *reported, *missing])


def _damage(row: FindingRow) -> Damage:
    return Damage(path=str(row.data.get("path")), reason=str(row.data.get("reason")))


def _names(planned: RunPlan, done: Done) -> SentenceNames:
    promoted = {
        (p.cluster, *key): p.offset for key, several in planned.promotions.items() for p in several
    }
    return SentenceNames(processes=labels(done.clients.items()), promotions=promoted)


def _without_history(check: Check) -> CheckResult:
    """The results of a directory without a history: most checks have nothing to compare."""
    lacking = ", ".join(sorted(check.inputs & {"sends", "reads", "watermarks", "groups"}))
    return CheckResult(
        name=check.name, verdict=Verdict.NOT_DUE, examined={}, anomalies=0, allowed=0,
        reason=f"no {lacking}: no history was recorded",
    )  # fmt: skip


def _without_followers(result: CheckResult) -> CheckResult:
    """Replica agreement of logs that were fetched from leaders alone: not due, because one replica
    agrees with itself."""
    if result.verdict is not Verdict.VALID:
        return result
    return replace(
        result, verdict=Verdict.NOT_DUE, examined={},
        reason="clients are given leaders' logs only; compare replicas with linkflap verify --logs",
    )  # fmt: skip


def _measured(check: Check, rows: Sequence[FindingRow], events: Sequence[Event]) -> Measured:
    """What a check measured of the run's failovers."""
    if check.measure is None:
        return Measured(failovers=())
    partials = [partial_of(row) for row in rows if row.finding == "partial"]
    return check.measure(partials, events)


def _reason(verdict: Verdict, checks: Sequence[CheckResult]) -> str:
    """Why a verdict is not valid: the checks that have that verdict. A damaged record comes first,
    as it explains the rest."""
    if verdict is Verdict.VALID:
        return ""
    first = sorted(checks, key=lambda c: c.name != "recording")
    worst_first = [c for c in first if c.verdict is verdict and c.reason]
    return (
        "; ".join(f"{c.name}: {c.reason}" for c in worst_first)
        or "nothing was due: no check had anything to examine"
    )


def _clients_died(events: Sequence[Event]) -> Iterator[ClientDeath]:
    """Processes of clients that died. Their operations in flight are info, and make no verdict
    worse."""
    for died in of_kind(events, ClientDied):
        yield ClientDeath(
            process=died.process,
            time=died.time,
            by=died.by,
            clients=died.clients,
            clusters=died.clusters,
            status=died.status,
            signal=died.signal,
            in_flight=tuple(msgspec.to_builtins(operation) for operation in died.in_flight),
            last_words=died.last_words,
            again=died.again,
        )


def _mirror(spec: MirrorSpec) -> str:
    return " ".join(
        [spec.kind, *(f"{name}={value}" for name, value in sorted(spec.options.items()))]
    )
