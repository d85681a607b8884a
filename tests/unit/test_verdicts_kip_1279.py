"""Logs of an offset-exact mirror, without a history: at each moment the verdict agrees with the
README beside them; and logs that lost their beginning, and with it the record of a promotion."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.capture.promotions_from_bytes import promotions_in
from linkflap.harness.guarantees import PRESETS
from linkflap.harness.log import batches
from linkflap.harness.model.events import Event, Promotion, PromotionUnknown
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged
from tests.kafka_log import (
    batch,
    batches_in,
    changed,
    field_of,
    mirror_pid_reset,
    record,
    rewrite,
    segment,
)

BOTH = ("A->B", "B->A")


def at(
    moment: str, folder: Path, *links: str, **rest: dict[tuple[str, str, int], list[int]]
) -> Judgement:
    wanted = asked({name: KIP_1279 / moment / name for name in "AB"}, *links, **rest)
    return judged(folder, wanted)


def eras(
    judgement: Judgement, cluster: str, partition: int = 0
) -> list[tuple[str, str, int, int | None, int | None]]:
    rows = cast(list[dict[str, Any]], judgement.document["eras"])
    mine = [
        e
        for e in rows
        if (e["cluster"], e["partition"]) == (cluster, partition) and not e["truncated"]
    ]
    return [
        (e["origin"], e["owner"], e["start"], e["end"], e["compared"].get("batches")) for e in mine
    ]


def promotions(judgement: Judgement) -> dict[tuple[str, int], list[tuple[str, int]]]:
    return {
        key: [(p.cluster, p.offset) for p in found]
        for key, found in plan(judgement.folder).promotions.items()
    }


def verdicts(judgement: Judgement) -> dict[str, str]:
    return {c.name: c.verdict for c in judgement.checks}


def test_before_the_stop_both_logs_are_the_same(tmp_path: Path) -> None:
    judgement = at("1-before-stop", tmp_path / "run", "A->B")
    assert judgement.verdict is Verdict.VALID
    assert promotions(judgement) == {}
    assert eras(judgement, "B") == [("mirrored", "A", 0, None, 8)]
    assert eras(judgement, "B", 1) == [("mirrored", "A", 0, None, 5)]


@pytest.mark.parametrize("moment", ["1-before-stop", "2-after-stop"])
def test_leader_epochs_were_kept_and_one_that_was_not_is_found(tmp_path: Path, moment: str) -> None:
    """The CRC does not cover the leader epoch, so byte equality holds all the same."""
    kept = replace(
        asked({name: KIP_1279 / moment / name for name in "AB"}, "A->B"),
        options=PRESETS["cluster-mirroring"],
    )
    assert judged(tmp_path / "kept", kept).verdict is Verdict.VALID
    shutil.copytree(KIP_1279 / moment, tmp_path / "logs")
    (path,) = sorted((tmp_path / "logs" / "B").rglob("tx-0/*.log"))
    whole = bytearray(path.read_bytes())
    position = batches_in(path)[1][0]
    struct.pack_into(
        ">i", whole, position + 12, struct.unpack_from(">i", whole, position + 12)[0] + 1
    )
    path.write_bytes(bytes(whole))
    logs = {name: tmp_path / "logs" / name for name in "AB"}
    said = [
        judged(tmp_path / str(n), replace(kept, logs=logs, options=o))
        for n, o in enumerate((kept.options, {}))
    ]
    found = [
        [a.kind for a in judgement.anomalies if a.kind == "epoch-not-kept"] for judgement in said
    ]
    assert found == [["epoch-not-kept"], []]
    assert {c.name: c.verdict for c in said[0].checks}["byte-equality"] is Verdict.VALID


def test_checks_that_need_a_history_are_not_due(tmp_path: Path) -> None:
    judgement = at("1-before-stop", tmp_path / "run", "A->B")
    said = {c.name: c.reason for c in judgement.checks if c.verdict is Verdict.NOT_DUE}
    assert said["ghost-ack"] == "no sends: no history was recorded"
    assert {
        "lost-write",
        "last-stable-offset",
        "group-offsets",
        "failover",
        "fault-bite",
    } <= said.keys()
    made = {name for name, verdict in verdicts(judgement).items() if verdict is Verdict.VALID}
    assert made == {
        "producer-id-uniqueness", "sequence-continuity", "marker-pairing", "replica-agreement",
        "leader-epochs", "byte-equality",
        "recording",
    }  # fmt: skip


def test_the_stop_made_b_its_own_where_the_abort_and_the_reset_are(tmp_path: Path) -> None:
    judgement = at("2-after-stop", tmp_path / "run", "A->B")
    assert judgement.verdict is Verdict.VALID
    assert promotions(judgement) == {("tx", 0): [("B", 21)], ("tx", 1): [("B", 8)]}
    assert eras(judgement, "B") == [("mirrored", "A", 0, 21, 8), ("native", "B", 21, None, 2)]
    assert eras(judgement, "B", 1) == [("mirrored", "A", 0, 8, 5), ("native", "B", 8, None, 2)]


def test_diverged_logs_are_the_same_up_to_the_promotion(tmp_path: Path) -> None:
    judgement = at("3-diverged", tmp_path / "run", "A->B")
    assert verdicts(judgement)["byte-equality"] is Verdict.VALID
    assert eras(judgement, "A") == [("native", "A", 0, None, 10)]
    assert eras(judgement, "B") == [("mirrored", "A", 0, 21, 8), ("native", "B", 21, None, 5)]


def test_a_transaction_that_a_committed_after_b_had_aborted_it_has_two_outcomes(
    tmp_path: Path,
) -> None:
    """The commit was acknowledged. The forced failover from A, which may excuse it, is not
    recorded."""
    judgement = at("3-diverged", tmp_path / "run", "A->B")
    assert judgement.verdict is Verdict.INVALID
    assert [(a.check, a.kind, a.cluster, a.partition, a.offset) for a in judgement.anomalies] == [
        ("marker-pairing", "outcome-split", "B", 0, 21),
        ("marker-pairing", "outcome-split", "B", 1, 8),
    ]
    first = judgement.anomalies[0].evidence
    assert (first["first_offset"], first["source_marker"], first["outcomes"]) == (
        16,
        21,
        ["COMMIT", "ABORT"],
    )


def test_diverged_logs_are_no_mirror_of_each_other_in_the_other_direction(tmp_path: Path) -> None:
    judgement = at("3-diverged", tmp_path / "run", "B->A")
    assert judgement.verdict is Verdict.INVALID
    found = {(a.kind, a.partition, a.offset) for a in judgement.anomalies}
    divergences = {
        ("byte-divergence", 0, 21),
        ("byte-divergence", 0, 22),
        ("byte-divergence", 1, 8),
    }
    assert found == {*divergences, ("outcome-split", 0, 21), ("outcome-split", 1, 8)}


def test_diverged_logs_are_invalid_without_a_promotion(tmp_path: Path) -> None:
    ends = {("B", "tx", 0): [28], ("B", "tx", 1): [10]}
    judgement = at("3-diverged", tmp_path / "run", "A->B", promotions=ends)
    assert verdicts(judgement)["byte-equality"] is Verdict.INVALID
    assert min(a.offset for a in judgement.anomalies if a.partition == 0) == 21


@pytest.mark.parametrize("links", [("A->B",), ("B->A",), BOTH])
def test_after_the_failback_both_logs_are_the_same_whichever_way_one_looks(
    tmp_path: Path, links: tuple[str, ...]
) -> None:
    assert at("4-after-failback", tmp_path / "run", *links).verdict is Verdict.VALID


def test_after_the_failback_a_has_what_b_wrote(tmp_path: Path) -> None:
    judgement = at("4-after-failback", tmp_path / "run", *BOTH)
    assert eras(judgement, "A") == [("native", "A", 0, 21, 8), ("mirrored", "B", 21, None, 5)]
    assert eras(judgement, "A", 1) == [("native", "A", 0, 8, 5), ("mirrored", "B", 8, None, 2)]
    assert eras(judgement, "B") == [("mirrored", "A", 0, 21, 8), ("native", "B", 21, None, 5)]


def test_after_the_second_stop_old_sessions_of_a_continue(tmp_path: Path) -> None:
    judgement = at("5-a-stopped", tmp_path / "run", *BOTH)
    assert judgement.verdict is Verdict.VALID
    assert promotions(judgement) == {
        ("tx", 0): [("B", 21), ("A", 29)],
        ("tx", 1): [("B", 8), ("A", 10)],
    }
    assert eras(judgement, "A") == [
        ("native", "A", 0, 21, 8),
        ("mirrored", "B", 21, 29, 6),
        ("native", "A", 29, None, 5),
    ]
    # 31 begins at sequence 2, 33 at 5: after a reset
    assert verdicts(judgement)["sequence-continuity"] is Verdict.VALID


def changed_log(
    tmp_path: Path,
    moment: str,
    change: Callable[[list[bytes]], list[bytes]],
) -> dict[str, Path]:
    """Logs of a moment, with changes to the batches of B's first partition; returns the paths of
    the logs."""
    from tests.kafka_log import batches_in, rewrite

    shutil.copytree(KIP_1279 / moment, tmp_path / "logs")
    path = tmp_path / "logs" / "B" / "tx-0" / "00000000000000000000.log"
    rewrite(path, change([data for _, data in batches_in(path)]))
    return {n: tmp_path / "logs" / n for n in "AB"}


def found_in(judgement: Judgement) -> list[tuple[str, str, str, int, int]]:
    return [(a.check, a.kind, a.cluster, a.partition, a.offset) for a in judgement.anomalies]


def test_an_id_of_a_that_continues_after_bs_reset_is_an_anomaly(
    tmp_path: Path,
) -> None:
    """A's producer 0 ended at sequence 4, so B's producer of that id began at 0; if it continued at
    5, its first records were lost."""
    logs = changed_log(
        tmp_path, "3-diverged", lambda log: [*log[:10], changed(log[10], seq=5), *log[11:]]
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert judgement.verdict is Verdict.INVALID
    assert [found for found in found_in(judgement) if found[1] != "outcome-split"] == [
        ("producer-id-uniqueness", "producer-id-collision", "B", 0, 23),
        ("sequence-continuity", "sequence-start", "B", 0, 23),
    ]


def test_a_transaction_that_the_stop_of_the_mirror_left_open_is_open_for_ever(
    tmp_path: Path,
) -> None:
    """B's reset is where its ABORT was. Before the stop the same transaction is open, and may
    be."""
    logs = changed_log(
        tmp_path, "2-after-stop", lambda log: [*log[:8], changed(log[9], base_offset=21)]
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert found_in(judgement) == [("marker-pairing", "transaction-left-open", "B", 0, 16)]
    assert judgement.anomalies[0].evidence["reset_offset"] == 21


def test_a_batch_of_a_mirrored_again_after_bs_records_is_a_repeat(tmp_path: Path) -> None:
    logs = changed_log(
        tmp_path,
        "3-diverged",
        lambda log: [*log, changed(log[2], base_offset=28, leader_epoch=13)],
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert ("sequence-continuity", "sequence-repeat", "B", 0, 28) in found_in(judgement)


def test_committed_data_without_the_transactional_bit_is_named(tmp_path: Path) -> None:
    logs = changed_log(
        tmp_path,
        "3-diverged",
        lambda log: [*log[:11], changed(log[11], attributes=0), *log[12:]],
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert ("marker-pairing", "not-transactional", "B", 0, 26) in found_in(judgement)


@pytest.mark.parametrize(
    ("moment", "cluster", "position"),
    [("1-before-stop", "B", 600), ("4-after-failback", "A", 930), ("5-a-stopped", "A", 1000)],
)
def test_one_changed_byte_in_the_mirrored_part_is_found(
    tmp_path: Path, moment: str, cluster: str, position: int
) -> None:
    shutil.copytree(KIP_1279 / moment, tmp_path / "logs")
    path = tmp_path / "logs" / cluster / "tx-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))
    judgement = judged(tmp_path / "run", asked({n: tmp_path / "logs" / n for n in "AB"}, *BOTH))
    assert judgement.verdict is Verdict.INVALID
    assert {a.kind for a in judgement.anomalies} == {"corrupt-batch"}
    assert verdicts(judgement)["byte-equality"] is Verdict.UNKNOWN
    assert "00000000000000000000.log at byte" in next(
        c.reason for c in judgement.checks if c.name == "recording"
    )


def test_a_lost_reset_in_one_log_shows_as_a_stranger_or_a_hole(tmp_path: Path) -> None:
    """Without B's reset nothing shows that B was promoted: its own batches are strangers."""
    from tests.kafka_log import batches_in, rewrite

    shutil.copytree(KIP_1279 / "3-diverged", tmp_path / "logs")
    path = tmp_path / "logs" / "B" / "tx-0" / "00000000000000000000.log"
    rewrite(
        path,
        [data for _, data in batches_in(path)][:9] + [data for _, data in batches_in(path)][10:],
    )
    judgement = judged(tmp_path / "run", asked({n: tmp_path / "logs" / n for n in "AB"}, "A->B"))
    assert judgement.verdict is Verdict.INVALID
    assert {(a.check, a.partition) for a in judgement.anomalies} >= {("byte-equality", 0)}


# Copied logs that lost their beginning, and with it the record of a promotion: what is known of
# them, and what is unknown.


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


BOTH_LINKS = [THERE, BACK]
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
def test_directions_of_a_turned_mirror_are_read_from_the_marks_left(
    tmp_path: Path, a: list[bytes], b: list[bytes], wanted: list[tuple[str, str, int]]
) -> None:
    assert sides(events(tmp_path, a, b, *BOTH_LINKS)) == wanted


def test_directions_of_a_turned_mirror_are_read_from_the_first_batches_left(
    tmp_path: Path,
) -> None:
    found = events(tmp_path, kept(OWN, AGAIN, since=6), kept(OWN, AGAIN[:2], since=7), *BOTH_LINKS)
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
