"""The result of one check: its findings, and the reasons why they may prove nothing.

A check for which nothing was due is `not due`, which does not count. Else it is invalid if it has a
finding that the mirror's guarantee does not allow, and that no damage to the directory could have
caused. Else it is unknown if it could not run, examined nothing where something was due, or
crashed. Else it is valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from linkflap.harness.model.events import Event, HostStall, of_kind
from linkflap.harness.model.verdict import Anomaly, CheckResult, Verdict
from linkflap.harness.rundir import Damage, Run
from linkflap.spark_verify.checks.base import Check, Input
from linkflap.spark_verify.read.failed_mirror_parts import failed_parts
from linkflap.spark_verify.read.missing_parts import rests_on_a_capture
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.read.reader_histories import RELAY, UnheardReader
from linkflap.spark_verify.verdict.due import (
    all_due,
    never_synced,
    not_carried,
    nothing_seen,
    unread_after_failback,
)
from linkflap.spark_verify.verdict.run_checks import in_short

if TYPE_CHECKING:
    from linkflap.spark_verify.spark.finding_rows import FindingRow

STALL_SECONDS: Final = 3.0
"""A host that stood still this long (a broker's session timeout) makes time-based checks
unknown."""
UNACKNOWLEDGED: Final = "the clients' acknowledgements were not recorded"
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
    planned: RunPlan,
    run: Run,
    events: Sequence[Event],
    damage: Sequence[Damage],
    unmeasured: Sequence[str],
    quiet: Sequence[UnheardReader],
    asked_for: Collection[str],
    foreign: Collection[str] = (),
) -> CheckResult:
    examined = _examined(rows)
    allowed = sum(a.allowed for a in found)
    broken = Counter(a.kind for a in found if not a.allowed)
    unfounded = _perhaps_false(check, broken, damage, run)
    due, failed = all_due(check, planned, run, asked_for, foreign), failed_parts(events)
    something = bool(due or examined)
    reasons = [
        *unfounded,
        *_unjudged(rows),
        *(_silent(check, quiet) if something else ()),
        *nothing_seen(
            check,
            examined,
            due,
            failed,
            run=run,
            foreign=bool(foreign),
            promoted=_promoted(planned),
        ),
        *not_carried(check, due, failed, planned.facts.mirror.guarantee.group_offsets_by),
        *_stalls(check, events),
        *unmeasured,
    ]
    proven = bool(broken) and not unfounded
    verdict = _decided(proven=proven, unknown=bool(reasons), something=something)
    notes = [_counted(broken)] if proven else []
    if verdict is Verdict.NOT_DUE:
        notes = [_nothing_due(check, run, foreign=bool(foreign))]
    notes += [*never_synced(examined, due), *unread_after_failback(check, examined, planned)]
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
        return f"nothing to examine: {UNACKNOWLEDGED}"
    unheard = check.judges_readers and check.due_at is None and not run.scenario.has_readers
    if run.recorded and unheard:
        return "nothing to examine: no workload has readers"
    return (
        f"nothing to examine; this check expects {check.unit}: {check.due_where}"
        if run.recorded
        else "the logs have none"
    )


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


def _promoted(planned: RunPlan) -> Collection[str]:
    """The clusters that were promoted, for any partition."""
    return {p.cluster for several in planned.promotions.values() for p in several}


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
    """Parts of the directory that are damaged and that this check's anomalies rest on: every
    anomaly rests on a finished run's run.json. Torn logs are left to the kernels."""
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
    """Readers whose rows this check needs and that left none, or did not read to the end."""
    for reader in quiet:
        reads = "reads" in check.inputs and (reader.kind == RELAY or not check.only_relays)
        if reads and (reader.missing or check.judges_readers):
            yield reader.reason


def _unjudged(rows: Sequence[FindingRow]) -> Iterable[str]:
    """By partition: rows come in the order in which Spark's tasks end."""
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
