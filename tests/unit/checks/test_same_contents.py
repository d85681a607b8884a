"""Logs behind a mirror that moves offsets, known by their contents alone: the smallest ones that it
can have made, and cannot; and against every way to copy, on random tiny logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest

from linkflap.spark_verify.checks.log_model.same_contents import (
    Contents,
    Origin,
    origin,
    origin_of_cleaned,
)


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
    source_repeats: bool = False,
    later: bool = False,
    hidden: Sequence[int] = (),
) -> Origin:
    seen = contents(source, came, deleted=deleted, hidden=hidden, later=later)
    return origin(seen, repeats=repeats, source_repeats=source_repeats)


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
    "the source has deleted the first copies of what its own mirror repeated": (
        of(MANY, [*MANY[1:9], *MANY], (8, 0), repeats=True, source_repeats=True), "coincidence"),
    "the same, where its own mirror repeats nothing": (
        of(MANY, [*MANY[1:9], *MANY], (8, 0), repeats=True), "not"),
    "a loss behind what the source's own mirror repeated": (
        of(MANY, [*MANY[1:9], *MANY[:9], *MANY[10:]], (8, 0), repeats=True, source_repeats=True),
        "not"),
    "copied before the destination": (of([1, 2], [1, 2, 3], later=True), "once"),
    "missing, and copied before the destination": (of([1, 2], [1, 3], later=True), "not"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_how_a_log_can_have_come_about(case: str) -> None:
    found, expected = CASES[case]
    assert found.how == expected


def test_contents_without_a_common_order_name_the_first_that_fails() -> None:
    assert of([1, 2, 3], [1, 3]) == Origin(how="not", index=1, position=1)
    assert of([1, 2, 3], [1, 1, 3], repeats=True) == Origin(how="not", index=2, position=1)
    assert of([1], [1, 2], repeats=True) == Origin(how="not", index=1, position=1)
    assert of(MANY, [*MANY[1:9], *MANY], (8, 0), repeats=True) == Origin(
        how="not", index=0, position=0
    )


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


def test_match_is_found_exactly_if_any_order_exists() -> None:
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


def of_cleaned(
    source: Sequence[int], rooms: Sequence[int], came: Sequence[int], *there: int
) -> str:
    """`rooms` and `there`: how many offsets are missing before each record, and behind them."""
    found = origin_of_cleaned(
        contents(source, came, later=False), np.array(rooms, np.int64), np.array(there, np.int64)
    )
    return found.how


def test_a_cleaner_makes_room_for_as_many_records_as_offsets_are_missing() -> None:
    assert of_cleaned([1, 2], [1, 0, 0], [1, 1, 2], 0, 0, 0, 0) == "unknown"
    assert of_cleaned([1, 2], [1, 0, 0], [1, 1, 1, 2], 0, 0, 0, 0, 0) == "not"
    assert of_cleaned([1, 2], [0, 0, 0], [2], 1, 0) == "unknown"
    assert of_cleaned([1, 2], [0, 0, 0], [2], 0, 1) == "not"
    assert of_cleaned([1, 2, 3], [0, 1, 0, 0], [1, 3, 2, 3], 0, 0, 0, 0, 0) == "unknown"
    assert of_cleaned([1, 2, 3], [1, 0, 0, 0], [1, 3, 2, 3], 0, 0, 0, 0, 0) == "not"


def test_in_a_log_of_different_records_what_a_cleaner_took_was_none_of_those() -> None:
    source, rooms = MANY, [0] * 20 + [30] + [0] * (len(MANY) - 20)
    lost = [*MANY[:20], *MANY[21:]]
    assert of_cleaned(source, rooms, lost, *[0] * (len(lost) + 1)) == "not"
    other = [*MANY[:20], *range(30), *MANY[20:]]
    assert of_cleaned(source, rooms, other, *[0] * (len(other) + 1)) == "unknown"


def filled(source: Sequence[int], rooms: Sequence[int], others: set[int]) -> Iterator[list[int]]:
    """Every log of which a cleaner can have left this, or had when it was mirrored."""
    some = [[fill for n in range(room + 1) for fill in product(others, repeat=n)] for room in rooms]
    for fills in product(*some):
        yield [*fills[0], *(c for one, fill in zip(source, fills[1:], strict=True)
                            for c in (one, *fill))]  # fmt: skip


def left_of(full: Sequence[int], came: Sequence[int], there: Sequence[int]) -> bool:
    """Whether a cleaner can have left of a copy of this log what came, with so many offsets missing
    before each record."""
    copied = {0}
    for content, room in zip(came, there, strict=False):
        passed = {n + more for n in copied for more in range(room + 1)}
        copied = {n + 1 for n in passed if n < len(full) and full[n] == content}
    return bool(copied)


def cleaned_pair(
    rng: Random,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """A log and a copy, often with one change, and what their cleaners took of each."""

    def cleaned(log: list[int]) -> tuple[list[int], list[int]]:
        gone = set(rng.sample(range(len(log)), rng.randint(0, min(2, len(log) - 1))))
        left, rooms = [], [0]
        for n, content in enumerate(log):
            if n in gone:
                rooms[-1] += 1
            else:
                left.append(content)
                rooms.append(0)
        return left, rooms

    full = rng.choices(range(rng.randint(1, 4)), k=rng.randint(2, 7))
    copy = full[: rng.randint(1, len(full))]
    if rng.random() < 0.6:
        at = rng.randrange(len(copy))
        copy[at : at + rng.randint(0, 1)] = [rng.randint(0, 4)] * rng.randint(0, 1) or copy[:1]
    return *cleaned(full), *cleaned(copy)


def test_behind_a_cleaner_it_is_one_of_all_ways_or_none() -> None:
    rng, answers = Random(11), set[bool]()
    for _ in range(2000):
        source, rooms, came, there = cleaned_pair(rng)
        expected = any(
            left_of(full, came, there) for full in filled(source, rooms, {*came, *source})
        )
        found = of_cleaned(source, rooms, came, *there)
        assert (found != "not") == expected, (source, rooms, came, there)
        answers.add(expected)
    assert answers == {True, False}
