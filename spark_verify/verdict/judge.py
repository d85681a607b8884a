"""From findings to a verdict: one run's findings in, its checks, anomalies, failovers and document out. No Spark in here.

A check for which nothing was due is not due, which says nothing either way. Else it is invalid when something was found that the
mirror's guarantee does not allow, and no damage to the directory could have made it up; else unknown when it could not look,
looked at nothing where something was due, or crashed; else valid. The checks
of the run itself (`spark_verify.verdict.run_checks`) are merged in, and the worst verdict is the run's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from linkflap.harness.model.history import Event
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import Anomaly, CheckResult, ClientDeath, Document, Failover, Verdict, worst
from linkflap.harness.rundir import Damage, Run, RunReader
from linkflap.spark_verify.checks.base import Check, Input, Measured, PartialFinding
from linkflap.spark_verify.facts.eras import history
from linkflap.spark_verify.facts.story import Promotion
from linkflap.spark_verify.read.failed_mirror_parts import CARRIES_GROUPS, FailedPart, failed_parts
from linkflap.spark_verify.read.missing_parts import rests_on_a_capture
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.read.reader_histories import RELAY, Silent, asks_readers, silent
from linkflap.spark_verify.spark.json_columns import unpacked
from linkflap.spark_verify.verdict.allowances import why_allowed
from linkflap.spark_verify.verdict.certificate import certificate
from linkflap.spark_verify.verdict.era_table import eras_of
from linkflap.spark_verify.verdict.run_checks import Done, copied, done_in, in_short, run_checks
from linkflap.spark_verify.verdict.sentences import Names, labels
from linkflap.spark_verify.verdict.shown import show

if TYPE_CHECKING:
    from linkflap.spark_verify.spark.job import FindingRow

STALL_SECONDS: Final = 3.0
"""A host that stood still this long (a broker's session timeout) makes time-based checks unknown."""
PARTS_OF: Final[Mapping[str, Input]] = {
    "events": "promotions",
    "event": "promotions",
    "operations": "sends",
    "operation": "sends",
    "polls": "reads",
    "poll": "reads",
}
"""First part of a damaged path, or the name of a kind of rows that is missing altogether -> the input that it feeds."""


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


def judge(folder: Path, rows: Sequence[FindingRow], checks: Sequence[Check], *, planned: RunPlan | None = None) -> Judgement:
    """Judges one run directory by the findings of `checks` in it (planned already, or not). InputError when it is not one."""
    reader, planned = RunReader(folder), planned or plan(folder)
    events, _ = reader.events()
    by_check: dict[str, list[FindingRow]] = defaultdict(list)
    for row in rows:
        by_check[row.check].append(row)
    done = done_in(reader) if reader.run.recorded else Done()
    quiet = silent(reader.run.scenario, events, done.readers, planned.replicas) if asks_readers(reader.run) else ()
    missing = [each.damage for each in quiet if each.missing]
    damage = list(dict.fromkeys([*planned.damage, *map(_damage, by_check[""]), *missing]))
    anomalies: list[Anomaly] = []
    results: list[CheckResult] = []
    failovers: list[Failover] = []
    for check in checks:
        if not (reader.run.recorded or check.from_bytes):
            results.append(_without_history(check))
            continue
        found = _anomalies(by_check[check.name], planned)
        measured = _measured(check, by_check[check.name], events)
        failovers += measured.failovers
        result = _result(check, by_check[check.name], found, planned, reader.run, events, damage, measured.missing, quiet)
        results.append(_without_followers(result) if reader.run.leaders_only and check.of_replicas else result)
        anomalies += found
    results += _of_the_run(reader, events, planned, damage, done, quiet)
    verdict = _of_all(results, len(checks))
    proven = {result.name for result in results if result.verdict is Verdict.INVALID}
    shown = show(anomalies, proven, {check.name: check for check in checks}, _names(planned, done), _upstream(planned))
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
    )
    return Judgement(folder=folder, anomalies=anomalies, judged=document)


def _upstream(planned: RunPlan) -> Callable[[Anomaly], str]:
    """From which cluster another one has what it has at an offset, where mirrors keep offsets; empty where it is its own."""
    kept = planned.facts.mirror.guarantee.offsets_kept

    def upstream(anomaly: Anomaly) -> str:
        past = history(planned.story(anomaly.topic, anomaly.partition)) if kept else None
        mine = past.generations.get(anomaly.cluster) if past else None
        return mine[-1].era(anomaly.offset).source if mine and anomaly.offset >= 0 else ""

    return upstream


def _of_all(results: Sequence[CheckResult], checks: int) -> Verdict:
    """Checks that were not due prove nothing, and what is proven of the run alone (the results behind those) is not enough."""
    verdicts = [result.verdict for result in results]
    return worst([worst(verdicts[:checks]), *verdicts[checks:]])


def _of_the_run(
    reader: RunReader,
    events: Sequence[Event],
    planned: RunPlan,
    damage: Sequence[Damage],
    done: Done,
    quiet: Sequence[Silent],
) -> Iterable[CheckResult]:
    """What is checked of the recording and its faults, or of logs that were copied."""
    if not reader.run.recorded:
        return copied(reader, planned.replicas, damage)
    unfinished = [each.reason for each in quiet if not each.missing]
    return run_checks(reader, events, planned.facts.windows, damage, planned.facts.ended, done, unfinished)


def _damage(row: FindingRow) -> Damage:
    return Damage(path=str(row.data.get("path")), reason=str(row.data.get("reason")))


def _names(planned: RunPlan, done: Done) -> Names:
    promoted = {(p.cluster, *key): p.offset for key, several in planned.promotions.items() for p in several}
    return Names(processes=labels(done.clients.items()), promotions=promoted)


def _without_history(check: Check) -> CheckResult:
    """Of logs alone most checks have nothing to compare."""
    lacking = ", ".join(sorted(check.inputs & {"sends", "reads", "watermarks", "groups"}))
    return CheckResult(
        name=check.name, verdict=Verdict.NOT_DUE, examined={}, anomalies=0, allowed=0,
        reason=f"no {lacking}: no history was recorded",
    )  # fmt: skip


def _without_followers(result: CheckResult) -> CheckResult:
    """One replica agrees with itself: that proves nothing, whatever else was found in it."""
    if result.verdict is not Verdict.VALID:
        return result
    return replace(
        result, verdict=Verdict.NOT_DUE, examined={},
        reason="clients are given leaders' logs only; compare replicas with linkflap verify --logs",
    )  # fmt: skip


def _anomalies(rows: Sequence[FindingRow], planned: RunPlan) -> list[Anomaly]:
    return [_anomaly(row, planned) for row in rows if row.finding == "found"]


def _anomaly(row: FindingRow, planned: RunPlan) -> Anomaly:
    anomaly = Anomaly(
        check=row.check,
        kind=row.kind,
        cluster=row.cluster,
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        evidence=row.data,
    )
    why = why_allowed(anomaly, planned.facts.mirror.guarantee, _link_into(planned, anomaly), planned.facts.windows)
    if why is None:
        return anomaly
    return replace(anomaly, evidence={**anomaly.evidence, "why": why}, allowed=True)


def _link_into(planned: RunPlan, anomaly: Anomaly) -> str:
    """The link over which what is there came to its cluster, or what it had before; empty at its home."""
    past = history(planned.story(anomaly.topic, anomaly.partition))
    mine = past.generations.get(anomaly.cluster)
    if mine and anomaly.offset >= 0 and (source := mine[-1].era(anomaly.offset).source):
        return f"{source}->{anomaly.cluster}"
    into = [c for c in past.mirrored_ranges if c.destination == anomaly.cluster]
    return f"{into[-1].source}->{anomaly.cluster}" if into else ""


def _result(
    check: Check,
    rows: Sequence[FindingRow],
    found: Sequence[Anomaly],
    planned: RunPlan,
    run: Run,
    events: Sequence[Event],
    damage: Sequence[Damage],
    unmeasured: Sequence[str],
    quiet: Sequence[Silent],
) -> CheckResult:
    examined = _examined(rows)
    allowed = sum(a.allowed for a in found)
    broken = Counter(a.kind for a in found if not a.allowed)
    counted = ", ".join(f"{count} {kind}" for kind, count in broken.most_common())
    doubts = _unfounded(check, broken.keys(), damage) if broken else ()
    unfounded = [f"{path} is damaged, so it may be none: {counted}" for path in doubts]
    due, failed = _due(check, planned, run), failed_parts(events)
    reasons = [
        *unfounded,
        *_unjudged(rows),
        *(_silent(check, quiet) if due or examined else ()),
        *_nothing_seen(check, examined, due, failed, recorded=run.recorded),
        *_not_carried(check, due, failed),
        *_stalls(check, events),
        *unmeasured,
    ]
    proven = bool(broken) and not unfounded
    verdict = _decided(proven=proven, unknown=bool(reasons), something=bool(due or examined))
    said = [counted] if proven else []
    if verdict is Verdict.NOT_DUE:
        said = [_nothing_due(check, run)]
    said += [*_never_synced(examined, due), *_unread(check, examined, planned)]
    return CheckResult(
        name=check.name,
        verdict=verdict,
        examined={f"{cluster}/{origin}": count for (cluster, origin), count in sorted(examined.items())},
        anomalies=len(found) - allowed,
        allowed=allowed,
        kinds=dict(Counter(a.kind for a in found)),
        reason=in_short([*said, *reasons]),
    )


def _nothing_due(check: Check, run: Run) -> str:
    return f"nothing to examine: of {check.unit}, due are {check.due_where}" if run.recorded else "the logs have none"


def _examined(rows: Sequence[FindingRow]) -> Counter[tuple[str, str]]:
    """(cluster, origin) -> how much of it was examined."""
    examined: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.finding == "examined":
            examined[row.cluster, row.origin] += row.count
    return examined


def _decided(*, proven: bool, unknown: bool, something: bool) -> Verdict:
    """A proven anomaly outweighs what is unknown; a check that had nothing to examine was not due."""
    if proven:
        return Verdict.INVALID
    if unknown:
        return Verdict.UNKNOWN
    return Verdict.VALID if something else Verdict.NOT_DUE


def _unfounded(check: Check, broken: Collection[str], damage: Sequence[Damage]) -> Iterable[str]:
    """Damaged parts of the directory without which this check's anomalies prove nothing; torn logs are the kernels' to see."""
    sound = any(kind.despite_torn for kind in check.anomalies if kind.name in broken)
    for each in damage:
        part = each.path.partition("/")[0].partition(".")[0]
        if PARTS_OF.get(part, part) in check.complete or (rests_on_a_capture(each) and not sound):
            yield each.path


def _silent(check: Check, quiet: Sequence[Silent]) -> Iterable[str]:
    """Readers that left nothing, or did not read to the end, on which what this check says rests."""
    for reader in quiet:
        reads = "reads" in check.inputs and (reader.kind == RELAY or not check.only_relays)
        if reads and (reader.missing or check.judges_readers):
            yield reader.reason


def _unjudged(rows: Sequence[FindingRow]) -> Iterable[str]:
    for row in rows:
        if row.finding == "unjudged":
            yield str(row.data.get("reason"))
        elif row.finding == "crashed":
            where = f" on {row.topic}-{row.partition}" if row.topic else ""
            yield f"the check crashed{where}: {row.data.get('reason')}"


def _due(check: Check, planned: RunPlan, run: Run) -> Sequence[tuple[str, str]]:
    """Places where something is due, (cluster, origin) each."""
    if not (run.recorded or check.examines_any_log):
        return []
    promotions = [p for found in planned.promotions.values() for p in found]
    if check.due_at is not None:
        due: list[tuple[str, str]] = sorted(check.due_at(run.scenario, promotions))
    else:
        due = [each for each in _due_anywhere(check, planned, run, promotions) if each[1] in check.due]
    gone = set() if run.recorded else _deleted(planned)
    return [each for each in due if each not in gone]


def _due_anywhere(check: Check, planned: RunPlan, run: Run, promotions: Sequence[Promotion]) -> Iterable[tuple[str, str]]:
    """(cluster, origin) of what a run of this scenario leaves, once each."""
    due = dict.fromkeys(_written_and_mirrored(planned.facts.topology, run))
    if run.recorded:  # in logs alone, whoever was promoted need not have been written to
        due.update(dict.fromkeys((p.cluster, "native") for p in promotions))
        if "reads" not in check.inputs:
            due.update(dict.fromkeys((cluster, "mirrored") for cluster in _followers(planned)))
    return due


def _written_and_mirrored(topology: Topology, run: Run) -> Iterable[tuple[str, str]]:
    """(cluster, origin) of what workloads write, and of where links take it."""
    for owner in dict.fromkeys(w.home for w in run.scenario.workloads if not w.command):
        yield owner, "native"
        yield from ((link.destination, "mirrored") for link in topology.links if owner in topology.homes_over(link))


def _deleted(planned: RunPlan) -> set[tuple[str, str]]:
    """Places of which nothing is due: all that was mirrored there lies before where the logs begin now."""
    left: dict[str, list[bool]] = defaultdict(list)
    for captured in planned.replicas:
        bounds = captured.bounds
        if captured.canonical and planned.judges(bounds.topic):
            past = history(planned.story(bounds.topic, bounds.partition))
            left[bounds.cluster] += [bounds.log_start < c.end for c in past.mirrored_ranges if c.destination == bounds.cluster]
    return {(cluster, "mirrored") for cluster, some in left.items() if some and not any(some)}


def _followers(planned: RunPlan) -> Sequence[str]:
    """Clusters that were made to follow, and got something from there."""
    found: dict[str, None] = {}
    for topic, partition in planned.promotions:
        for cluster, generations in history(planned.story(topic, partition)).generations.items():
            if len(generations) > 1 and any(era.source for era in generations[-1].eras):
                found[cluster] = None
    return list(found)


def _unread(check: Check, examined: Mapping[tuple[str, str], int], planned: RunPlan) -> Iterable[str]:
    """Readers follow the clients, so nobody has to be on a cluster that follows; that nobody was is said all the same."""
    if "reads" in check.inputs and "mirrored" in check.due and check.due_at is None:
        for cluster in _followers(planned):
            if not examined.get((cluster, "mirrored")):
                yield f"nobody read what was mirrored to {cluster} when it followed"


def _nothing_seen(
    check: Check,
    examined: Mapping[tuple[str, str], int],
    due: Sequence[tuple[str, str]],
    failed: Sequence[FailedPart],
    *,
    recorded: bool,
) -> Iterable[str]:
    """Places where something was due and nothing was examined, with the parts of a mirror that had to bring it."""
    for cluster, origin in due:
        if examined.get((cluster, origin)):
            continue
        if origin == "checkpoints":
            yield f"no committed offset of a group was ever sampled on {cluster}, so how far groups were there is unknown"
        else:
            why = [str(part) for part in failed if origin == "mirrored" and part.link.endswith(f"->{cluster}")]
            yield "; ".join([f"no {origin} {check.unit} of {cluster} were there to examine", *why])
    if not due and check.due_at is None and "native" in check.due and recorded:
        yield "nothing was due to be examined: the scenario has no workload"


def _not_carried(check: Check, due: Sequence[tuple[str, str]], failed: Sequence[FailedPart]) -> Iterable[str]:
    """What a check of groups cannot know of a cluster to which nothing, or nothing more, was carried of them."""
    if "groups" not in check.inputs:
        return
    for cluster, origin in due:
        for part in failed:
            if origin == "mirrored" and part.connector == CARRIES_GROUPS and part.link.endswith(f"->{cluster}"):
                yield f"offsets of groups were not carried to {cluster} from then on: {part}"


def _never_synced(examined: Mapping[tuple[str, str], int], due: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Where a mirror could have synced offsets of a group and, though somebody sampled, none was seen: slow, and no violation."""
    if not any(origin == "checkpoints" and examined.get((cluster, origin)) for cluster, origin in due):
        return
    for cluster, origin in due:
        if origin == "mirrored" and not examined.get((cluster, "checkpoints")):
            yield f"no committed offset of a group was seen on {cluster} before the failover: the mirror had synced none"


def _stalls(check: Check, events: Sequence[Event]) -> Iterable[str]:
    if not check.time_based:
        return
    stalls = [s for e in events if e.kind == "host-stall" and isinstance(s := e.data.get("seconds"), int | float)]
    if stalls and max(stalls) >= STALL_SECONDS:
        yield f"the host stood still for {max(stalls):.1f} s, so nothing that rests on time can be said"


def _measured(check: Check, rows: Sequence[FindingRow], events: Sequence[Event]) -> Measured:
    """What a check measured of the run's failovers."""
    if check.measure is None:
        return Measured(failovers=())
    partial = [
        PartialFinding(
            cluster=r.cluster, offset=r.offset, data=unpacked(r.data), topic=r.topic, partition=r.partition, together=r.together
        )
        for r in rows
        if r.finding == "partial"
    ]
    return check.measure(partial, events)


def _reason(verdict: Verdict, checks: Sequence[CheckResult]) -> str:
    """Why a verdict is not valid: the checks that have it. What is wrong with the record is why the rest could not be judged."""
    if verdict is Verdict.VALID:
        return ""
    first = sorted(checks, key=lambda c: c.name != "recording")
    worst_first = [c for c in first if c.verdict is verdict and c.reason]
    return "; ".join(f"{c.name}: {c.reason}" for c in worst_first) or "nothing was due: no check had anything to examine"


def _clients_died(events: Sequence[Event]) -> Iterator[ClientDeath]:
    """Processes of clients that died. What was in flight then is info; it makes no verdict worse."""
    for event in events:
        if event.kind == "client-died":
            known = {name: value for name, value in event.data.items() if value is not None}
            yield msgspec.convert({**known, "process": event.subject, "time": event.time}, ClientDeath, strict=False)


def _mirror(spec: MirrorSpec) -> str:
    return " ".join([spec.kind, *(f"{name}={value}" for name, value in sorted(spec.options.items()))])
