"""Logs behind a mirror that moves offsets, known by their contents alone: the smallest ones that it
can have made, and cannot; and against every way to copy, on random tiny logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest

from linkflap.spark_verify.checks.parts.same_contents import Contents, Origin, origin


def contents(
    source: Sequence[int],
    came: Sequence[int],
    *,
    deleted: tuple[int, int] = (0, 0),
    hidden: Sequence[int] = (),
    later: bool,
) -> Contents:
    """`deleted`: how many offsets of the source's log, and of the destination's."""
    return Contents(
        source=np.array(source, np.int64),
        hidden=np.array(hidden, np.int64),
        source_deleted=deleted[0],
        came=np.array(came, np.int64),
        came_deleted=deleted[1],
        later=np.full(len(came), later),
    )


def of(
    source: Sequence[int],
    came: Sequence[int],
    deleted: tuple[int, int] = (0, 0),
    *,
    repeats: bool = False,
    later: bool = False,
    hidden: Sequence[int] = (),
) -> Origin:
    seen = contents(source, came, deleted=deleted, hidden=hidden, later=later)
    return origin(seen, repeats=repeats)


MANY = list(range(100, 140))
CASES = {
    "each once": (of([1, 2, 1], [1, 2]), "once"),
    "the first is lost": (of([1, 2], [2]), "not"),
    "the first is deleted": (of([1, 2], [2], (0, 1)), "once"),
    "the source has deleted what came first": (of([1, 2], [9, 1], (1, 0)), "once"),
    "nobody had it": (of([1, 2], [9, 8, 1], (1, 0)), "not"),
    "one is repeated": (of([1, 2], [1, 1, 2], repeats=True), "again"),
    "one is repeated, once each was promised": (of([1, 2], [1, 1, 2]), "not"),
    "goes back, and on": (of([1, 2, 3], [1, 2, 1, 2, 3], repeats=True), "again"),
    "goes back, and misses one": (of([1, 2, 3], [1, 3, 1, 3], repeats=True), "not"),
    "two alike in another order": (of([1, 2, 1, 3], [1, 2, 3, 1], repeats=True), "not"),
    "repeats what both deleted": (of([1, 2], [1, 9, 2], (1, 1), repeats=True), "again"),
    "repeats what both may have deleted": (of([1, 2, 3], [1, 3], (1, 1), repeats=True),
        "coincidence"),
    "a loss in a log of different records": (
        of(MANY, [*MANY[:9], *MANY[10:]], (50, 50), repeats=True), "not"),
    "an aborted one, in a log of different records": (
        of(MANY, [9, *MANY[:9], 7, *MANY[9:]], (50, 50), repeats=True, hidden=[7]), "not"),
    "an aborted one, in a log of few": (
        of([1, 2, 3], [9, 1, 7, 2, 3], (5, 5), repeats=True, hidden=[7]), "coincidence"),
    "copied before the destination": (of([1, 2], [1, 2, 3], later=True), "once"),
    "missing, and copied before the destination": (of([1, 2], [1, 3], later=True), "not"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_how_a_log_can_have_come_about(case: str) -> None:
    found, expected = CASES[case]
    assert found.how == expected


def test_where_no_way_leads_on() -> None:
    assert of([1, 2, 3], [1, 3]) == Origin(how="not", index=1, position=1)
    assert of([1, 2, 3], [1, 1, 3], repeats=True) == Origin(how="not", index=2, position=1)
    assert of([1], [1, 2], repeats=True) == Origin(how="not", index=1, position=1)


def every_way(full: Sequence[int], hidden: int, came: Sequence[int], *, repeats: bool) -> bool:
    """Whether a mirror of this log can have written what came, behind at most so many records. Per
    record, how many of the source's it can have copied by then."""

    def written(before: set[int], content: int | None) -> set[int]:
        on = {n + 1 for n in before if n < len(full) and content in (None, full[n])}
        back = {n for n in before if n and (content is None or content in full[:n])}
        return on | back if repeats else on

    copied = {0}
    for _ in range(hidden):
        copied |= written(copied, None)
    for content in came:
        copied = written(copied, content)
    return bool(copied)


def tiny(rng: Random) -> Iterator[tuple[list[int], list[int], tuple[int, int], bool]]:
    """A log, a copy of it, mostly with one change, what both have lost of their beginnings, and
    whether the mirror repeats."""
    alphabet, repeats = range(rng.randint(1, 4)), rng.random() < 0.6
    full = rng.choices(alphabet, k=rng.randint(2, 10))
    came = full[: rng.randint(1, len(full))]
    if repeats and rng.random() < 0.7:
        at = rng.randrange(len(came))
        came[at:at] = came[rng.randrange(at + 1) : at]
    at, change = rng.randrange(len(came)), rng.choice(("drop", "move", "other", "more", ""))
    if change in ("drop", "move", "other"):
        moved = came.pop(at)
        if change != "drop":
            came.insert(rng.randint(0, len(came)), moved if change == "move" else rng.randint(0, 4))
    elif change == "more":
        came.insert(at, rng.randint(0, 4))
    ours, theirs = (min(rng.choice((0, 0, 1, 2)), len(log)) for log in (full, came))
    yield full[ours:], came[theirs:], (ours, theirs), repeats


def test_it_is_one_of_all_ways_or_none() -> None:
    rng, answers = Random(7), set[bool]()
    for _ in range(2000):
        for source, came, deleted, repeats in tiny(rng):
            begins = [b for n in range(deleted[0] + 1) for b in product({*came, -1}, repeat=n)]
            expected = any(
                every_way([*begin, *source], deleted[1], came, repeats=repeats) for begin in begins
            )
            how = of(source, came, deleted, repeats=repeats).how
            assert (how != "not") == expected, (source, came, deleted, repeats)
            answers.add(expected)
    assert answers == {True, False}
