"""Copied logs that lost their beginning, and with it the record of a promotion: what is known of
them, and what is unknown."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.log import batches
from linkflap.harness.model.events import Promotion, PromotionUnknown
from linkflap.harness.model.events.base import Event
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged
from tests.kafka_log import batch, batches_in, field_of, mirror_pid_reset, record, rewrite, segment

THERE, BACK = LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="A")


def data(offset: int, name: str, *, epoch: int = 0, at: int = 0) -> bytes:
    """One record, written in a millisecond of its own unless that is given."""
    return batch(
        offset,
        [record(name.encode(), timestamp=1_700_000_000_000 + (at or offset))],
        leader_epoch=epoch,
    )


def mark(offset: int, epoch: int) -> bytes:
    return mirror_pid_reset(offset, leader_epoch=epoch)


MIRRORED = [data(n, f"a{n}") for n in range(4)]
TAIL = [data(n, f"tail{n}") for n in range(4, 8)]
"""A's later records, which were never mirrored."""
OWN = [mark(4, 5), *(data(n, f"b{n}", epoch=5, at=1000 + n) for n in range(5, 10))]
AGAIN = [mark(10, 9), *(data(n, f"a{n}", epoch=9, at=2000 + n) for n in range(11, 14))]
"""A's records after it had followed B and was promoted again."""


Promotions = dict[tuple[str, str, int], list[int]]


def kept(*parts: list[bytes], since: int = 0) -> list[bytes]:
    every = [each for part in parts for each in part]
    return [each for each in every if int.from_bytes(each[:8], "big") >= since]


def events(
    tmp_path: Path,
    a: list[bytes],
    b: list[bytes],
    *links: LinkSpec,
    given: Promotions | None = None,
) -> list[Event]:
    logs = {}
    for name, part in (("A", a), ("B", b)):
        first = int.from_bytes(part[0][:8], "big") if part else 0
        logs[name] = batches.scan([segment(tmp_path / name, part, base_offset=first)])
    return promotions_in([(("t", 0), logs)], links or [THERE], given or {})[0]


def sides(found: list[Event]) -> list[tuple[str, str, int]]:
    return [
        (e.kind, e.cluster, e.offset) for e in found if isinstance(e, Promotion | PromotionUnknown)
    ]


UNCLEAR = [("promotion", "B", 6), ("promotion-unknown", "B", 6)]


@pytest.mark.parametrize(
    "a",
    [MIRRORED, MIRRORED + TAIL, kept(TAIL, since=6)],
    ids=["given up", "with a tail", "deleted too"],
)
def test_a_log_that_begins_in_what_its_source_has_not_may_be_its_own(
    tmp_path: Path, a: list[bytes]
) -> None:
    assert sides(events(tmp_path, a, kept(OWN, since=6))) == UNCLEAR


def test_a_promotion_is_known_from_its_record_or_from_the_user(tmp_path: Path) -> None:
    assert sides(events(tmp_path, MIRRORED, kept(OWN))) == [("promotion", "B", 4)]
    assert sides(events(tmp_path, MIRRORED, kept(OWN, since=6), given={("B", "t", 0): [4]})) == [
        ("promotion", "B", 4)
    ]


@pytest.mark.parametrize("since", [0, 2])
def test_a_log_that_still_has_mirrored_records_would_have_the_record_of_a_promotion(
    tmp_path: Path, since: int
) -> None:
    """So it was never promoted, and a record that the source lacks is a stranger."""
    assert sides(events(tmp_path, MIRRORED, kept(MIRRORED, OWN[1:], since=since))) == []


def test_a_mirror_of_what_its_source_has_deleted_is_a_mirror(tmp_path: Path) -> None:
    assert (
        sides(events(tmp_path, kept(MIRRORED, TAIL, since=6), kept(MIRRORED, TAIL[:1], since=2)))
        == []
    )
    assert sides(events(tmp_path, MIRRORED, [])) == []


def test_a_mark_that_the_source_has_deleted_came_over_the_link(tmp_path: Path) -> None:
    """B was promoted and the beginning of its log deleted; C, which follows it, still has all of
    it."""
    assert sides(events(tmp_path, kept(OWN, since=6), kept(MIRRORED, OWN[:-1]))) == []
    assert sides(events(tmp_path, kept(MIRRORED, since=2), kept(MIRRORED, OWN))) == [
        ("promotion", "B", 4)
    ]


BOTH = [THERE, BACK]
ROUND = [("promotion", "B", 4), ("promotion", "A", 10)]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (kept(MIRRORED, OWN, AGAIN), kept(MIRRORED, OWN, AGAIN[:2]), ROUND),
        (kept(MIRRORED, OWN, AGAIN), kept(OWN, AGAIN[:2], since=6), ROUND),
        (kept(MIRRORED, OWN), kept(OWN, since=6), [("promotion", "B", 4)]),
        (kept(OWN, AGAIN, since=6), kept(OWN, AGAIN[:2], since=7),
            [("promotion", "B", 6), ("promotion", "A", 10)]),
        (kept(OWN, AGAIN, since=6), kept(OWN, since=7),
            [("promotion", "B", 6), ("promotion", "A", 10)]),
        (kept(OWN, since=4), kept(OWN, since=2), [("promotion", "B", 4)]),
        (kept(OWN[:-1], since=6), kept(OWN, since=7), UNCLEAR),
        (kept(OWN, since=6), kept(OWN[:-1], since=7), []),
        (kept(MIRRORED, TAIL), kept(OWN, since=6), UNCLEAR),
        (kept(MIRRORED, since=2), kept(MIRRORED[:-1], since=1), []),
    ],
    ids=[
        "nothing is gone", "one mark of B's", "the only one of B's", "of both, and B follows",
        "of both, and B does not yet",
        "the first is left", "no mark, B is ahead", "no mark, A is ahead", "A has not followed",
        "never promoted",
    ],
)  # fmt: skip
def test_where_the_mirror_was_turned_round_the_marks_that_are_left_are_in_turn(
    tmp_path: Path, a: list[bytes], b: list[bytes], wanted: list[tuple[str, str, int]]
) -> None:
    assert sides(events(tmp_path, a, b, *BOTH)) == wanted


def test_that_the_mirror_was_turned_round_the_first_batches_that_are_left_tell(
    tmp_path: Path,
) -> None:
    found = events(tmp_path, kept(OWN, AGAIN, since=6), kept(OWN, AGAIN[:2], since=7), *BOTH)
    assert [e.subject for e in found if e.kind == "mirror-started"] == ["B->A", "A->B"]


# Judged, on logs of a build of KIP-1279's branch.


def begun_at(
    root: Path, name: str, beginnings: tuple[int, int] | list[int], moment: str = "3-diverged"
) -> Path:
    """The logs of a cluster, without what lies before an offset of each partition."""
    for partition, since in enumerate(beginnings):
        path = KIP_1279 / moment / name / f"tx-{partition}" / f"{0:020}.log"
        left = kept([each for _, each in batches_in(path)], since=since)
        segment(root / name / f"tx-{partition}", left, base_offset=since)
    return root / name


def wanted(
    tmp_path: Path,
    *links: str,
    a: tuple[int, int] | list[int] = (0, 0),
    b: tuple[int, int] | list[int] = (23, 9),
    promotions: Promotions | None = None,
    moment: str = "3-diverged",
) -> LogsRequest:
    where = {
        name: begun_at(tmp_path, name, beginnings, moment)
        for name, beginnings in (("A", a), ("B", b))
    }
    return asked(where, *(links or ("A->B",)), promotions=promotions)


def reasons(judgement: Judgement, name: str = "byte-equality") -> CheckResult:
    return next(c for c in judgement.checks if c.name == name)


def test_a_healthy_topic_that_lost_its_mark_is_unknown_and_says_how_to_know(tmp_path: Path) -> None:
    judgement = judged(tmp_path / "run", wanted(tmp_path))
    assert [a.kind for a in judgement.anomalies] == []
    assert judgement.verdict is Verdict.UNKNOWN
    assert "say it with --promotion B:tx-0=OFFSET" in reasons(judgement).reason
    assert reasons(judgement, "sequence-continuity").verdict is Verdict.VALID


def test_a_declared_promotion_suffices_after_all_mirrored_records_are_deleted(
    tmp_path: Path,
) -> None:
    said = {("B", "tx", 0): [21], ("B", "tx", 1): [8]}
    judgement = judged(tmp_path / "run", wanted(tmp_path, promotions=said))
    assert (judgement.verdict, reasons(judgement).verdict) == (Verdict.VALID, Verdict.NOT_DUE)


def test_a_partition_without_its_mark_does_not_prevent_judging_the_other(
    tmp_path: Path,
) -> None:
    judgement = judged(tmp_path / "run", wanted(tmp_path, b=(23, 0)))
    assert reasons(judgement).verdict is Verdict.UNKNOWN
    assert reasons(judgement).examined["B/mirrored"] > 0
    assert "tx-1" not in reasons(judgement).reason


def test_a_round_trip_that_lost_its_first_mark_on_both_sides_is_equal(tmp_path: Path) -> None:
    judgement = judged(
        tmp_path / "run",
        wanted(tmp_path, "A->B", "B->A", a=(24, 11), b=(24, 11), moment="5-a-stopped"),
    )
    assert [a.kind for a in judgement.anomalies] == []


def test_a_log_with_something_mirrored_and_no_mark_is_a_mirror_to_its_end(tmp_path: Path) -> None:
    sides = wanted(tmp_path, b=(5, 0))
    path = tmp_path / "B" / "tx-0" / f"{5:020}.log"
    every = [each for _, each in batches_in(path)]
    rewrite(path, [each for each in every if field_of(each, "base_offset") not in (21, 22)])
    judgement = judged(tmp_path / "run", sides)
    assert judgement.verdict is Verdict.INVALID


ONE_WAY, BOTH_WAYS = ("A->B",), ("A->B", "B->A")
MOMENTS = {
    "2-after-stop": ONE_WAY,
    "3-diverged": ONE_WAY,
    "4-after-failback": BOTH_WAYS,
    "5-a-stopped": BOTH_WAYS,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_wherever_healthy_logs_begin_nothing_is_found_in_them(tmp_path: Path, moment: str) -> None:
    random = Random(moment)
    for number in range(6):
        beginnings: dict[str, Any] = {}
        for name in "AB":
            paths = [KIP_1279 / moment / name / f"tx-{p}" / f"{0:020}.log" for p in (0, 1)]
            beginnings[name.lower()] = [
                random.choice([field_of(d, "base_offset") for _, d in batches_in(path)])
                for path in paths
            ]
        folder = tmp_path / str(number)
        judgement = judged(
            folder / "run", wanted(folder, *MOMENTS[moment], **beginnings, moment=moment)
        )
        # One transaction of these logs was committed on A once B had aborted it.
        found = [
            (a.kind, a.cluster, a.topic, a.partition, a.offset)
            for a in judgement.anomalies
            if a.kind != "outcome-split"
        ]
        assert found == [], beginnings
