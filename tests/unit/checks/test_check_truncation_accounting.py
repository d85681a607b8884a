"""truncation-accounting: the smallest histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from linkflap.spark_verify.facts.partition_facts import LogTruncation, MirrorStop
from linkflap.spark_verify.facts.view import NO_EPOCH, PartitionView
from tests.unit.checks.histories import (
    SECOND,
    History,
    Log,
    mirror_stop,
    promoted,
    reversed_,
    send,
    view,
)
from tests.unit.checks.round_trip import (
    ACKED,
    AWAY,
    BACK,
    before,
    home_again,
    on_a,
    on_b,
    trip,
    truncation,
)
from tests.unit.checks.verdicts import Rejected, anomalies, unjudged


def in_epochs(*epochs: tuple[int, int]) -> PartitionView:
    """B has mirrored 1 2 in epoch 0 and 3 in epoch 2, and reports these epochs; what follows is its
    own."""
    b = Log("B").data(1).data(2).data(3, leader_epoch=2).data(9, leader_epoch=7)
    return view(
        [Log("A").data(1).data(2).data(3), b], mirror_kind="shadow", promotions=[promoted(3)],
        stops=[mirror_stop(3, 3, epochs=epochs)]
    )  # fmt: skip


def shortened(
    *truncated: tuple[int, int],
    mirrored: int = 3,
    promoted_at: int = 1,
    log: Log | None = None,
    appended: Sequence[tuple[int, str]] = (),
    reset: bool = False,
) -> PartitionView:
    """B had 1 2 3 of A, was truncated to `promoted_at`, perhaps reset there, and continues in
    leader epoch 1."""
    log = log or Log("B").data(1).data(8, leader_epoch=1).data(9, leader_epoch=1)
    return view(
        [Log("A").data(1).data(2).data(3), log], mirror_kind="shadow",
        promotions=[promoted(promoted_at)],
        stops=[
            mirror_stop(
                mirrored, promoted_at + reset, *appended, *[(promoted_at, "reset")] * reset,
                truncated=truncated,
            )
        ],
    )  # fmt: skip


def ended(reported: MirrorStop, *, offset: int = 1) -> PartitionView:
    """A has an open transaction, B its ABORT at offset 1."""
    a = Log("A").txn(1, pid=7, end=None)
    b = Log("B").txn(1, pid=7, end="abort")
    return view([a, b], mirror_kind="shadow", promotions=[promoted(offset)], stops=[reported])


SAID = (1, "ABORT of producer 7, epoch 0")


NAME = "truncation-accounting"


LOST = (
    Log("A")
    .data(2, at=1)
    .data(4, crc=44, leader_epoch=3)
    .data(5, crc=55, leader_epoch=3)
    .data(6, leader_epoch=4)
)
KEPT = Log("A").data(1).data(2).data(3).data(5, crc=55, leader_epoch=3).data(6, leader_epoch=4)


def on_b_then(cluster: str) -> Log:
    """B's own records, on either cluster."""
    return (
        Log(cluster).data(1).data(2).data(4, crc=44, leader_epoch=3).data(5, crc=55, leader_epoch=3)
    )


def truncated_again() -> LogTruncation:
    return replace(truncation(offset=4, end=5), time=800 * SECOND + 1)


WHOLE = Log("A").data(1).data(2).taken("1-reverse-600", at=605)
PLANNED = [replace(AWAY, kind="planned"), home_again()]
ACCEPTED = {
    "no failback": (view([Log("A"), Log("B")], mirror_kind="shadow"), {}),
    "there and back": (trip(), {"A/native": 3}),
    "nothing to truncate": (trip(earlier=[WHOLE], sends=[], truncations=[]), {"A/native": 2}),
    "an ABORT as it was written down": (ended(mirror_stop(1, 2, SAID)), {"B/native": 2}),
    "nothing to end": (
        view([Log("A").data(1), Log("B").data(1)], mirror_kind="shadow", promotions=[promoted(1)],
            stops=[mirror_stop(1, 1)]),
        {"B/native": 1},
    ),
    "truncated once": (shortened((3, 1)), {"B/native": 2}),
    "truncated twice": (shortened((3, 2), (2, 1)), {"B/native": 3}),
    "truncated again after a kill": (shortened((3, 2), (2, 1), (2, 1)), {"B/native": 4}),
    "nothing was open, nothing was truncated": (
        shortened((1, 1), mirrored=1, log=Log("B").data(1).data(8, leader_epoch=1)),
        {"B/native": 2},
    ),
    "truncated because the source was, and then failed over": (
        shortened((9, 1), log=Log("B").data(1).data(2, leader_epoch=1).data(3, leader_epoch=1),
            promoted_at=3), {"B/native": 2},
    ),
    "truncated because the source was, and deeper at the failover": (
        shortened((9, 2), (3, 1), log=Log("B").data(1).data(8, 9, leader_epoch=1)), {"B/native": 3},
    ),
    "markers of the brokers that lead afterwards": (
        shortened(mirrored=1, appended=[(1, "ABORT of producer 7, epoch 0")],
            log=Log("B").txn(1, pid=7, end="abort")),
        {"B/native": 2},
    ),
    "a reset behind a truncation": (
        shortened(
            (3, 1), reset=True,
            log=Log("B").data(1).marker("reset", pid=-1, leader_epoch=1).data(8, leader_epoch=2)
        ),
        {"B/native": 3},
    ),
    "leader epochs as they were written down": (in_epochs((0, 0), (2, 2)), {"B/native": 1}),
    "a mirror that was never failed over": (view([Log("A"), Log("B")], mirror_kind="shadow",
        stops=[mirror_stop(-1, -1)]), {}),
}  # fmt: skip
REJECTS = {
    "truncation-too-deep": Rejected(trip(truncations=[truncation(offset=1)]), "A",
        1),
    "truncation-too-short": Rejected(trip(truncations=[truncation(offset=3)]), "A",
        2),
    "truncation-unrecorded": Rejected(trip(truncations=[]), "A", 2),
    "truncation-impossible": Rejected(trip(truncations=[truncation(offset=5, end=6)]),
        "A", 5),
    "history-changed": Rejected(trip(logs=[LOST, on_b()]), "A", 0),
    "tail-not-truncated": Rejected(trip(logs=[KEPT, on_b()]), "A", 2),
    "truncated-write": Rejected(trip(promotions=PLANNED), "A", 2),
    "marker-not-appended": Rejected(
        view(
            [Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).data(9)],
            mirror_kind="shadow", promotions=[promoted(1)], stops=[mirror_stop(1, 2, SAID)],
        ),
        "B", 1),
    "marker-unannounced": Rejected(ended(mirror_stop(1, 2)), "B", 1),
    "epoch-mismatch": Rejected(in_epochs((0, 0), (3, 2)), "B", 2),
    "promotion-unaccounted": Rejected(shortened(), "B", 1),
    "truncation-not-made": Rejected(shortened((3, 1), log=Log("B").data(1).data(2).data(3)),
        "B", 1),
    "promotion-mismatch": Rejected(ended(mirror_stop(1, 2, SAID), offset=0), "B", 0),
}  # fmt: skip


def test_a_leader_epoch_below_the_truncation_that_changed() -> None:
    other = (
        Log("A")
        .data(1)
        .data(2, leader_epoch=1)
        .data(4, crc=44, leader_epoch=3)
        .data(5, crc=55, leader_epoch=3)
    )
    assert anomalies(NAME, trip(logs=[other, on_b()])) == [("history-changed", "A", 1)]


@pytest.mark.parametrize(
    ("truncations", "earlier"),
    [
        ([truncation(offset=2, end=1)], [before()]),  # its end is below it
        ([truncation(offset=2, end=2)], [before()]),  # the log had more
        ([replace(truncation(), time=300 * SECOND)], [before()]),  # A followed nobody then
        ([truncation(), replace(truncation(), cluster="B")], [before()]),  # B never followed again
    ],
)
def test_a_truncation_that_cannot_have_been(
    truncations: list[LogTruncation], earlier: list[Log]
) -> None:
    kinds = {kind for kind, _, _ in anomalies(NAME, trip(truncations=truncations, earlier=earlier))}
    assert "truncation-impossible" in kinds


def test_a_cluster_that_was_started_appends_markers_before_it_is_truncated() -> None:
    assert anomalies(NAME, trip(truncations=[truncation(end=5)])) == []


@pytest.mark.parametrize("log", [Log("A").data(2, at=1).data(3), Log("A").data(1)])
@pytest.mark.parametrize("moment", ["1-away", "1-reverse-600"])
def test_a_capture_that_lacks_records_of_earlier_and_later_ones(log: Log, moment: str) -> None:
    at = 510 if moment == "1-away" else 600
    others = [before()] if moment != "1-away" else []
    found = anomalies(
        NAME, trip(earlier=[*others, log.taken(moment, at=at)], truncations=[truncation()])
    )
    assert ("history-changed", "A", 0 if log.batches[0]["base_offset"] else 1) in found


def test_write_acknowledged_after_the_failover_and_truncated_is_lost() -> None:
    late = send(7, acked=3, invoked=560 * SECOND, returned=561 * SECOND)
    assert anomalies(
        NAME,
        trip(earlier=[before().data(7)], sends=[*ACKED, late], truncations=[truncation(end=4)]),
    ) == [("truncated-write", "A", 3)]


def test_a_marker_of_another_producer() -> None:
    seen = ended(mirror_stop(1, 2, (1, "ABORT of producer 8, epoch 0")))
    assert anomalies(NAME, seen) == [("marker-not-appended", "B", 1)]


@pytest.mark.parametrize(
    ("seen", "where"),
    [
        (shortened((3, 2)), [("promotion-unaccounted", "B", 1), ("truncation-not-made", "B", 2)]),
        (shortened((4, 1)), [("promotion-unaccounted", "B", 1)]),
        (
            shortened((3, 1), promoted_at=3, log=Log("B").data(1).data(2).data(3)),
            [("truncation-not-made", "B", 1)],
        ),
        (shortened((3, 1), log=Log("B").data(1, 2, 3)), [("truncation-not-made", "B", 1)]),
    ],
    ids=[
        "not so deep",
        "from elsewhere",
        "and promoted as if it had not been",
        "in the middle of a batch",
    ],
)
def test_truncations_that_do_not_lead_to_the_promotion(
    seen: PartitionView, where: list[tuple[str, str, int]]
) -> None:
    assert anomalies(NAME, seen) == where


@pytest.mark.parametrize(
    ("epoch", "found"), [(1, [("promotion-unaccounted", "B", 1)]), (2, []), (NO_EPOCH, [])]
)
def test_a_marker_of_the_mirrors_own_epoch_is_below_the_promoted_offset(
    epoch: int, found: list[tuple[str, str, int]]
) -> None:
    """Brokers that lead afterwards write theirs in a newer epoch."""
    b = Log("B").txn(1, pid=7, end=None).marker("abort", pid=7, leader_epoch=epoch)
    said = mirror_stop(1, 1, SAID, epochs=((0, 0), (1, 1)))
    a = Log("A").txn(1, pid=7, end=None)
    seen = view([a, b], mirror_kind="shadow", promotions=[promoted(1)], stops=[said])
    assert anomalies(NAME, seen) == found


def test_the_end_of_a_mirror_is_judged_by_the_generation_that_it_began() -> None:
    """What A's second failover appended at 4 was truncated when A followed B again, and B has other
    records there."""
    home = mirror_stop(4, 5, (4, "ABORT of producer 7, epoch 0"), link="B->A", time=700 * SECOND)
    first = on_b_then("A").marker("abort", pid=7)
    again = [reversed_("A->B", at=800)]
    away = promoted(4, source="A", cluster="B", at=750 * SECOND)
    reported = trip(
        logs=[on_b_then("A").data(9, crc=99, leader_epoch=6),
            on_b_then("B").data(9, crc=99, leader_epoch=6)],
        promotions=[AWAY, home_again(), away], windows=[BACK, *again], stops=[home],
        earlier=[before(), first.taken("1-reverse-800", at=790)],
        truncations=[truncation(), truncated_again()], sends=[],
    )  # fmt: skip
    assert anomalies(NAME, reported) == []


def test_truncation_without_an_earlier_capture_is_unknown() -> None:
    (reason,) = unjudged(NAME, trip(earlier=[]))
    assert "no log of it from before and after that was captured" in reason
    assert anomalies(NAME, trip(logs=[on_a(), on_b()])) == []


def test_appended_records_that_were_deleted_later_count() -> None:
    a, b = Log("A").txn(1, pid=7, end=None), Log("B", start=2).data(9, pid=8)
    reported: History = {
        "mirror_kind": "shadow",
        "promotions": [promoted(1)],
        "stops": [mirror_stop(1, 2, SAID)],
    }
    assert anomalies(NAME, view([a, b], **reported)) == []
    assert anomalies(NAME, view([a, Log("B").data(1).skip(1).data(9, pid=8)], **reported)) == [
        ("marker-not-appended", "B", 1)
    ]


@pytest.mark.parametrize(("cleaned", "found"), [(2, []), (1, [("marker-not-appended", "B", 1)])])
def test_a_log_cleaner_may_have_removed_what_was_appended(
    cleaned: int, found: list[tuple[str, str, int]]
) -> None:
    reported: History = {
        "mirror_kind": "shadow",
        "promotions": [promoted(1)],
        "stops": [mirror_stop(1, 2, SAID)],
        "compacted": {"B": cleaned},
    }
    logs = [Log("A").txn(1, pid=7, end=None), Log("B").data(1).skip(1).data(9, pid=8)]
    assert anomalies(NAME, view(logs, **reported)) == found


@pytest.mark.parametrize(("end", "found"), [(2, []), (3, [("truncation-impossible", "A", 2)])])
def test_a_log_that_had_nothing_of_its_own_may_be_noted_late(
    end: int, found: list[tuple[str, str, int]]
) -> None:
    """A KIP-1279 build truncates nothing there; only the log's growth shows that it follows."""
    late = replace(truncation(offset=2, end=end), time=900 * SECOND)
    all_mirrored = Log("A").data(1).data(2).taken("1-away", at=510)
    seen = trip(truncations=[late], earlier=[all_mirrored])
    assert [a for a in anomalies(NAME, seen) if a[0] == "truncation-impossible"] == found
