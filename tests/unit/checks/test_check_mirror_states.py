"""mirror-states: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from linkflap.spark_verify.facts.partition_facts import (
    Comparison,
    Description,
    Disagreement,
    LogPromotion,
    LogTruncation,
    Window,
)
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from tests.unit.checks.histories import SECOND, Log, promoted, reversed_, samples, send, view
from tests.unit.checks.verdicts import Rejected, anomalies, findings

NAME = "mirror-states"
A2, B1 = Log("A").data(1, 2), Log("B").data(1)
BOTH = {"A/native": 2}


def said(lag: int, at: int, *, state: str = "MIRRORING", link: str = "A->B") -> Description:
    return Description(
        link=link,
        state=state,
        mirrors=state == "MIRRORING",
        promoted=state in ("STOPPING", "STOPPED"),
        lag=lag,
        asked=at * SECOND,
        returned=at * SECOND + 1000,
    )


def marks(a: Sequence[int], b: Sequence[int]) -> dict[str, Watermarks]:
    """High watermarks of A and B, one each second from second 1 on."""
    return {
        name: samples(*[(high, high) for high in highs]) for name, highs in (("A", a), ("B", b))
    }


class Rest(TypedDict, total=False):
    """The other arguments of a history."""

    promotions: Sequence[LogPromotion]
    windows: Sequence[Window]
    truncations: Sequence[LogTruncation]
    disagreements: Sequence[Disagreement]
    sends: Sequence[Send]
    comparisons: Sequence[Comparison]
    topology: str


class Failover(TypedDict):
    """The logs after one, and its promotion."""

    logs: Sequence[Log]
    promotions: Sequence[LogPromotion]


def seen(
    *descriptions: Description,
    a: Sequence[int] = (2,) * 9,
    b: Sequence[int] = (1,) * 9,
    logs: Sequence[Log] = (A2, B1),
    **rest: Unpack[Rest],
) -> PartitionView:
    return view(list(logs), descriptions=descriptions, watermarks=marks(a, b), **rest)


GONE = LogTruncation(link="A->B", cluster="B", offset=1, end=2, time=4 * SECOND)
OVER: Failover = {"logs": (A2, Log("B").data(1).data(9)), "promotions": [promoted(1)]}


def unknown(*at: int) -> list[Description]:
    """Reports that B's partition is in no known state."""
    return [said(-1, second, state="UNKNOWN") for second in at]


FORGOTTEN = unknown(*range(510, 541, 5))
ACCEPTED = {
    "as far behind as it says": (seen(said(1, 8)), {"B/mirrored": 1}),
    "further behind than it is": (seen(said(5, 8)), {"B/mirrored": 1}),
    "behind for less than 5 s": (
        seen(said(0, 8), a=(1, 1, 1, 1, 2, 2, 2, 2, 2)),
        {"B/mirrored": 1},
    ),
    "behind only since the last sample before these 5 s": (
        seen(said(0, 8), a=(1, 1, 2, 2, 2, 2, 2, 2, 2)),
        {"B/mirrored": 1},
    ),
    "not behind in the first sample after it": (
        seen(said(0, 8), b=(1, 1, 1, 1, 1, 1, 1, 1, 2)),
        {"B/mirrored": 1},
    ),
    "not behind at one moment of the last 5 s": (
        seen(said(0, 8), b=(1, 1, 1, 1, 2, 2, 2, 2, 2)),
        {"B/mirrored": 1},
    ),
    "it does not say": (seen(said(-1, 8)), {"B/mirrored": 1}),
    "not mirrored": (seen(said(0, 8, state="FAILED")), {"B/mirrored": 1}),
    "no sample from before": (seen(said(0, 3)), {"B/mirrored": 1}),
    "no sample from after": (seen(said(0, 20)), {"B/mirrored": 1}),
    "the log was truncated meanwhile": (seen(said(0, 8), truncations=[GONE]), {"B/mirrored": 1}),
    "a leader with followers that are behind": (
        seen(said(0, 8), topology="A->B:3"),
        {"B/mirrored": 1},
    ),
    "mirrored for some seconds after a promotion": (seen(said(0, 503), **OVER), {"B/mirrored": 1}),
    "stopped after a promotion": (seen(said(-1, 600, state="STOPPED"), **OVER), {"B/mirrored": 1}),
    "mirrored while the next link has failed over": (
        seen(
            said(1, 600),
            promotions=[promoted(1, source="B", cluster="C")],
            topology="A->B->C",
        ),
        {"B/mirrored": 1},
    ),
    "mirrored again": (
        seen(said(-1, 700), **OVER, windows=[replace(reversed_("B->A", at=650))]),
        {"B/mirrored": 1},
    ),
    "unknown for less than 30 s after a promotion": (
        seen(*FORGOTTEN[:-1], **OVER),
        {"B/mirrored": 6},
    ),
    "unknown with the promotion reported in between": (
        seen(*FORGOTTEN, said(-1, 521, state="STOPPED"), **OVER),
        {"B/mirrored": 8},
    ),
    "unknown with no report for more than 5 s": (
        seen(*FORGOTTEN[:3], *FORGOTTEN[4:], **OVER),
        {"B/mirrored": 6},
    ),
    "unknown before a promotion": (seen(*unknown(*range(440, 500, 5)), **OVER), {"B/mirrored": 12}),
    "unknown after it is mirrored again": (
        seen(*FORGOTTEN, **OVER, windows=[replace(reversed_("B->A", at=505))]),
        {"B/mirrored": 7},
    ),
    "a run that did not record which states are promoted": (
        seen(*(replace(each, promoted=None) for each in FORGOTTEN), **OVER),
        {"B/mirrored": 7},
    ),
    "nothing said": (seen(), {}),
}
PAUSED_TWICE = Disagreement(
    link="A->B",
    said="pause A.t was accepted, expected: INVALID_CLUSTER_MIRROR_STATES",
    time=8 * SECOND,
)
OTHERWISE = "partition 0: FAILED recorded, MIRRORING described"


def recorded(*words: str, at: int = 9) -> Comparison:
    return Comparison(link="A->B", there=1, here=1, differing=(), time=at * SECOND, recorded=words)


REJECTS = {
    "state-lie": Rejected(seen(said(0, 8)), "B", 1),
    "promotion-forgotten": Rejected(seen(*FORGOTTEN, **OVER), "B", 1),
    "verb-disagreement": Rejected(seen(said(1, 8), disagreements=[PAUSED_TWICE]), "B", -1),
    "record-differs": Rejected(seen(comparisons=[recorded(OTHERWISE)]), "B", -1),
}


@pytest.mark.parametrize(
    ("history", "offset"),
    [
        (seen(said(0, 7), said(0, 8), said(1, 8)), 1),
        (seen(said(2, 8), a=(9,) * 9), 1),
        (seen(said(0, 8), topology="A->B:3", a=(2,) * 20, b=(1,) * 20), 1),
        (seen(said(-1, 600), **OVER), 1),
        (seen(said(0, 900), **OVER, windows=[replace(reversed_("A->B", at=650))]), 1),
    ],
)
def test_each_wrong_state_is_reported_once(history: PartitionView, offset: int) -> None:
    assert anomalies(NAME, history) == [("state-lie", "B", offset)]


def test_first_disagreement_of_each_mirror_is_reported() -> None:
    later = replace(PAUSED_TWICE, time=9 * SECOND)
    back = replace(PAUSED_TWICE, link="B->A")
    found = anomalies(NAME, seen(disagreements=[later, PAUSED_TWICE, back]))
    assert found == [("verb-disagreement", "B", -1), ("verb-disagreement", "A", -1)]


def test_records_that_agree_at_last_are_fine() -> None:
    assert anomalies(NAME, seen(comparisons=[recorded(OTHERWISE, at=8), recorded()])) == []


def test_writes_to_a_partition_whose_promotion_is_forgotten_are_counted() -> None:
    before = send(9, acked=1, cluster="B", invoked=505 * SECOND)
    acknowledged = send(10, acked=2, cluster="B", invoked=515 * SECOND)
    refused = send(11, cluster="B", invoked=520 * SECOND, outcome="info")
    elsewhere = send(12, cluster="A", invoked=520 * SECOND)
    (found,) = findings(
        NAME, seen(*FORGOTTEN, **OVER, sends=[before, acknowledged, refused, elsewhere])
    )
    counted = {name: found.evidence[name] for name in ("writes", "acknowledged", "seconds")}
    assert counted == {"writes": 2, "acknowledged": 1, "seconds": 30.0}


def test_the_longest_time_without_a_promotion_is_reported() -> None:
    again = [said(-1, 541, state="STOPPED"), *unknown(*range(545, 590, 5))]
    (found,) = findings(NAME, seen(*FORGOTTEN, *again, **OVER))
    assert (found.evidence["time"], found.evidence["seconds"]) == (545 * SECOND, 40.0)
