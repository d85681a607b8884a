"""The two checks of the run itself: whether its record can be trusted, and whether its faults bit.

recording    the run directory is whole, the run finished, and did at least what its scenario asks
             for: transactions committed and aborted, records read, and something read after each
             fault. Less makes every other verdict worthless: unknown. So is that of checks that
             look at readers where one of them left no row, or did not read to the end
             (`spark_verify.read.reader_histories`).
fault-bite   every scheduled fault started, and what was measured on the faulted path within its
             window shows that it bit; every fault that says it heals did. A fault without effect
             proves nothing: unknown.
Neither is ever invalid: a run that did nothing has not violated anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from linkflap.harness.model.events import (
    Event,
    Failover,
    FaultBite,
    FaultHeal,
    FaultStart,
    MirrorStopped,
    TopicGivenUp,
    WireRecorded,
    of_kind,
)
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.scenario import READERS, Scenario
from linkflap.harness.model.texts import counted, in_one_line
from linkflap.harness.model.topology import is_recreated
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.harness.rundir import Damage, Run, RunReader
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.spark_verify.read.captures import NOTHING_CAPTURED, CapturedReplica, notes_of
from linkflap.spark_verify.read.plan import RunPlan
from linkflap.spark_verify.read.reader_histories import Histories, UnheardReader
from linkflap.spark_verify.verdict.due import (
    failed_in_words,
    failed_parts,
    handshakes_failed,
    unanswered,
)

OPTIONAL: Final = ("groupoffset",)
"""Kinds of rows that a run may have none of (`harness.rundir` names the kind when no file of it was
written)."""
MOST_REASONS: Final = 4
_MOST_ERRORS: Final = 1000
_MOST_OF_AN_ERROR: Final = 300
_NUMBERS: Final = re.compile(r"\d{2,}")
"""The parts in which errors of one kind differ: offsets, ports, producer ids."""
LAST_TIME: Final = 2**63
"""Nanoseconds, in the year 2262."""


def done_in(reader: RunReader) -> Done:
    """The totals of a run's activity, counted from all rows."""
    done = Done()
    for operation in reader.each(Operation, []):
        done.operation(operation)
    for poll in reader.each(Poll, []):
        done.poll(poll)
    return done


def copied(
    reader: RunReader, replicas: Sequence[CapturedReplica], damage: Sequence[Damage]
) -> tuple[CheckResult, CheckResult]:
    """The results of both for logs without a history: whether every file could be read
    completely."""
    at = {  # the real paths of the run's files
        f"captures/*/{b.cluster}/{b.broker}/{b.topic}-{b.partition}": str(
            reader.folder(c.moment, b).resolve()
        )
        for c in replicas
        for b in [c.bounds]
    }
    named = [Damage(path=at.get(d.path, d.path), reason=d.reason) for d in damage]
    why = "no history was recorded"
    nothing = CheckResult(name="fault-bite", verdict=Verdict.NOT_DUE, reason=why)
    counts = {"run/logs": len(replicas), "run/bytes": sum(c.size for c in replicas)}
    reasons = [*_status(reader), *(f"{d.path}: {d.reason}" for d in named)]
    return (
        result("recording", counts, reasons, limits(reader, replicas)),
        nothing,
    )


def limits(reader: RunReader, replicas: Sequence[CapturedReplica]) -> Sequence[str]:
    """Notes on what a run directory does not show. They do not change the verdict."""
    shortened = (
        "manifest.json has no digests (an older linkflap wrote it), so a segment that was "
        "shortened since would not be noticed"
    )
    notes = [note.damage for note in notes_of(replicas) if not note.matters]
    return [
        *([] if reader.has_digests or not reader.run.recorded else [shortened]),
        *(f"{d.path}: {d.reason}" for d in notes),
    ]


@dataclass(slots=True)
class Done:
    """The activity of a run, counted row by row. `promised` rows have an acknowledgement or end a
    commit; `last_read` is when a poll last returned anything; `asked_for` are transactions and
    producer ids, where a client had or wanted any.

    `clients` are the producer incarnations by their number, each client's in the order in which
    they began. `answered` operations returned; `failed` counts those that did not succeed, by their
    error.
    """

    rows: int = 0
    promised: int = 0
    committed: int = 0
    aborted: int = 0
    reads: int = 0
    last_read: int = 0
    readers: Histories = field(default_factory=Histories)
    clients: dict[int, str] = field(default_factory=dict)
    asked_for: set[str] = field(default_factory=set)
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    def operation(self, row: Operation) -> None:
        """Counts a row of an operation."""
        ended = row.phase == "return" and row.outcome == "ok"
        self.rows += 1
        self.promised += any(group.acks for group in row.sends) or (
            ended and row.ending == "commit"
        )
        self.clients.setdefault(row.process, row.client)
        self.readers.operation(row)
        self.committed += ended and row.ending == "commit"
        self.aborted += ended and row.ending == "abort"
        if row.phase == "return":
            self._returned(row)
        if row.transactional_id or row.kind == "transaction":
            self.asked_for |= {"transactions", "producer ids"}
        elif row.kind == "init" or row.producer_id >= 0:
            self.asked_for.add("producer ids")

    def _returned(self, row: Operation) -> None:
        self.answered += 1
        if row.outcome != "ok" and row.ending != "open":
            error = _NUMBERS.sub("#", in_one_line(row.error or "no error is recorded"))
            if error in self.failed or len(self.failed) < _MOST_ERRORS:
                self.failed[error] += 1

    @property
    def mostly_failed(self) -> str:
        """The error that most operations of clients failed with, in a sentence; empty where most of
        them did not fail with one error."""
        error, count = next(iter(self.failed.most_common(1)), ("", 0))
        if count * 2 <= self.answered:
            return ""
        return (
            f"{count:,} of {counted(self.answered, 'operation')} of clients failed with one error: "
            f"{error[:_MOST_OF_AN_ERROR]}"
        )

    def poll(self, row: Poll) -> None:
        """Counts what a poll returned."""
        self.readers.poll(row)
        if row.kind in ("poll", "acquire") and (
            read := sum(count for fetched in row.fetched for _, _, count in fetched.runs)
        ):
            self.reads += read
            self.last_read = max(self.last_read, row.returned)


def unwritten(scenario: Scenario, foreign: Collection[str], idle: str) -> frozenset[str]:
    """Kinds of rows that no client of this run writes, so that their absence is no damage.
    `foreign`: homes where programs wrote that record no history; `idle`: that programs wrote
    nothing."""
    return frozenset(
        {
            *(() if _reads(scenario) else ("poll",)),
            *(("operation",) if foreign or idle else ()),
        }
    )


def recording(
    reader: RunReader,
    planned: RunPlan,
    events: Sequence[Event],
    damage: Sequence[Damage],
    done: Done,
    quiet: Sequence[UnheardReader],
    *,
    foreign: bool,
    idle: str,
) -> CheckResult:
    """Whether the record is complete and says enough. `foreign`: everything was written by programs
    that record no history; `idle`: that such programs wrote nothing."""
    scenario, facts, unfinished = reader.run.scenario, planned.facts, reader.run.unfinished
    counts = {"committed": done.committed, "aborted": done.aborted, "reads": done.reads}
    reasons = [
        *_status(reader),
        *_unfetched(reader.run, damage),
        *_damaged(reader.run, damage),
        *planned.doubts,
        *(each.reason for each in quiet if not each.missing),
        *((idle,) if idle else ()),
        *(() if foreign or idle or unfinished else _too_little(counts, scenario, done)),
        *(
            _unread(done.last_read, facts.windows, facts.ended)
            if _reads(scenario) and not unfinished
            else ()
        ),
        *_behind(events),
        *_given_up(events, planned.deleted),
        *_unread_on_the_wire(events, reader.run),
    ]
    examined = {f"run/{name}": count for name, count in counts.items()}
    limited = [
        *handshakes_failed(events),
        *unanswered(events),
        *limits(reader, [*planned.replicas, *planned.earlier]),
        *planned.deleted.values(),
    ]
    return result("recording", examined, reasons, limited)


def _damaged(run: Run, damage: Iterable[Damage]) -> Iterator[str]:
    """Damaged parts, except those that only show that the run did not finish."""
    for each in sorted(damage, key=_distance):
        follows = each == NOTHING_CAPTURED and run.unfinished
        if each.path not in OPTIONAL and each.reason != run.unfinished and not follows:
            yield f"{each.path}: {each.reason}"


def _distance(damage: Damage) -> int:
    """The order of damaged parts, most important first, since only the first reasons are shown:
    Kafka's own topics last."""
    parts = damage.path.split("/")
    return 2 if any(part.startswith("__") for part in parts) else int(parts[0] == "captures")


def _unfetched(run: Run, damage: Iterable[Damage]) -> Iterator[str]:
    """Why fetched logs are missing; nothing if none is missing."""
    if any(each.path == "captures" for each in damage):
        yield from run.unfetched.values()


def _status(reader: RunReader) -> Iterator[str]:
    if reader.run.unfinished:
        yield reader.run.unfinished
    yield from _impossible(reader.run)


def _impossible(run: Run) -> Iterator[str]:
    """Impossible values in run.json: somebody has changed the file, and perhaps others."""
    known = {cluster.name for cluster in run.scenario.topology.clusters}
    for link in run.scenario.topology.links:
        for name in sorted({link.source, link.destination} - known):
            yield (
                f"run.json: its link {link.name} names {name}, which is no cluster of its topology"
            )
    for name, time in (("started", run.started), ("ended", run.ended)):
        if not 0 <= time < LAST_TIME:
            yield f"run.json: {name} is {time:.4g} ns after 1970, a time that no run can have"


def _reads(scenario: Scenario) -> bool:
    return any(workload.kind in READERS for workload in scenario.workloads)


def _too_little(counts: Mapping[str, int], scenario: Scenario, done: Done) -> Iterator[str]:
    minimums = scenario.minimums
    if not done.rows:
        yield (
            "the history is empty"
            if scenario.acknowledged
            else 'no workload writes records: add a [[workload]] with kind = "transactional"'
        )
        return
    asked = {"committed": minimums.committed, "aborted": minimums.aborted, "reads": minimums.reads}
    names = {
        "committed": "transactions committed",
        "aborted": "transactions aborted",
        "reads": "records read",
    }
    for name, least in asked.items():
        if counts[name] < least:
            yield f"only {counts[name]} {names[name]}, the scenario asks for {least}"


def _unread(last: int, windows: Sequence[Window], ended: int) -> Iterator[str]:
    after = [
        f"{window.id} ({window.fault} on {window.target})"
        for window in windows
        if last < (window.end if window.end < ended else window.start)
    ]
    if after:
        yield f"no reader got anything after fault{'s' * (len(after) > 1)} {', '.join(after)}"


def _behind(events: Sequence[Event]) -> Iterator[str]:
    """Mirrors that were behind when the run stopped them, although both of their clusters ran."""
    failovers = of_kind(events, Failover)
    dead = {e.between.source for e in failovers if e.mode == "forced"}
    ended = {e.link for e in failovers}
    for stopped in of_kind(events, MirrorStopped):
        ends = {*stopped.between.ends}
        if not stopped.drained and stopped.link not in ended and not ends & dead:
            why = [failed_in_words(e) for e in failed_parts(events) if e.link == stopped.link]
            yield "; ".join(
                [f"the mirror of {stopped.link} had not caught up when the run ended", *why]
            )


def _given_up(events: Sequence[Event], deleted: Collection[str] = ()) -> Iterator[str]:
    """Topics that a mirror stopped mirroring because they were deleted on the source or
    destination. Topics of the fault topic-recreated are left out: that fault judges them itself."""
    for event in of_kind(events, TopicGivenUp):
        if not is_recreated(event.topic) and event.topic not in deleted:
            yield f"the mirror of {event.link} gave a topic up: {event.reason}"


def _unread_on_the_wire(events: Sequence[Event], run: Run) -> Iterator[str]:
    """Requests and answers of recorded programs that matter and could not be read; and recorders
    that reported nothing."""
    reports = of_kind(events, WireRecorded)
    for report in reports:
        for what, times in sorted(report.unread.items()):
            yield f"the recorder of {report.cluster} could not read {what}, {times} times"
        for reason, times in sorted(report.passed.items()):
            yield f"connections to {report.cluster} passed unread ({times}): {reason}"
    if run.status == "finished" and run.scenario.fetched_topics:
        missing = {c.name for c in run.scenario.topology.clusters} - {r.cluster for r in reports}
        for cluster in sorted(missing):
            yield f"the recorder of {cluster} did not report what it had seen"


def fault_bite(scheduled: Sequence[str], events: Sequence[Event]) -> CheckResult:
    """Whether each fault, scheduled or not, was seen to bite and, where it heals, to be healed."""
    started = {e.id: e for e in of_kind(events, FaultStart)}
    bites = {e.id: e for e in of_kind(events, FaultBite)}
    heals = {e.id: e for e in of_kind(events, FaultHeal)}
    reasons = [*_never_started(scheduled, started, bites)]
    for name in started:
        what = f"fault {name} ({started[name].fault} on {started[name].target})"
        bite = bites.get(name)
        if bite is None:
            reasons.append(f"the bite of {what} was not measured")
        elif not bite.bit:
            measured = f"{bite.observable} was {bite.measured}, expected {bite.expected}"
            reasons.append(f"{what} did not bite: {measured}")
        heals_itself = started[name].restores is not False
        if heals_itself and (name not in heals or not heals[name].healed):
            why = f": {heals[name].checked[0]}" if name in heals and heals[name].checked else ""
            reasons.append(f"the heal of {what} was not confirmed{why}")
    return result("fault-bite", {"run/faults": len(started)}, reasons)


def _never_started(
    scheduled: Sequence[str], started: Collection[str], bites: Mapping[str, FaultBite]
) -> Iterator[str]:
    left = [name for name in dict.fromkeys(scheduled) if name not in started]
    if silent := [name for name in left if name not in bites]:
        were = "fault {} was" if len(silent) == 1 else "faults {} were"
        yield f"{were.format(', '.join(silent))} scheduled and never started"
    for name in left:
        if name in bites:
            yield f"fault {name} was scheduled and never started: {bites[name].measured}"


def result(
    name: str, examined: Mapping[str, int], reasons: Sequence[str], limited: Sequence[str] = ()
) -> CheckResult:
    """The result of a check of the run: unknown with the first few of these reasons; without
    reasons valid, with the notes in `limited`."""
    return CheckResult(
        name=name,
        verdict=Verdict.UNKNOWN if reasons else Verdict.VALID,
        examined=examined,
        reason=in_short(reasons or limited),
    )


def in_short(reasons: Sequence[str]) -> str:
    """Reasons once each, the first few in full and the rest counted."""
    once = list(dict.fromkeys(reasons))
    more = f"; and {len(once) - MOST_REASONS} more" if len(once) > MOST_REASONS else ""
    return "; ".join(once[:MOST_REASONS]) + more
