"""The smallest round trip: A dies with a tail, clients continue on B, A follows B, A is promoted
again. B's offsets equal A's.

A  0 1 2        [3 died with A]                        B  0 1 2   4 5
then A  0 1 2   4 5   6
"""

from __future__ import annotations

from typing import Unpack

from linkflap.spark_verify.facts.partition_facts import LogPromotion, LogTruncation
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, Log, WholeHistory, promoted, reversed_, send, view

BACK = reversed_("A->B", at=600)
AWAY = promoted(2)
"""A dies at second 500 with 3 at offset 2; B's first own offset is 2, its writes begin at 501."""


def home_again(offset: int = 4) -> LogPromotion:
    return promoted(offset, kind="planned", source="B", cluster="A", at=700 * SECOND)


def before() -> Log:
    """A's log when it was captured: the common part and the tail."""
    return Log("A").data(1).data(2).data(3).taken("1-away", at=510)


def truncation(offset: int = 2, end: int = 3) -> LogTruncation:
    return LogTruncation(link="B->A", cluster="A", offset=offset, end=end, time=600 * SECOND + 1)


def on_b() -> Log:
    return Log("B").data(1).data(2).data(4, crc=44, leader_epoch=3).data(5, crc=55, leader_epoch=3)


def on_a() -> Log:
    return (
        Log("A")
        .data(1)
        .data(2)
        .data(4, crc=44, leader_epoch=3)
        .data(5, crc=55, leader_epoch=3)
        .data(6, leader_epoch=4)
    )


ACKED = [
    send(1, 2, acked=0),
    send(3, acked=2),
    send(4, 5, acked=2, cluster="B", invoked=550 * SECOND, returned=551 * SECOND),
    send(6, acked=4, invoked=750 * SECOND, returned=751 * SECOND),
]


def trip(**rest: Unpack[WholeHistory]) -> PartitionView:
    """The faithful round trip, with the given changes."""
    given: WholeHistory = {
        "logs": [on_a(), on_b()],
        "promotions": [AWAY, home_again()],
        "windows": [BACK],
        "earlier": [before()],
        "truncations": [truncation()],
        "sends": ACKED,
        "mirror_kind": "shadow",
    }
    return view(**(given | rest))


def emptied(*on_a: int, **rest: Unpack[WholeHistory]) -> PartitionView:
    """With a mirror that does not keep offsets: A dies with 3, which B never got; B writes 8; A is
    emptied, gets `on_a` from B, and writes 9."""
    given: WholeHistory = {
        "logs": [Log("A").data(*on_a).data(9, pid=4), Log("B").data(1, 2).data(8, pid=3)],
        "promotions": [AWAY, home_again(len(on_a))],
        "windows": [BACK],
        "earlier": [Log("A").data(1, 2, 3, leader_epoch=0, crc=33).taken("1-reverse-600", at=599)],
        "truncations": [truncation(0)],
        "sends": [send(1, 2, 3, acked=0)],
    }
    return view(**(given | rest))
