"""The records that differ between the two ends of a mirror, and their fields; another packing of a
batch changes none."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.model.verdict import Anomaly
from tests.copied_logs import asked, judged, sound
from tests.kafka_log import batch, batches_in, ours, record, rewrite


def differing(tmp_path: Path, number: int, data: bytes) -> list[Anomaly]:
    """The byte-divergences of B, which has other bytes in one batch."""
    sound(tmp_path / "A" / "orders-0")
    path = sound(tmp_path / "B" / "orders-0")
    whole = [each for _, each in batches_in(path)]
    rewrite(path, [*whole[:number], data, *whole[number + 1 :]])
    judgement = judged(tmp_path / "run", asked({n: tmp_path / n for n in "AB"}, "A->B"))
    return [a for a in judgement.anomalies if a.kind == "byte-divergence"]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_record_is_named_with_what_differs(tmp_path: Path, codec: str) -> None:
    other = batch(
        4,
        [ours(1), ours(2, value=b"other")],
        pid=8,
        epoch=0,
        seq=0,
        transactional=True,
        codec=codec,
    )
    (found,) = differing(tmp_path, 2, other)
    assert found.offset == 4
    assert found.evidence["records"] == [5]
    assert found.evidence["changed"] == [{"offset": 5, "uid": 2, "fields": ["value"]}]


def test_another_packing_changes_no_record(tmp_path: Path) -> None:
    (found,) = differing(tmp_path, 0, batch(0, [record(b"one"), record(b"two")], codec="lz4"))
    assert found.offset == 0
    assert found.evidence["records"] == []
    assert "length" in cast(list[str], found.evidence["fields"])
