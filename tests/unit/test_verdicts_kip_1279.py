"""Logs of a real offset-exact mirror, without a history: at each moment the verdict agrees with the
README beside them."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.harness.guarantees.copied import PRESETS
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged
from tests.kafka_log import batches_in, changed

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


def test_diverged_logs_are_invalid_where_nobody_was_promoted(tmp_path: Path) -> None:
    beyond = {("B", "tx", 0): [30], ("B", "tx", 1): [30]}
    judgement = at("3-diverged", tmp_path / "run", "A->B", promotions=beyond)
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
    cluster: str,
    change: Callable[[list[bytes]], list[bytes]],
    partition: int = 0,
) -> dict[str, Path]:
    """Logs of a moment, with changes to the batches of one partition of one cluster; returns the
    paths of the logs."""
    from tests.kafka_log import batches_in, rewrite

    shutil.copytree(KIP_1279 / moment, tmp_path / "logs")
    path = tmp_path / "logs" / cluster / f"tx-{partition}" / "00000000000000000000.log"
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
        tmp_path, "3-diverged", "B", lambda log: [*log[:10], changed(log[10], seq=5), *log[11:]]
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
        tmp_path, "2-after-stop", "B", lambda log: [*log[:8], changed(log[9], base_offset=21)]
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert found_in(judgement) == [("marker-pairing", "transaction-left-open", "B", 0, 16)]
    assert judgement.anomalies[0].evidence["reset_offset"] == 21


def test_a_batch_of_a_mirrored_again_after_bs_records_is_a_repeat(tmp_path: Path) -> None:
    logs = changed_log(
        tmp_path,
        "3-diverged",
        "B",
        lambda log: [*log, changed(log[2], base_offset=28, leader_epoch=13)],
    )
    judgement = judged(tmp_path / "run", asked(logs, "A->B"))
    assert ("sequence-continuity", "sequence-repeat", "B", 0, 28) in found_in(judgement)


def test_committed_data_without_the_transactional_bit_is_named(tmp_path: Path) -> None:
    logs = changed_log(
        tmp_path,
        "3-diverged",
        "B",
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
