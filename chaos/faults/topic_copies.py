"""Classifies the copy of a topic that was deleted and created again: of the old topic, of the new
one, or of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

OLD: Final = 20


NEW: Final = 50
"""More records than the old topic had, so that a mirror that continues at its old position finds
records there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The classification of a copy. `sound`: it has records of one topic only; `mixed`: of both
    topics, which later records do not change."""

    sound: bool
    mixed: bool
    words: str


def copied(found: Sequence[str], given_up: str) -> Copied:
    """Classifies a log by its records in order (`old 3`, `new 0`). `given_up` is the mirror's
    reason for adding no more records."""
    old, new = (
        [record for record in found if record.startswith(kind)] for kind in ("old ", "new ")
    )
    strange = len(found) - len(old) - len(new)
    beside = f", and {strange} of neither" if strange else ""
    if old and new:
        order = "behind one another" if found == [*old, *new] else "in one another"
        words = (
            f"{len(old)} records of the deleted topic and {len(new)} of the one made again, "
            f"{order}{beside}"
        )
        return Copied(sound=False, mixed=True, words=words)
    if new:
        words = (
            f"{len(set(new))} of {NEW} records of the topic made again, none of the other{beside}"
        )
        return Copied(sound=not strange and _whole(new, "new", NEW), mixed=False, words=words)
    says = (
        f"its mirror says: {given_up}"
        if given_up
        else "its mirror does not say that it gave the topic up"
    )
    words = f"{len(old)} records of the deleted topic, none of the other{beside}; {says}"
    return Copied(
        sound=bool(given_up) and not strange and _whole(old, "old", OLD), mixed=False, words=words
    )


def _whole(found: Sequence[str], kind: str, count: int) -> bool:
    """Whether all records of a kind are there in order. A mirror with at-least-once delivery may
    repeat some."""
    return list(dict.fromkeys(found)) == [f"{kind} {n}" for n in range(count)]
