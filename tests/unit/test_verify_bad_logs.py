"""Bad input: damage is reported with its file and position, the rest is verified, and nothing is
ever valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import (
    BAD,
    asked,
    judged,
    overlapping_segments,
    segment_of_another_topic,
    sound,
)
from tests.kafka_log import batches_in, changed, rewrite


def logs(tmp_path: Path) -> tuple[LogsRequest, Path]:
    """Two topics on two clusters; the path of the second topic's log on B."""
    for cluster in "AB":
        sound(tmp_path / cluster / "fine-0")
        path = sound(tmp_path / cluster / "orders-0")
    return asked({name: tmp_path / name for name in "AB"}, "A->B"), path


def reason(judgement: Judgement, name: str) -> str:
    return next(c.reason for c in judgement.checks if c.name == name)


def test_sound_logs_are_valid(tmp_path: Path) -> None:
    wanted, _ = logs(tmp_path)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.VALID
    assert judgement.anomalies == []


@pytest.mark.parametrize("cluster", ["A", "B"])
@pytest.mark.parametrize("what", BAD)
def test_damage_is_named_and_the_rest_is_verified(tmp_path: Path, what: str, cluster: str) -> None:
    wanted, _ = logs(tmp_path)
    spoil, said = BAD[what]
    path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
    spoil(path)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    reasons = reason(judgement, "recording")
    assert said in reasons
    assert str(path.parent) in reasons
    assert {a.topic for a in judgement.anomalies} <= {"orders"}
    fine = [
        e
        for e in cast(list[dict[str, Any]], judgement.document["eras"])
        if e["topic"] == "fine" and e["cluster"] == "B"
    ]
    assert [e["compared"]["batches"] for e in fine] == [6]
    assert fine[0]["verdict"] == "valid"


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (segment_of_another_topic, "00000000000000003000.log at byte 0"),
        (overlapping_segments, "00000000000000000007.log at byte 0"),
    ],
)
def test_the_file_is_named_and_not_the_first_one(
    tmp_path: Path, spoil: Callable[[Path], None], where: str
) -> None:
    wanted, path = logs(tmp_path)
    spoil(path)
    assert where in reason(judged(tmp_path / "run", wanted), "recording")


def test_a_topic_that_one_side_does_not_have_is_unknown(tmp_path: Path) -> None:
    wanted, _ = logs(tmp_path)
    sound(tmp_path / "A" / "forgotten-0")
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "no log of forgotten-0 on B" in reason(judgement, "recording")


def test_replicas_that_differ_are_invalid(tmp_path: Path) -> None:
    wanted, _ = logs(tmp_path)
    for broker in ("1", "2"):
        for topic in ("fine-0", "orders-0"):
            sound(tmp_path / "A2" / broker / topic)
    path = tmp_path / "A2" / "2" / "orders-0" / "00000000000000000000.log"
    data = [each for _, each in batches_in(path)]
    rewrite(path, [data[0], changed(data[1], pid=9), *data[2:]])
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "A2", "B": tmp_path / "B"}, "A->B"))
    assert judgement.verdict is Verdict.INVALID
    assert ("replica-disagreement", "A", 2) in {
        (a.kind, a.cluster, a.offset) for a in judgement.anomalies
    }
    del wanted


def test_sequences_of_a_log_that_may_have_been_compacted_are_unknown_where_offsets_are_missing(
    tmp_path: Path,
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [*data[:2], *data[4:]])
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.anomalies == []
    assert "1 sequences of A break where offsets are missing" in reason(
        judgement, "sequence-continuity"
    )


@pytest.mark.parametrize(
    ("how", "verdict"), [("keep", Verdict.UNKNOWN), ("negate", Verdict.INVALID)]
)
def test_producer_ids_that_no_broker_hands_out_are_named_where_the_mirror_keeps_ids(
    tmp_path: Path, how: str, verdict: Verdict
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [data[0], changed(data[1], pid=-9), *data[2:]])
    judgement = judged(tmp_path / "run", replace(wanted, options={"producer_ids": how}))
    assert judgement.verdict is verdict
    assert ("first -9 at offset 2" in reason(judgement, "recording")) == (how == "keep")


@pytest.mark.parametrize(
    "changes", [{"count": 3}, {"count": -1}, {"last_delta": 0}, {"base_offset": (1 << 63) - 2}]
)
def test_a_header_that_cannot_be_on_both_sides_is_named_and_never_valid(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [data[0], changed(data[1], **changes), *data[2:]])
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.UNKNOWN
    assert f"orders-0/{0:020}.log at byte {len(data[0])}: impossible-" in reason(
        judgement, "recording"
    )
    fine = [
        e
        for e in cast(list[dict[str, Any]], judgement.document["eras"])
        if e["topic"] == "fine" and e["cluster"] == "B"
    ]
    assert fine[0]["verdict"] == "valid"
