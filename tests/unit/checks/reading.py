"""How a reader continues in the histories of poll-continuity: later polls, and its assignments."""

from __future__ import annotations

from typing import Unpack

from linkflap.spark_verify.facts.sends_and_reads import Read
from tests.unit.checks.clients import Polled, poll
from tests.unit.checks.logs import SECOND, Log

A = Log("A").data(1, 2, 3)


class Got(Polled, total=False):
    """Its position, or what it did instead of a poll."""

    position: int | None
    kind: str


def later(*pairs: tuple[int, int], at: int = 200, **rest: Unpack[Got]) -> Read:
    return poll(*pairs, at=at * SECOND, **rest)


def assigned(position: int, at: int = 50, **rest: Unpack[Polled]) -> Read:
    return poll(kind="assign", position=position, at=at * SECOND, **rest)


BEYOND = poll((3, 5), at=650 * SECOND)
"""A has been truncated at offset 2, and followed B."""


STOOD = [poll((2, 3), at=400 * SECOND), BEYOND]
