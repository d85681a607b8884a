"""The clusters and origins that were due to be examined. A check is unknown if it did not examine
all of them.

Failed parts of a mirror (connectors and their tasks, by Kafka Connect's own states) explain why.
Connect does not start a failed part again, so its last state counts from its failure on. The state
of a part of a killed worker ends with the worker. On a link that failed over only states from
before the fault count: later failures are consequences of the dead source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from linkflap.harness.model.events import (
    Event,
    Failover,
    MirrorCrashed,
    MirrorState,
    WireRecorded,
    of_kind,
)
from linkflap.harness.model.scenario import (
    READERS,
    Scenario,
    add_readers,
    full_names,
    program_at,
    unread,
)
from linkflap.harness.model.texts import counted
from linkflap.harness.model.topology import ANY_NAME, Topology
from linkflap.harness.rundir import Run
from linkflap.spark_verify.checks.base import Check
from linkflap.spark_verify.facts.eras import history
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.read.captures import NOTHING_CAPTURED
from linkflap.spark_verify.read.plan import RunPlan

_WHAT: Final[Mapping[str, str]] = {
    "FAILED": "failed",
    "NONE": "never had a state",
    "PAUSED": "was paused",
    "STOPPED": "was stopped",
}
"""States of parts that do nothing."""
_BY_HAND: Final = ("PAUSED", "STOPPED")
"""A state set by Connect's REST interface (KIP-875). The part is healthy, but copies nothing until
somebody resumes it."""


def failed_in_words(event: MirrorState) -> str:
    """A failed or stopped part of a mirror, with the reason, in words."""
    part = f"task {event.task} of {event.connector}" if event.task >= 0 else event.connector
    if event.state in _BY_HAND:
        return f"{part} of the mirror of {event.link} {_WHAT[event.state]}"
    lines = event.trace.strip().splitlines() or ["it gave no reason"]
    line = lines[0] if event.state == "FAILED" else lines[-1]
    return f"{part} of the mirror of {event.link} {_WHAT[event.state]}: {line.strip()}"


def failed_parts(events: Sequence[Event]) -> Sequence[MirrorState]:
    """The last state of each connector (`task` is -1) and task that was failed, or not running,
    right before its link failed over or the run ended."""
    over = {e.link: e.fault_time for e in of_kind(events, Failover)}
    last: dict[tuple[str, str, int], MirrorState | None] = {}
    for event in events:
        match event:
            case MirrorCrashed():
                last = {key: part for key, part in last.items() if key[0] != event.link}
            # The mirror notes parts without any state when it is stopped; they had none before the
            # failover either.
            case MirrorState() if (
                event.time <= over.get(event.link, event.time) or event.state == "NONE"
            ):
                # Connect forgets all parts of a worker that stops, failed ones too
                if event.state in (*_WHAT, "RUNNING"):
                    last[event.link, event.connector, event.task] = (
                        None if event.state == "RUNNING" else event
                    )
    return [part for part in last.values() if part is not None]


def foreign_homes(planned: RunPlan, run: Run, operations: int, promised: int) -> Collection[str]:
    """The homes whose data all come from programs without a history (a workload with a command, an
    application beside `linkflap.deploy`), or from programs to which nothing was `promised` on the
    wire. For these homes the verdict rests on bytes and on what readers got."""
    unpromised = bool(run.scenario.recorded_topics) and bool(operations) and not promised
    acknowledged = operations or run.scenario.acknowledged
    if not run.recorded or _own_clients_write(run) or (acknowledged and not unpromised):
        return ()
    return sorted(
        {
            planned.facts_of(*captured.key).home
            for captured in planned.replicas
            if captured.canonical and captured.size and planned.judges(captured.bounds.topic)
        }
    )


def handshakes_failed(events: Sequence[Event]) -> Sequence[str]:
    """Notes on program connections that never completed a TLS handshake, by cluster."""
    return [
        f"{counted(report.handshakes_failed, 'connection')} of programs to {report.cluster} ended "
        "before the TLS handshake was complete"
        for report in of_kind(events, WireRecorded)
        if report.handshakes_failed
    ]


def unanswered(events: Sequence[Event]) -> Sequence[str]:
    """Notes on batches that a log may have besides what was acknowledged, by cluster."""
    return [
        f"{report.unanswered:,} {'batches' if report.unanswered > 1 else 'batch'} of programs to "
        f"{report.cluster} had neither a producer id nor an answer: the log may have them besides "
        "what was acknowledged, also where the client sent the same records anew"
        for report in of_kind(events, WireRecorded)
        if report.unanswered
    ]


def idle(planned: RunPlan, run: Run, operations: int, events: Sequence[Event]) -> str:
    """A note that the programs wrote nothing, if only programs write and the logs are empty too;
    else empty.
    """
    topics = {t for w in run.scenario.workloads for t in full_names(w, w.writes)}
    if not topics or operations or not run.recorded or _own_clients_write(run):
        return ""
    if any(c.size for c in planned.replicas if planned.judges(c.bounds.topic)):
        return ""
    nothing = (
        f"nothing was written to {', '.join(sorted(topics - {ANY_NAME})) or 'any topic'}, so there "
        "is nothing to judge (logs/commands has the output of the programs)"
    )
    return "; ".join([nothing, *handshakes_failed(events)])


def _own_clients_write(run: Run) -> bool:
    """Whether any of linkflap's own clients write."""
    own = [w for w in run.scenario.workloads if not w.command]
    return replace(run.scenario, workloads=tuple(own)).acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAtHand:
    """The run that is judged. `asked_for`: which of the things in `Check.only_of` the clients did;
    `foreign`: the homes of programs without a history."""

    planned: RunPlan
    run: Run
    events: Sequence[Event]
    asked_for: Collection[str]
    foreign: Collection[str]

    @property
    def promotions(self) -> Sequence[LogPromotion]:
        """The promotions of all partitions."""
        return [p for found in self.planned.promotions.values() for p in found]


def all_due(check: Check, at_hand: RunAtHand) -> Sequence[tuple[str, str]]:
    """(cluster, origin) of all that is due."""
    run = at_hand.run
    if at_hand.foreign:
        return sorted(_due_to_foreign(check, at_hand))
    if not _has_a_subject(check, run, at_hand.asked_for):
        return []
    gone = set() if run.recorded else _deleted(at_hand.planned)
    return [each for each in _due_by_scenario(check, at_hand) if each not in gone]


def _has_a_subject(check: Check, run: Run, asked_for: Collection[str]) -> bool:
    """Whether a directory has the subject of a check: copied logs, or a history in which the
    clients did what the check requires (`Check.only_of`).
    """
    if not run.recorded:
        return check.examines_any_log
    return not check.only_of or check.only_of in asked_for


def _due_by_scenario(check: Check, at_hand: RunAtHand) -> Sequence[tuple[str, str]]:
    """(cluster, origin) that are due, by the check's own rule if it has one, else all that the
    scenario produces.
    """
    run = at_hand.run
    if check.due_at is not None:
        return sorted(check.due_at(run.scenario, at_hand.promotions))
    if run.recorded and no_readers(check, run.scenario):
        return []
    return [each for each in _due_anywhere(check, at_hand) if each[1] in check.due]


def no_readers(check: Check, scenario: Scenario) -> str:
    """The readers that a check judges and the scenario does not have; empty if it has them, or the
    check judges none.

    Without readers of committed records, a relay, a share group or a program may still be one.
    """
    if not check.judges_readers:
        return ""
    if not scenario.has_readers:
        return "readers"
    others = any(w.kind in READERS or w.record for w in scenario.reading_committed.workloads)
    return "read_committed readers" if check.only_read_committed and not others else ""


def _due_to_foreign(check: Check, at_hand: RunAtHand) -> Iterable[tuple[str, str]]:
    """(cluster, origin) that are due of bytes without acknowledgements: those of any log without a
    history, and those of checks that need neither an acknowledgement nor payload ids.
    """
    scenario, homes = at_hand.run.scenario, at_hand.foreign
    if check.examines_any_log and not check.runs_on(scenario.mirror.guarantee, recorded=False):
        return ()
    if check.examines_any_log and check.due_at is not None:
        programs = tuple(program_at(home) for home in homes)
        return check.due_at(replace(scenario, workloads=programs), at_hand.promotions)
    if check.examines_any_log:
        found = _written_and_mirrored(at_hand.planned.facts.topology, homes)
        return {each for each in found if each[1] in check.due}
    return _due_without_sends(check, at_hand)


def _due_without_sends(check: Check, at_hand: RunAtHand) -> Iterable[tuple[str, str]]:
    """(cluster, origin) that are due by a check that needs neither acknowledgements nor payload
    ids.
    """
    if check.due_at is None or "sends" in check.inputs:
        return ()
    named = "reads" not in check.inputs or check.from_bytes
    due = check.due_at(at_hand.run.scenario, at_hand.promotions)
    return {each for each in due if named or each[1] != "mirrored"}


def _due_anywhere(check: Check, at_hand: RunAtHand) -> Iterable[tuple[str, str]]:
    """(cluster, origin) of all records that a run of this scenario produces, once each."""
    run, planned = at_hand.run, at_hand.planned
    homes = [w.home for w in run.scenario.workloads if not w.command or (w.record and w.writes)]
    due = dict.fromkeys(_written_and_mirrored(planned.facts.topology, homes))
    # In logs without a history, a promoted cluster need not have records of its own.
    if run.recorded:
        due.update(dict.fromkeys((p.cluster, "native") for p in at_hand.promotions))
        if "reads" not in check.inputs:
            due.update(dict.fromkeys((cluster, "mirrored") for cluster in _followers(planned)))
    return due


def _written_and_mirrored(topology: Topology, homes: Collection[str]) -> Iterable[tuple[str, str]]:
    """(cluster, origin) of records written at homes, and of their mirrored copies."""
    for owner in dict.fromkeys(homes):
        yield owner, "native"
        yield from (
            (link.destination, "mirrored")
            for link in topology.links
            if owner in topology.homes_over(link)
        )


def _deleted(planned: RunPlan) -> set[tuple[str, str]]:
    """(cluster, origin) without anything due, because all mirrored records are below the present
    log starts.
    """
    left: dict[str, list[bool]] = defaultdict(list)
    for captured in planned.replicas:
        bounds = captured.bounds
        if captured.canonical and planned.judges(bounds.topic):
            past = history(planned.facts_of(*captured.key))
            left[bounds.cluster] += [
                bounds.log_start < c.end
                for c in past.mirrored_ranges
                if c.destination == bounds.cluster
            ]
    return {(cluster, "mirrored") for cluster, some in left.items() if some and not any(some)}


def _followers(planned: RunPlan) -> Sequence[str]:
    """Clusters that became followers of their former mirror (failback), and received records from
    it.
    """
    found: dict[str, None] = {}
    for topic, partition in planned.promotions:
        for cluster, generations in history(planned.facts_of(topic, partition)).generations.items():
            if len(generations) > 1 and any(era.source for era in generations[-1].eras):
                found[cluster] = None
    return list(found)


def unread_after_failback(
    check: Check, examined: Mapping[tuple[str, str], int], at_hand: RunAtHand
) -> Iterable[str]:
    """Notes on followers without a reader. They are no failure: readers move with the clients."""
    if "reads" in check.inputs and "mirrored" in check.due and check.due_at is None:
        for cluster in _followers(at_hand.planned):
            if not examined.get((cluster, "mirrored")):
                yield f"no reader read the records mirrored to {cluster} after the failback"


def not_examined(
    check: Check,
    examined: Mapping[tuple[str, str], int],
    due: Sequence[tuple[str, str]],
    failed: Sequence[MirrorState],
    at_hand: RunAtHand,
) -> Iterable[str]:
    """Why not all that was due was examined: one reason if no log was captured at all."""
    if due and NOTHING_CAPTURED in at_hand.planned.damage:
        return [NOTHING_CAPTURED.reason]
    return _nothing_seen(check, examined, due, failed, at_hand)


def _nothing_seen(
    check: Check,
    examined: Mapping[tuple[str, str], int],
    due: Sequence[tuple[str, str]],
    failed: Sequence[MirrorState],
    at_hand: RunAtHand,
) -> Iterable[str]:
    """Reasons for each cluster and origin that were due and not examined, with the failed mirror
    parts or missing readers that explain it.
    """
    run, promoted = at_hand.run, {p.cluster for p in at_hand.promotions}
    scenario = run.scenario.reading_committed if check.only_read_committed else run.scenario
    silent = unread(scenario) if run.recorded and check.judges_readers else {}
    without_reader = {
        c: add_readers(c, home, scenario) for c, home in silent.items() if c not in promoted
    }
    for cluster, origin in due:
        if examined.get((cluster, origin)):
            continue
        what = _none_of(check, cluster, origin, without_reader)
        failures = _failures_at(cluster, failed) if origin == "mirrored" else ()
        yield "; ".join([what, *failures])
    if not due and run.recorded and not at_hand.foreign and _needs_a_workload(check):
        yield "nothing was due to be examined: the scenario has no workload"


def _none_of(check: Check, cluster: str, origin: str, without_reader: Mapping[str, str]) -> str:
    """The sentence that nothing of a cluster was examined. `without_reader`: cluster without
    readers -> how to add one.
    """
    if origin == "checkpoints":
        return (
            f"no committed offset of a group was ever sampled on {cluster}, so how far groups "
            "were there is unknown"
        )
    if cluster in without_reader:
        reader = "read_committed reader" if check.only_read_committed else "reader"
        return f"no {reader} read the {origin} records of {cluster}: {without_reader[cluster]}"
    return f"no {origin} {check.unit} of {cluster} were there to examine"


def _failures_at(cluster: str, failed: Sequence[MirrorState]) -> Sequence[str]:
    """The failed parts of mirrors to a cluster."""
    return [failed_in_words(part) for part in failed if part.link.endswith(f"->{cluster}")]


def _needs_a_workload(check: Check) -> bool:
    """Whether any workload gives a check something to examine."""
    own_rule = check.due_at is not None or check.only_of or check.judges_readers
    return "native" in check.due and not own_rule


def not_carried(
    check: Check, due: Sequence[tuple[str, str]], failed: Sequence[MirrorState], by: str | None
) -> Iterable[str]:
    """Why a check of groups cannot judge a cluster: the part of the mirror that syncs group offsets
    (`by`) never ran, or stopped."""
    if "groups" not in check.inputs:
        return
    for cluster, origin in due:
        for part in failed:
            if origin == "mirrored" and part.connector == by and part.link.endswith(f"->{cluster}"):
                why = failed_in_words(part)
                yield f"group offsets were not synced to {cluster} from then on: {why}"


def never_synced(
    examined: Mapping[tuple[str, str], int], due: Sequence[tuple[str, str]]
) -> Iterable[str]:
    """Clusters without a sampled group offset before the failover, although other clusters had
    some. The sync was slow, which is no violation."""
    if not any(
        origin == "checkpoints" and examined.get((cluster, origin)) for cluster, origin in due
    ):
        return
    for cluster, origin in due:
        if origin == "mirrored" and not examined.get((cluster, "checkpoints")):
            yield (
                f"the mirror had synced no group's offset to {cluster} before the failover: every "
                "group starts over there"
            )
