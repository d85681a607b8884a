"""From findings to a verdict: one run's findings in, its checks, anomalies, failovers and document
out. No Spark in here.

Each check has its result. The checks of the run itself (`spark_verify.verdict.run_checks`) are
added. The worst verdict is the run's.

A check for which nothing was due is `not due`, which does not count. Otherwise the check is invalid
if it has a finding that the mirror's guarantee does not allow and that no damage to the directory
could have caused. Otherwise it is unknown if it could not run, examined nothing where something was
due, or crashed. In all other cases it is valid.

The document shows causes before their consequences. Examples are capped, counts never. For each
check and kind the first EXAMPLES are shown, and the one that names a cause.

The table of eras says what was compared in every era of every log, and what was found: one row per
topic-partition, cluster and era. The truncated tail of a log is a row too: the part of an earlier
generation behind the truncation. The rows are capped, the worst first, and the number of rows left
out is reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.model.events import ClientDied, Event, HostStall, WireRecorded, of_kind
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.texts import counted as things
from linkflap.harness.model.topology import INTERNAL_TOPICS, TopicPartition
from linkflap.harness.model.verdict import (
    ORDER,
    Anomaly,
    Cause,
    CheckResult,
    ClientDeath,
    Consequence,
    Document,
    EraResult,
    Failover,
    Verdict,
    worst,
)
from linkflap.harness.rundir import Damage, Run, RunReader
from linkflap.spark_verify.checks.base import Check, Input, Measured, grouped
from linkflap.spark_verify.checks.finding_rows import FindingRow, partial_of
from linkflap.spark_verify.facts.eras import FOREVER, Era, LogGeneration, history
from linkflap.spark_verify.read.captures import NOTHING_CAPTURED
from linkflap.spark_verify.read.logged_around import RunLogs, samples_of
from linkflap.spark_verify.read.missing_parts import rests_on_a_capture
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.reader_histories import RELAY, UnheardReader, asks_readers, silent
from linkflap.spark_verify.verdict.allowances import anomaly_rows, came_from, within_budgets
from linkflap.spark_verify.verdict.causes import CauseGroup as Ranked
from linkflap.spark_verify.verdict.causes import rank
from linkflap.spark_verify.verdict.certificate import certificate
from linkflap.spark_verify.verdict.due import (
    RunAtHand,
    all_due,
    failed_parts,
    foreign_homes,
    idle,
    never_synced,
    no_readers,
    not_carried,
    not_examined,
    unread_after_failback,
)
from linkflap.spark_verify.verdict.run_checks import (
    Done,
    copied,
    done_in,
    fault_bite,
    in_short,
    recording,
    unwritten,
)
from linkflap.spark_verify.verdict.sentences import (
    SentenceNames,
    allowed_in_words,
    begin,
    counted,
    first_cause,
    labels,
    sentence,
)

STALL_SECONDS: Final = 3.0
"""A host that stood still this long (a broker's session timeout) makes time-based checks
unknown."""
UNACKNOWLEDGED: Final = "the clients' acknowledgements were not recorded"
_MOST_NAMES: Final = 3
UNPROMISED: Final = "nothing was acknowledged"
RUN: Final = "run.json"
PARTS_OF: Final[Mapping[str, Input]] = {
    "events": "promotions",
    "event": "promotions",
    "operations": "sends",
    "operation": "sends",
    "polls": "reads",
    "poll": "reads",
}
"""First part of a damaged path, or the name of a kind of rows that is missing altogether -> the
input that it feeds."""


def check_result(
    check: Check,
    rows: Sequence[FindingRow],
    found: Sequence[Anomaly],
    at_hand: RunAtHand,
    damage: Sequence[Damage],
    unmeasured: Sequence[str],
    quiet: Sequence[UnheardReader],
) -> CheckResult:
    examined, run = _examined(rows), at_hand.run
    allowed = sum(a.allowed for a in found)
    broken = Counter(a.kind for a in found if not a.allowed)
    unfounded = _perhaps_false(check, broken, damage, run)
    due, failed = all_due(check, at_hand), failed_parts(at_hand.events)
    something = bool(due or examined)
    reasons = [
        *unfounded,
        *_unjudged(rows),
        *(_silent(check, quiet) if something else ()),
        *not_examined(check, examined, due, failed, at_hand),
        *not_carried(check, due, failed, run.scenario.mirror.guarantee.group_offsets_by),
        *_stalls(check, at_hand.events),
        *unmeasured,
    ]
    proven = bool(broken) and not unfounded
    verdict = _decided(proven=proven, unknown=bool(reasons), something=something)
    notes = [_counted(broken)] if proven else []
    if verdict is Verdict.NOT_DUE:
        notes = [_nothing_due(check, run, foreign=bool(at_hand.foreign))]
    notes += [*never_synced(examined, due), *unread_after_failback(check, examined, at_hand)]
    return CheckResult(
        name=check.name,
        verdict=verdict,
        examined={
            f"{cluster}/{origin}": count for (cluster, origin), count in sorted(examined.items())
        },
        anomalies=len(found) - allowed,
        allowed=allowed,
        kinds=dict(Counter(a.kind for a in found)),
        reason=in_short([*notes, *reasons]),
    )


def _nothing_due(check: Check, run: Run, *, foreign: bool) -> str:
    if foreign and "sends" in check.inputs:
        return f"nothing to examine: {_unacknowledged(run)}"
    if run.recorded and check.due_at is None and (absent := no_readers(check, run.scenario)):
        return f"nothing to examine: no workload has {absent}"
    return (
        f"nothing to examine; this check expects {check.unit}: {check.due_where}"
        if run.recorded
        else "the logs have none"
    )


def _unacknowledged(run: Run) -> str:
    """Why a verdict rests on bytes alone."""
    return UNPROMISED if run.scenario.recorded_topics else UNACKNOWLEDGED


def _examined(rows: Sequence[FindingRow]) -> Counter[tuple[str, str]]:
    """(cluster, origin) -> how much of it was examined."""
    examined: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.finding == "examined":
            examined[row.cluster, row.origin] += row.count
    return examined


def _decided(*, proven: bool, unknown: bool, something: bool) -> Verdict:
    """A proven anomaly outweighs what is unknown; a check that had nothing to examine was not
    due."""
    if proven:
        return Verdict.INVALID
    if unknown:
        return Verdict.UNKNOWN
    return Verdict.VALID if something else Verdict.NOT_DUE


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _perhaps_false(
    check: Check, broken: Counter[str], damage: Sequence[Damage], run: Run
) -> Sequence[str]:
    """Why a check's anomalies, counted by kind, may be false positives."""
    if not broken:
        return ()
    counted = _counted(broken)
    return [
        f"{path} is damaged, so these may be false positives: {counted}"
        for path in _unfounded(check, broken.keys(), damage, run)
    ]


def _unfounded(
    check: Check, broken: Collection[str], damage: Sequence[Damage], run: Run
) -> Iterable[str]:
    """Damaged parts of the directory that this check's anomalies rest on. Every anomaly rests on
    the run.json of a finished run. Kernels handle torn logs themselves."""
    sound = any(kind.despite_torn for kind in check.anomalies if kind.name in broken)
    for each in damage:
        part = each.path.partition("/")[0].partition(".")[0]
        changed = each.path == RUN and run.status != "running"
        if (
            changed
            or PARTS_OF.get(part, part) in check.complete
            or (rests_on_a_capture(each) and not sound)
        ):
            yield each.path


def _silent(check: Check, quiet: Sequence[UnheardReader]) -> Iterable[str]:
    """Readers that left no rows or did not read to the end, if this check needs readers."""
    for reader in quiet:
        reads = "reads" in check.inputs and (reader.kind == RELAY or not check.only_relays)
        if reads and (reader.missing or check.judges_readers):
            yield reader.reason


def _unjudged(rows: Sequence[FindingRow]) -> Iterable[str]:
    """Reasons why partitions were not judged, sorted by partition because Spark returns rows in the
    order in which its tasks end."""
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        if row.finding == "unjudged":
            yield str(row.data.get("reason"))
        elif row.finding == "crashed":
            where = f" on {row.topic}-{row.partition}" if row.topic else ""
            yield f"the check crashed{where}: {row.data.get('reason')}"


def _stalls(check: Check, events: Sequence[Event]) -> Iterable[str]:
    if not check.time_based:
        return
    stalls = [e.seconds for e in of_kind(events, HostStall)]
    if stalls and max(stalls) >= STALL_SECONDS:
        yield (
            f"the host stalled for {max(stalls):.1f} s, so nothing can be said that depends on "
            "measured times"
        )


EXAMPLES: Final = 20
"""Anomalies in the document per check, kind and whether allowed."""
MOST_CAUSES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`cause` is the first cause in one sentence, empty where nothing is proven."""

    cause: str
    causes: Sequence[Cause]
    anomalies: Sequence[Anomaly]
    left_out: int


def show(
    anomalies: Sequence[Anomaly],
    proven: Collection[str],
    checks: Mapping[str, Check],
    names: SentenceNames,
    upstream: Callable[[Anomaly], str] = lambda anomaly: "",
    logged: Callable[[Sequence[Anomaly]], Sequence[str]] = lambda several: [""] * len(several),
) -> Shown:
    """The document's examples of anomalies. `proven` are the checks whose anomalies prove
    something; `upstream` is that of `rank`; `logged` returns, per anomaly, the lines of process
    logs that its sentence quotes.
    """
    broken = [
        anomaly for anomaly in ordered(anomalies) if anomaly.check in proven and not anomaly.allowed
    ]
    causes = rank(broken, checks, upstream)
    chosen = _chosen(anomalies, [broken[cause.first] for cause in causes])
    ranks = _ranks(causes, broken)
    # Anomalies that prove nothing come after those that do, and allowed ones at the end.
    chosen.sort(key=lambda a: (a.allowed, ranks.get(id(a), (len(causes), 0, 0))))
    numbers = {id(anomaly): number for number, anomaly in enumerate(chosen, start=1)}
    said = logged([broken[cause.first] for cause in causes[:MOST_CAUSES]])
    rows = [
        _cause(cause, broken, checks, names, numbers, also)
        for cause, also in zip(causes[:MOST_CAUSES], said, strict=True)
    ]
    return Shown(
        cause=rows[0].sentence if rows else "",
        causes=rows,
        anomalies=[_in_words(anomaly, ranks.get(id(anomaly)), checks, names) for anomaly in chosen],
        left_out=len(anomalies) - len(chosen),
    )


def ordered(anomalies: Sequence[Anomaly]) -> Sequence[Anomaly]:
    """Sort key: violations before allowed anomalies; then check, kind, partition and offset."""
    return sorted(
        anomalies,
        key=lambda a: (a.allowed, a.check, a.kind, a.topic, a.partition, a.cluster, a.offset),
    )


def _chosen(anomalies: Sequence[Anomaly], always: Sequence[Anomaly]) -> list[Anomaly]:
    taken: Counter[tuple[str, str, bool]] = Counter()
    chosen, wanted = list[Anomaly](), {id(anomaly) for anomaly in always}
    for anomaly in ordered(anomalies):
        key = (anomaly.check, anomaly.kind, anomaly.allowed)
        taken[key] += 1
        if taken[key] <= EXAMPLES or id(anomaly) in wanted:
            chosen.append(anomaly)
    return chosen


def _ranks(causes: Sequence[Ranked], broken: Sequence[Anomaly]) -> dict[int, tuple[int, int, int]]:
    """Anomaly -> sort key: the number of its cause, the number of its kind among the consequences
    (0: it is the cause), and its order within that kind.
    """
    ranks: dict[int, tuple[int, int, int]] = {}
    for number, cause in enumerate(causes):
        for kind, numbers in enumerate((cause.members, *cause.consequences.values())):
            for turn, index in enumerate(numbers):
                ranks[id(broken[index])] = (number, kind, turn)
    return ranks


def _cause(
    cause: Ranked,
    broken: Sequence[Anomaly],
    checks: Mapping[str, Check],
    names: SentenceNames,
    numbers: Mapping[int, int],
    quoted: str,
) -> Cause:
    said = first_cause(cause, broken, checks, names)
    return Cause(
        sentence=f"{said.removesuffix('.')}; {quoted}." if quoted else said,
        check=cause.check,
        kind=cause.kind,
        cluster=cause.cluster,
        anomaly=numbers[id(broken[cause.first])],
        count=len(cause.members),
        consequences=tuple(
            Consequence(
                check=check,
                kind=kind,
                count=len(found),
                said=counted(check, kind, [broken[n] for n in found], checks),
                anomaly=next((at for n in found if (at := numbers.get(id(broken[n])))), 0),
            )
            for (check, kind), found in cause.consequences.items()
        ),
    )


def _in_words(
    anomaly: Anomaly,
    rank: tuple[int, int, int] | None,
    checks: Mapping[str, Check],
    names: SentenceNames,
) -> Anomaly:
    return replace(
        anomaly, cause=rank[0] + 1 if rank else 0, sentence=begin(sentence(anomaly, checks, names))
    )


MOST: Final = 200
"""Eras in a document."""
EraKey = tuple[str, int, str, int, int]
"""Topic, partition, cluster, number of its generation, start of the era."""


def eras_of(
    planned: RunPlan,
    rows: Sequence[FindingRow],
    anomalies: Sequence[Anomaly],
    checks: Sequence[Check],
) -> tuple[Sequence[EraResult], int]:
    """The rows, and how many are left out."""
    # Records that readers got are counted once per reader, so that they do not show the length of a
    # log.
    units = {
        check.name: check.unit
        for check in checks
        if check.unit != "records" or "reads" not in check.inputs
    }
    data = {(r.topic, r.partition) for r in rows if r.topic and r.topic not in INTERNAL_TOPICS}
    keys = sorted(data | planned.promotions.keys())
    compared = _compared(rows, units)
    by_key = grouped(anomalies, lambda anomaly: (anomaly.topic, anomaly.partition))
    found = [row for key in keys for row in _partition(planned, key, compared, by_key.get(key, ()))]
    shown = (
        sorted(found, key=lambda row: -ORDER.index(row.verdict))[:MOST]
        if len(found) > MOST
        else found
    )
    return shown, len(found) - len(shown)


def _key(row: FindingRow) -> EraKey:
    generation = row.data.get("generation")
    return (
        row.topic,
        row.partition,
        row.cluster,
        generation if isinstance(generation, int) else 0,
        row.offset,
    )


def _compared(
    rows: Sequence[FindingRow], units: Mapping[str, str]
) -> Mapping[EraKey, Mapping[str, int]]:
    """Per era and unit, the largest count that any check examined."""
    compared: dict[EraKey, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.finding == "examined" and row.offset >= 0 and row.check in units:
            mine, unit = compared[_key(row)], units[row.check]
            mine[unit] = max(mine.get(unit, 0), row.count)
    return compared


def _partition(
    planned: RunPlan,
    key: TopicPartition,
    compared: Mapping[EraKey, Mapping[str, int]],
    anomalies: Sequence[Anomaly],
) -> Iterator[EraResult]:
    topic, partition = key
    for cluster, generations in sorted(
        history(planned.facts_of(topic, partition)).generations.items()
    ):
        for generation, era in _shown_eras(generations):
            looked = _looked_at(compared, (topic, partition, cluster, generation.number), era)
            mine = [a for a in anomalies if a.cluster == cluster and _in(generation, era, a)]
            broken = sum(1 for a in mine if not a.allowed)
            yield EraResult(
                topic=topic,
                partition=partition,
                cluster=cluster,
                generation=generation.number,
                origin=era.origin,
                owner=era.owner,
                source=era.source,
                start=era.start,
                end=None if era.end == FOREVER else era.end,
                truncated=not generation.last,
                compared=looked,
                anomalies=broken,
                allowed=len(mine) - broken,
                verdict=Verdict.INVALID if broken else Verdict.VALID if looked else Verdict.NOT_DUE,
            )


def _looked_at(
    compared: Mapping[EraKey, Mapping[str, int]], log: tuple[str, int, str, int], era: Era
) -> Mapping[str, int]:
    """Per unit, the compared amount of an era. `log` is topic, partition, cluster and
    generation."""
    looked: dict[str, int] = {}
    for (*of, start), units in compared.items():
        if tuple(of) == log and era.start <= start < era.end:
            looked |= {unit: max(count, looked.get(unit, 0)) for unit, count in units.items()}
    return looked


def _shown_eras(generations: Iterable[LogGeneration]) -> Iterator[tuple[LogGeneration, Era]]:
    """The eras of a cluster's last log, and the truncated tails before it."""
    for generation in generations:
        for era in generation.eras:
            if generation.last:
                yield generation, era
            elif era.end > generation.truncated_to:
                yield generation, replace(era, start=max(era.start, generation.truncated_to))


def _in(generation: LogGeneration, era: Era, anomaly: Anomaly) -> bool:
    """Whether an anomaly is in this era. An anomaly in an earlier capture belongs to that capture's
    generation.
    """
    earlier = "capture" in anomaly.evidence
    return (
        (earlier or generation.last)
        and earlier is not generation.last
        and era.start <= anomaly.offset < era.end
    )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on one run directory: the document, and all anomalies, which are not capped.

    `kept` is the folder with verdict.json, once written.
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
        """The examined counts and the findings of each check."""
        return self.judged.checks

    @property
    def failovers(self) -> Sequence[Failover]:
        """The cost of each failover."""
        return self.judged.failovers

    @cached_property
    def document(self) -> Mapping[str, object]:
        """The document as plain JSON values: what verdict.json holds and `--json` prints."""
        encoded: Mapping[str, object] = msgspec.json.decode(msgspec.json.encode(self.judged))
        return encoded


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
    by_check = defaultdict(list, grouped(rows, lambda row: row.check))
    done = done_in(reader) if reader.run.recorded else Done()
    quiet = _quiet_readers(reader, planned, events, done)
    foreign = foreign_homes(planned, reader.run, done.rows, done.promised)
    nothing = idle(planned, reader.run, done.rows, events)
    needless = unwritten(reader.run.scenario, foreign, nothing)
    damage = [
        each for each in _all_damage(planned, by_check[""], quiet) if each.path not in needless
    ]
    at_hand = RunAtHand(
        planned=planned,
        run=reader.run,
        events=events,
        asked_for=done.asked_for,
        foreign=foreign,
    )
    anomalies: list[Anomaly] = []
    results: list[CheckResult] = []
    failovers: list[Failover] = []
    for check in checks:
        guarantee = reader.run.scenario.mirror.guarantee
        if not check.runs_on(guarantee, recorded=reader.run.recorded):
            results.append(_without_history(check))
            continue
        found = within_budgets(
            check,
            anomaly_rows(check, by_check[check.name], planned),
            reader.run.scenario.budgets.allowed,
        )
        measured = _measured(check, by_check[check.name], events)
        failovers += measured.failovers
        result = check_result(
            check, by_check[check.name], found, at_hand, damage, measured.missing, quiet
        )
        results.append(_as_captured(result, check, reader.run))
        anomalies += found
    results += _of_the_run(
        reader, events, planned, damage, done, quiet, foreign=bool(foreign), nothing=nothing
    )
    verdict = _of_all(results, len(checks))
    proven = {result.name for result in results if result.verdict is Verdict.INVALID}
    named = {check.name: check for check in checks}
    shown = show(
        anomalies,
        proven,
        named,
        _names(planned, done),
        came_from(planned),
        partial(_quoted, reader, events),
    )
    eras, eras_left_out = eras_of(planned, rows, anomalies, checks)
    run = reader.run
    document = Document(
        verdict=verdict,
        reason=_reason(verdict, results, done.mostly_failed, nothing, run.unfinished),
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
        by_bytes=_unacknowledged(run) if foreign or not run.recorded else "",
        allowed=allowed_in_words(anomalies, named),
        mostly_failed=done.mostly_failed,
        forwarded_unread={
            report.cluster: report.forwarded_unread
            for report in of_kind(events, WireRecorded)
            if report.forwarded_unread
        },
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
    nothing: str,
) -> Iterable[CheckResult]:
    """The results of the two checks of the run itself: its recording and its faults, or for copied
    logs their files.
    """
    if not reader.run.recorded:
        return copied(reader, planned.replicas, damage)
    return (
        recording(reader, planned, events, damage, done, quiet, foreign=foreign, idle=nothing),
        fault_bite([fault.id for fault in reader.run.scenario.schedule], events),
    )


def _quiet_readers(
    reader: RunReader, planned: RunPlan, events: Sequence[Event], done: Done
) -> Sequence[UnheardReader]:
    """Readers that left no rows, or did not read to the end; none if no check needs readers."""
    if not asks_readers(reader.run):
        return ()
    return silent(reader.run.scenario, events, done.readers, planned.replicas)


def _all_damage(
    planned: RunPlan, rows: Sequence[FindingRow], quiet: Sequence[UnheardReader]
) -> Iterable[Damage]:
    """All damaged or missing parts, once each: those found by the plan and by Spark's tasks (rows
    of no check), and silent readers."""
    # Spark returns rows in the order in which its tasks end, which differs from run to run.
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
    reason = f"no {lacking}: no history was recorded"
    return CheckResult(name=check.name, verdict=Verdict.NOT_DUE, reason=reason)


def _as_captured(result: CheckResult, check: Check, run: Run) -> CheckResult:
    """The result, with the limits that a capture by Fetch puts on the check."""
    if run.leaders_only and check.of_replicas:
        return _without_followers(result)
    of_bytes = check.inputs & {"batches", "records"}
    if not run.fetched or result.verdict is Verdict.NOT_DUE or not of_bytes:
        return result
    topics = sorted({topic for several in run.fetched.values() for topic in several})
    cost = (
        "their replicas are what each broker gives to consumers"
        if check.of_replicas
        else "nothing above the high watermark is seen of them"
    )
    notes = [f"{', '.join(topics)} from Fetch, not from disk: {cost}"]
    if check.of_replicas and run.uncompared:
        once = ", ".join(
            f"{what} on {cluster}"
            for cluster, several in sorted(run.uncompared.items())
            for what in several
        )
        notes.append(f"not compared with a second fetch: {once}")
    return replace(result, reason=in_short([*([result.reason] if result.reason else []), *notes]))


def _without_followers(result: CheckResult) -> CheckResult:
    """The result of replica-agreement for logs that were fetched from leaders alone: not due,
    because one replica always agrees with itself."""
    if result.verdict is not Verdict.VALID:
        return result
    return replace(
        result, verdict=Verdict.NOT_DUE, examined={},
        reason="clients are given leaders' logs only; compare replicas with linkflap verify --logs",
    )  # fmt: skip


def _measured(check: Check, rows: Sequence[FindingRow], events: Sequence[Event]) -> Measured:
    """The measurements of the run's failovers that a check made."""
    if check.measure is None:
        return Measured(failovers=())
    partials = [partial_of(row) for row in rows if row.finding == "partial"]
    return check.measure(partials, events)


def _reason(
    verdict: Verdict,
    checks: Sequence[CheckResult],
    mostly_failed: str,
    idle: str,
    unfinished: str,
) -> str:
    """Why a verdict is not valid: the checks with that verdict and their reasons. Reasons that
    explain the others come first: an unfinished run, the error of most operations, a damaged
    recording. If the programs wrote nothing (`idle`), that is the only reason."""
    if verdict is Verdict.VALID:
        return ""
    first = sorted(checks, key=lambda c: c.name != "recording")
    if idle and verdict is Verdict.UNKNOWN:
        first = first[:1]
    worst_first = [c for c in first if c.verdict is verdict and c.reason]
    reasons = [
        _said_by([check.name for check in several], besides)
        for reason, several in grouped(worst_first, lambda check: check.reason).items()
        if (besides := reason.removeprefix(unfinished).removeprefix("; "))
    ]
    nothing = [] if worst_first else ["nothing was due: no check had anything to examine"]
    explains = [unfinished if verdict is Verdict.UNKNOWN else "", mostly_failed]
    return "; ".join([*filter(None, explains), *reasons, *nothing])


def _said_by(checks: Sequence[str], reason: str) -> str:
    """A reason after the names of its checks."""
    if reason == NOTHING_CAPTURED.reason:
        return f"{reason}, so {things(len(checks), 'check')} had nothing to examine"
    many = len(checks) > _MOST_NAMES
    return f"{f'{len(checks)} checks' if many else ', '.join(checks)}: {reason}"


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


def _quoted(
    reader: RunReader, events: Sequence[Event], anomalies: Sequence[Anomaly]
) -> Sequence[str]:
    """Per anomaly, the lines that brokers and mirrors logged about it, for its sentence; empty if
    no line names it."""
    logs, samples = RunLogs(reader), samples_of(reader, anomalies)
    return [
        logs.around(each, samples[each.cluster, each.topic, each.partition], events).quoted
        for each in anomalies
    ]


def _mirror(spec: MirrorSpec) -> str:
    return " ".join(
        [spec.kind, *(f"{name}={value}" for name, value in sorted(spec.options.items()))]
    )
