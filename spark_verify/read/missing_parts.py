"""Missing parts of a run directory that its events imply: captures, failovers, reversals,
promotions.

A manifest lists files. It cannot show that an entire capture, or lines of the events, were removed
before the manifest was written again. But one event implies others, and files, and a schedule
implies events. So a failover is missing if all of its mirror's events are gone although its fault
bit, clients moved, or the run finished and no event explains why the schedule was not played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from linkflap.harness.model.events import (
    Captured,
    ClientsMoved,
    Event,
    Failover,
    FaultBite,
    FaultEnd,
    FaultHeal,
    FaultStart,
    MirrorStarted,
    MirrorStopped,
    OfFault,
    OfLink,
    Promotion,
    of_kind,
)
from linkflap.harness.model.faults import REVERSE
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import CANARY, LinkSpec, TopicPartition, is_recreated
from linkflap.harness.rundir import Damage, Run, RunReader

EVENTS: Final = "events.jsonl"
_CENTURY: Final = 100 * 365 * 86_400 * 10**9
_OfLink = TypeVar("_OfLink", bound=OfLink)


def in_events(reason: str) -> Damage:
    """Damage of the events of a run."""
    return Damage(path=EVENTS, reason=reason)


def absent_captures(reader: RunReader, events: Sequence[Event]) -> Mapping[tuple[str, str], Damage]:
    """Captures that were taken and are gone, by (cluster, moment), in the order of the events."""
    found: dict[tuple[str, str], Damage] = {}
    for event in of_kind(events, Captured):
        cluster, moment = event.cluster, event.moment
        if not event.replicas:
            continue
        rows, _ = reader.bounds(moment)
        path = f"captures/{moment}/{cluster}"
        if not any(row.cluster == cluster for row in rows):
            found[cluster, moment] = Damage(
                path=path,
                reason="missing: its logs were captured, and nothing says where they began",
            )
        elif not any(reader.segments(moment, row) for row in rows if row.cluster == cluster):
            found[cluster, moment] = Damage(
                path=path, reason="missing: its logs were captured, and none is there"
            )
    return found


def unnoted_captures(reader: RunReader, events: Sequence[Event]) -> Iterator[Damage]:
    """Captures without an event, of a cluster with other captures: it is unknown which of them is
    the last."""
    noted = {(e.cluster, e.moment) for e in of_kind(events, Captured)}
    found: dict[str, list[str]] = {}
    for moment in reader.moments():
        for cluster in sorted({row.cluster for row in reader.bounds(moment)[0]}):
            found.setdefault(cluster, []).append(moment)
    for cluster, moments in found.items():
        for moment in moments if len(moments) > 1 else ():
            if (cluster, moment) not in noted:
                yield in_events(f"{cluster} was captured as {moment}, and no event says when")


def rests_on_a_capture(damage: Damage) -> bool:
    """Whether this is an entire missing capture of a cluster."""
    return (
        damage.path.startswith("captures/")
        and "*" not in damage.path
        and damage.path.count("/") == 2
    )


def absent_steps(run: Run, events: Sequence[Event]) -> Iterator[Damage]:
    """Failovers and reversals that other events imply and that have none of their own. Events in
    time order."""
    for fault in run.scenario.schedule:
        if fault.name.fails_over or fault.name.reverses:
            yield from _unplayed(
                run, fault, [e for e in of_kind(events, OfFault) if e.id == fault.id], events
            )
    yield from _moved_without_failover(events)
    yield from _reversed_without_fault(run, events)


def _moved_without_failover(events: Sequence[Event]) -> Iterator[Damage]:
    for link, moves in _moves(events).items():
        failovers = [e.time for e in of_kind(events, Failover) if e.link == link]
        if any(
            sum(time <= move for time in failovers) < number
            for number, move in enumerate(moves, start=1)
        ):
            yield in_events(f"clients were moved along {link}, and no failover over it is there")


def _reversed_without_fault(run: Run, events: Sequence[Event]) -> Iterator[Damage]:
    reverse = {link.reverse.name: link.name for link in run.scenario.topology.links}
    begun = {e.target for e in of_kind(events, FaultStart) if e.name.reverses}
    for link in dict.fromkeys(e.link for e in of_kind(events, MirrorStarted)):
        if link in reverse and link not in reverse.values() and not begun & {reverse[link], link}:
            yield in_events(f"a mirror of {link} ran, and no {REVERSE} of {reverse[link]} is there")


def absent_ends(run: Run, events: Sequence[Event]) -> Iterator[Damage]:
    """Faults with a start event and no end event, or the reverse: every fault that is played has
    both.

    Only a harness that was killed, or gave up waiting for one of them, leaves a fault without its
    end.
    """
    started, ended = ({e.id: e for e in of_kind(events, kind)} for kind in (FaultStart, FaultEnd))
    for name, fault in started.items():
        if run.status == "finished" and name not in ended:
            yield in_events(f"fault {name} on {fault.target} began, and nothing says when it ended")
    for name, fault in ended.items():
        if name not in started:
            yield in_events(f"fault {name} on {fault.target} ended, and nothing says when it began")


def out_of_time(run: Run, events: Sequence[Event]) -> Iterator[Damage]:
    """Events dated before the start of the run or after its end, which cannot be: one clock dates
    them all. Nor does a run last for a century before its first event, or behind its last."""
    times = [run.started, *sorted(event.time for event in events), run.ended or run.started]
    if events and run.status != "running":
        apart = max(times[1] - times[0], times[-1] - times[-2])
        if apart > _CENTURY:
            reason = f"the run began or ended {apart / 1e9:.0f} s from all that was recorded of it"
            yield Damage(path="run.json", reason=reason)
    for event in events:
        if event.time < run.started:
            when = f"{(run.started - event.time) / 1e9:.1f} s before the run had started"
        elif run.status != "running" and 0 < run.ended < event.time:
            when = f"{(event.time - run.ended) / 1e9:.1f} s after the run had ended"
        else:
            continue
        yield in_events(f"{event.kind} of {event.subject} is {when}")


def _unplayed(
    run: Run, fault: FaultSpec, steps: Sequence[OfFault], events: Sequence[Event]
) -> Iterator[Damage]:
    """The missing parts of one fault that promoted a cluster, or made it follow again; `steps` are
    the events with its id."""
    name = f"fault {fault.id} ({fault.fault} on {fault.target})"
    bites = of_kind(steps, FaultBite)
    over = [
        e
        for e in steps
        if (isinstance(e, FaultBite) and e.bit) or (isinstance(e, FaultHeal) and e.healed)
    ]
    if not bites and run.status == "finished":
        yield in_events(f"the run finished, and nothing says whether {name} took effect")
    if not over:
        return  # the fault may have been given up before it took effect
    began = next((e.time for e in of_kind(steps, FaultStart)), None)
    if began is None:
        yield in_events(f"{name} took effect, and nothing says when it began")
    link, sign = fault.target, "failover"
    signs: Sequence[OfLink] = of_kind(events, Failover)
    if fault.name.reverses:
        link, sign, signs = fault.on.back, "mirror-started", of_kind(events, MirrorStarted)
    if not _within(signs, link, began or 0, over[-1].time):
        yield in_events(f"{name} took effect, and no {sign} of {link} is there")


def _within(events: Sequence[_OfLink], link: str, since: int, until: int) -> Sequence[_OfLink]:
    return [e for e in events if e.link == link and since <= e.time <= until]


def _moves(events: Sequence[Event]) -> Mapping[str, Sequence[int]]:
    """When clients moved from a cluster to another, by the link between them."""
    found: dict[str, list[int]] = {}
    for moved in of_kind(events, ClientsMoved):
        found.setdefault(LinkSpec(source=moved.cluster, destination=moved.to).name, []).append(
            moved.time
        )
    return found


def absent_promotions(
    events: Sequence[Event], judges: Callable[[str], bool], *, journal: bool = False
) -> Iterator[Damage]:
    """Failovers that promoted nothing, or not all that the mirror's journal names; and without one,
    if this mirror keeps it. Events in time order."""
    for link in dict.fromkeys(e.link for e in of_kind(events, Failover)):
        failovers = [e.time for e in of_kind(events, Failover) if e.link == link]
        promotions = [e for e in of_kind(events, Promotion) if e.link == link]
        for before, time in zip([-1, *failovers], failovers, strict=False):
            promoted = {e.tp for e in promotions if _nearest(failovers, e.time) == time}
            journals = _within(of_kind(events, MirrorStopped), link, before + 1, time)
            yield from _unpromoted(link, promoted, {*_named(journals[-1:], judges)})
            if journal and not journals:
                yield in_events(
                    f"the failover over {link} has no journal of its mirror (mirror-stopped)"
                )


def misplaced_promotions(run: Run, events: Sequence[Event]) -> Iterator[Damage]:
    """Impossible promotions and failovers. A failover promotes each partition of its link's
    destination once: after its fault abandoned the source, and before the failover is recorded.
    Events in time order."""
    promoted: set[tuple[int, str, TopicPartition]] = set()
    for event in of_kind(events, Promotion):
        link, name = event.link, f"{event.topic}-{event.partition}"
        by = next((e for e in of_kind(events, Failover) if _ends(e, event)), None)
        if event.cluster != event.between.destination:
            yield in_events(f"a promotion of {name} over {link} is of cluster {event.cluster}")
        elif by is None:
            if run.status == "finished":
                yield in_events(f"{name} was promoted over {link}, and no failover followed")
        elif event.time < by.fault_time:
            yield in_events(f"{name} was promoted before the failover over {link} began")
        elif (by.time, link, event.tp) in promoted:
            yield in_events(f"one failover over {link} promoted {name} twice")
        else:
            promoted.add((by.time, link, event.tp))
    for failover in of_kind(events, Failover):
        yield from _misdated(failover, of_kind(events, FaultStart))


def _ends(failover: Failover, promotion: Promotion) -> bool:
    """Whether a promotion may belong to a failover, which is recorded right after its
    promotions."""
    return failover.link == promotion.link and failover.time >= promotion.time


def _misdated(failover: Failover, faults: Sequence[FaultStart]) -> Iterator[Damage]:
    link, time = failover.link, failover.fault_time
    mine = [fault for fault in faults if fault.name.fails_over and fault.target == link]
    begun = [fault.time for fault in mine if fault.time <= failover.time]
    if begun and time and not begun[-1] <= time <= failover.time:
        yield in_events(
            f"the failover over {link} says that its source was abandoned before its fault began, "
            "or after it"
        )


def _nearest(failovers: Sequence[int], time: int) -> int:
    """The failover that a promotion belongs to: the nearest in time, as in
    `spark_verify.read.plan`."""
    return min(failovers, key=lambda each: abs(each - time))


def _unpromoted(
    link: str, promoted: set[TopicPartition], named: set[TopicPartition]
) -> Iterator[Damage]:
    if not promoted:
        yield in_events(f"the failover over {link} has no promotion of any partition")
        return
    for topic, partition in sorted(named - promoted):
        reason = (
            f"the mirror of {link} says that it promoted {topic}-{partition}, and no promotion of "
            "it is there"
        )
        yield in_events(reason)


def _named(
    journals: Sequence[MirrorStopped], judges: Callable[[str], bool]
) -> Iterator[TopicPartition]:
    """The partitions of mirrors' journals without those of canaries. A mirror without a journal
    names none."""
    for journal in journals:
        for row in journal.partitions or ():
            if judges(row.topic) and not (
                row.topic.endswith(f".{CANARY}") or is_recreated(row.topic)
            ):
                yield row.topic, row.partition
