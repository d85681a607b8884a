"""Offsets of a group on a mirror's destination that nobody there may have had, as samples and as
bytes of `__consumer_offsets`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from linkflap.harness.model.history import EventRow, GroupOffset
from linkflap.harness.model.scenario import FaultSpec
from tests.faithful.clusters import Entry
from tests.faithful.coordinators import COMMITS, committed_at
from tests.faithful.made import Made
from tests.faithful.mutations.base import MM2_PLANNED, PLANNED, NothingToChange, mutation, promotion
from tests.faithful.mutations.readers import polls
from tests.faithful.observers import MS
from tests.faithful.spec import GROUP


def _synced(made: Made) -> list[GroupOffset]:
    """The mirror's commits for the group on B before the failover."""
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


def killed(made: Made, at: int, broker: str = "B/1", fault: str = "broker-kill") -> None:
    """A broker is killed, or another fault has it, and comes back at once."""
    facts: tuple[tuple[str, dict[str, object]], ...] = (
        ("fault-start", {"id": "kill", "fault": fault, "options": {}, "restores": True}),
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
    spec = FaultSpec(id="kill", fault=fault, target=broker, at=1.0, duration=0.0)
    made.scenario = replace(made.scenario, schedule=(*made.scenario.schedule, spec))


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


def _own(made: Made, cluster: str) -> list[Entry]:
    return made.log(cluster, COMMITS[1], topic=COMMITS[0])


def _mirrors(made: Made) -> list[Entry]:
    """The mirror's commits for the group on B in partition 0, in order, until the group came."""
    found: list[Entry] = []
    for entry in _own(made, "B"):
        group, (_, partition), offset = committed_at(entry)
        if group == GROUP and offset < 0:
            break
        if group == GROUP and partition == 0:
            found.append(entry)
    if not found:
        raise NothingToChange("the mirror committed nothing for the group")
    return found


def _groups(made: Made) -> list[int]:
    """The group's commits on A in partition 0."""
    rows = [committed_at(entry) for entry in _own(made, "A")]
    return [offset for group, (_, partition), offset in rows if group == GROUP and partition == 0]


def _commits(made: Made, offset: int, *, behind: Entry | None = None) -> None:
    """The mirror commits this too, behind another commit or the last."""
    last = behind or _mirrors(made)[-1]
    (record,) = last.records
    value = record.value or b""
    more = replace(
        last, records=(record._replace(value=value[:2] + offset.to_bytes(8, "big") + value[10:]),)
    )

    def inserted(log: list[Entry]) -> list[Entry]:
        at = next(n for n, entry in enumerate(log) if entry.offset == last.offset) + 1
        later: list[Any] = [replace(entry, offset=entry.offset + 1) for entry in log[at:]]
        return [*log[:at], replace(more, offset=last.offset + 1), *later]

    made.change("B", COMMITS[1], inserted, topic=COMMITS[0])


def _earlier(made: Made) -> int:
    """Something that the mirror committed before, below the last."""
    *before, last = [committed_at(entry)[2] for entry in _mirrors(made)]
    lower = [offset for offset in before if offset < last]
    if not lower:
        raise NothingToChange("the mirror committed one offset of the group")
    return lower[-1]


@mutation(PLANNED, must="group-offsets/checkpoint-regression")
def mirror_commits_an_earlier_offset(made: Made, rng: Random) -> None:
    """On B, the mirror committed for the group an earlier offset, below its last commit, and no
    sample shows it."""
    _commits(made, _earlier(made))


@mutation(MM2_PLANNED, must="group-offsets/checkpoint-regression")
def translation_goes_back(made: Made, rng: Random) -> None:
    """On B, MirrorMaker 2 committed for the group an offset below its last commit, and no sample
    shows it."""
    _commits(made, _earlier(made))


@mutation(PLANNED, verdict="valid")
def source_coordinator_answers_late(made: Made, rng: Random) -> None:
    """A broker of A is killed, its coordinator answers with an earlier commit, and the mirror
    commits this offset on B (KAFKA-15910)."""
    known = set(_groups(made))
    (*_, last) = [committed_at(entry)[2] for entry in _mirrors(made)]
    earlier = [offset for offset in known if 0 < offset < last]
    if not earlier:
        raise NothingToChange("the group committed once")
    killed(made, min(e.time for e in made.events if e.kind == "fault-start") - 10, "A/1")
    _commits(made, max(earlier))


@mutation(PLANNED, must="group-offsets/checkpoint-beyond-commit")
def mirror_commits_beyond_the_group(made: Made, rng: Random) -> None:
    """On B, the mirror committed for the group a higher offset than the group has ever committed on
    A."""
    _commits(made, max(_groups(made)) + 1)


@mutation(PLANNED, must="group-offsets/checkpoint-stranger")
def mirror_commits_what_nobody_did(made: Made, rng: Random) -> None:
    """On B, the mirror committed for the group an offset in the middle of a batch, which the group
    never committed on A."""
    known, log = {*_groups(made)}, made.log("B")
    ends = {edge for entry in log for edge in (entry.offset, entry.end)}
    for before, after in pairwise(_mirrors(made)):
        for offset in range(committed_at(before)[2] + 1, committed_at(after)[2]):
            if offset not in known | ends and offset > log[0].offset:
                _commits(made, offset, behind=before)
                return
    raise NothingToChange("between what was committed all batches have one record")
