"""What a mirror commits for a group on B while the group reads on A, in the bytes of
`__consumer_offsets`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from tests.faithful.coordinators import COMMITS, committed_at
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import MM2_PLANNED, PLANNED, NothingToChange, mutation
from tests.faithful.mutations.checkpoints import killed
from tests.faithful.spec import GROUP


def _own(made: Made, cluster: str) -> list[Entry]:
    return made.log(cluster, COMMITS[1], topic=COMMITS[0])


def _mirrors(made: Made) -> list[Entry]:
    """What the mirror committed for the group on B in partition 0, in order, until the group
    came."""
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
    """What the group committed on A in partition 0."""
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
