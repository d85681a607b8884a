"""Unclean elections: what the deposed leader had acknowledged and the elected replica lacked, and
what is lost beside that."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import EventRow, SendGroup
from linkflap.harness.model.scenario import FaultSpec
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, NothingToChange, data, mutation, returned
from tests.faithful.notes import MS

LOST = "lost-write/lost-write ghost-ack/ghost-ack inconsistent-offset/inconsistent-offset"


def _replaced(made: Made) -> Entry:
    """A batch of A that a new leader may have written where the deposed one had another."""
    plain = [e for e in data(made, "A", native=True, state="plain") if e.uids and e.uids[0] >= 0]
    known = [e for e in plain if returned(made, e.uids[0]).outcome == "ok"]
    if not known:
        raise NothingToChange("no client had a plain batch acknowledged")
    return known[len(known) // 2]


def _acknowledged(made: Made, entry: Entry, at: int) -> SendGroup:
    """A client sent a record at a time, and the deposed leader acknowledged it where that batch is
    now."""
    row = returned(made, entry.uids[0])
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number = row.number + 100_000
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 700_000, count=1
    )
    acked = replace(group, acks=((0, 1, entry.offset),))
    made.operations += [
        replace(invoke, number=number, time=at, sends=(group,)),
        replace(row, number=number, time=at + MS // 2, sends=(acked,)),
    ]
    return group


def _elected(made: Made, entry: Entry, group: SendGroup, *, before: int) -> dict[str, object]:
    """The fault, whose bite lists one record of the deposed leader; it was over a moment before the
    new leader's batch was sent."""
    lost: dict[str, object] = {
        "topic": group.topic,
        "partition": 0,
        "start": entry.offset,
        "end": entry.offset + 1,
        "deposed_epoch": entry.leader_epoch,
        "elected_epoch": -1,
        "elected": before - 5,
        "records": [[group.first_uid, entry.offset, 1, entry.pid]],
        "markers": [],
    }
    bite = {"bit": True, "observable": "it", "measured": 1, "expected": 1, "lost": [lost]}
    facts: tuple[tuple[str, dict[str, object]], ...] = (
        ("fault-start", {"fault": "unclean-election", "options": {}, "restores": True}),
        ("fault-bite", bite),
        ("fault-heal", {"healed": True, "checked": []}),
        ("fault-end", {}),
    )
    made.events += [
        EventRow(time=before - 6 + n, kind=kind, subject="A", data={"id": "unclean", **rest})
        for n, (kind, rest) in enumerate(facts)
    ]
    made.events.sort(key=lambda event: event.time)
    fault = FaultSpec(id="unclean", fault="unclean-election", target="A", at=1.0, duration=0.0)
    made.scenario = replace(made.scenario, schedule=(*made.scenario.schedule, fault))
    return lost


def _sent(made: Made, entry: Entry) -> int:
    """When a batch was sent."""
    number = returned(made, entry.uids[0]).number
    return next(o.time for o in made.operations if (o.number, o.phase) == (number, "invoke"))


@mutation(PAIR, must=LOST, may="unseen/unseen-write", verdict="valid")
def lost_by_an_unclean_election(made: Made, rng: Random) -> None:
    """The deposed leader acknowledged a record that the elected replica did not have."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_after_an_unclean_election(made: Made, rng: Random) -> None:
    """A record was acknowledged after the election, at an offset that the election had taken away,
    and is lost."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent + MS), before=sent)


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_beside_an_unclean_election(made: Made, rng: Random) -> None:
    """A record is lost at an offset where the deposed leader had another one."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    lost = _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)
    lost["records"] = [[(9 << 40) + 1, entry.offset, 1, entry.pid]]


@mutation(PAIR, must=LOST, may="unseen/unseen-write")
def lost_on_another_cluster_than_the_election(made: Made, rng: Random) -> None:
    """A lost a record, and the election was on B."""
    entry = _replaced(made)
    sent = _sent(made, entry)
    _elected(made, entry, _acknowledged(made, entry, sent - MS), before=sent)
    made.events = [
        replace(e, subject="B") if e.data.get("id") == "unclean" else e for e in made.events
    ]
