"""Offsets of a group on a mirror's destination that nobody there may have had."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import EventRow, GroupOffset
from linkflap.harness.model.scenario import FaultSpec
from tests.faithful.made import Made
from tests.faithful.mutations.base import PLANNED, NothingToChange, mutation, promotion
from tests.faithful.mutations.polls import polls
from tests.faithful.notes import MS


def _synced(made: Made) -> list[GroupOffset]:
    """What the mirror committed for the group on B before the failover."""
    fault = next(e.time for e in made.events if e.kind == "fault-start")
    return [
        g
        for g in made.groups
        if (g.cluster, g.partition) == ("B", 0) and g.time < fault and g.offset > 0
    ]


@mutation(PLANNED, must="group-offsets/checkpoint-regression", may="internal-topics/commit-missing")
def checkpoint_went_back(made: Made, rng: Random) -> None:
    """The offset that the mirror committed for the group on B went back."""
    first, *later = _synced(made)
    if not later:
        raise NothingToChange("the mirror committed the group's offset once")
    made.groups[made.groups.index(later[-1])] = replace(later[-1], offset=first.offset - 1)


def killed(made: Made, at: int, broker: str = "B/1") -> None:
    """A broker is killed, and comes back at once."""
    facts: tuple[tuple[str, dict[str, object]], ...] = (
        ("fault-start", {"id": "kill", "fault": "broker-kill", "options": {}, "restores": True}),
        (
            "fault-bite",
            {"id": "kill", "bit": True, "observable": "it", "measured": 1, "expected": 1},
        ),
        ("fault-heal", {"id": "kill", "healed": True, "checked": []}),
        ("fault-end", {"id": "kill"}),
    )
    made.events += [
        EventRow(time=at + n, kind=kind, subject=broker, data=data)
        for n, (kind, data) in enumerate(facts)
    ]
    made.events.sort(key=lambda event: event.time)
    fault = FaultSpec(id="kill", fault="broker-kill", target=broker, at=1.0, duration=0.0)
    made.scenario = replace(made.scenario, schedule=(*made.scenario.schedule, fault))


def _stepped_back(made: Made) -> tuple[GroupOffset, GroupOffset]:
    """Two samples of the group on B before the failover: of an earlier commit, and the last one."""
    samples = _synced(made)
    earlier = [g for g in samples if g.offset < samples[-1].offset] if samples else []
    if not earlier:
        raise NothingToChange("the mirror committed one offset of the group")
    return earlier[-1], samples[-1]


@mutation(PLANNED, verdict="valid")
def coordinator_answers_late(made: Made, rng: Random) -> None:
    """A broker of B is killed. The coordinator that loads the group again answers once with an
    earlier commit (KAFKA-15910)."""
    earlier, last = _stepped_back(made)
    killed(made, last.time + 1)
    made.groups.insert(made.groups.index(last) + 1, replace(earlier, time=last.time + 5))


@mutation(PLANNED, must="group-offsets/checkpoint-regression", may="internal-topics/commit-missing")
def checkpoint_went_back_after_a_kill(made: Made, rng: Random) -> None:
    """A broker of B is killed, and the group's offset on B is below the last commit, at an offset
    that was never committed."""
    earlier, last = _stepped_back(made)
    known = {g.offset for g in made.groups}
    never = next((n for n in range(last.offset - 1, 0, -1) if n not in known), None)
    if never is None:
        raise NothingToChange("every offset below was committed")
    killed(made, last.time + 1)
    made.groups.insert(
        made.groups.index(last) + 1, replace(earlier, time=last.time + 5, offset=never)
    )


@mutation(
    PLANNED,
    must="group-offsets/checkpoint-beyond-end",
    may="group-offsets/checkpoint-ahead internal-topics/commit-missing",
)
def checkpoint_beyond_the_end(made: Made, rng: Random) -> None:
    """The offset that the mirror committed for the group on B is above B's high watermark."""
    last = _synced(made)[-1]
    made.groups[made.groups.index(last)] = replace(last, offset=promotion(made, "B") + 50)


@mutation(PLANNED, must="group-offsets/checkpoint-ahead")
def checkpoint_ahead(made: Made, rng: Random) -> None:
    """The offset that the mirror committed for the group on B is above records that B did not have
    yet."""
    first = _synced(made)[0]
    later = min(p.time for p in polls(made, "follower"))
    made.groups[made.groups.index(first)] = replace(first, time=later - MS, offset=first.offset)
