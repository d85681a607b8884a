"""Logs of real brokers: the offsets that the README beside them names, and both decoders in
agreement."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.log import batches, records, reference
from linkflap.harness.log.layout import ABORT, COMMIT, DATA, OTHER_CONTROL
from linkflap.harness.log.reference import coordinator_epoch

LOGS = Path(__file__).parents[1] / "data" / "logs" / "kip-1279"
SEGMENTS = sorted(LOGS.rglob("*.log"))


def log(moment: str, cluster: str, partition: int) -> batches.ReplicaLog:
    return batches.scan(sorted((LOGS / moment / cluster / f"tx-{partition}").glob("*.log")))


def spans(found: batches.ReplicaLog) -> list[tuple[int, int, int, int, int, int]]:
    """(first offset, last offset, pid, base sequence, control, leader epoch) of each batch."""
    h = found.headers
    columns = (
        h.base_offset,
        h.last_offset,
        h.producer_id,
        h.base_sequence,
        h.control,
        h.leader_epoch,
    )
    return list(zip(*(c.tolist() for c in columns), strict=True))


BEFORE = [
    (0, 4, -1, -1, DATA, 0),
    (5, 9, 0, 0, DATA, 2),
    (10, 11, 1, 0, DATA, 2),
    (12, 12, 1, -1, COMMIT, 2),
    (13, 14, 1, 2, DATA, 2),
    (15, 15, 1, -1, ABORT, 2),
    (16, 17, 2, 0, DATA, 2),
    (18, 20, -1, -1, DATA, 2),
]
RESET = [(21, 21, 2, -1, ABORT, 13), (22, 22, -1, -1, OTHER_CONTROL, 13)]


def test_the_logs_match_their_readme() -> None:
    assert spans(log("1-before-stop", "A", 0)) == BEFORE
    assert spans(log("2-after-stop", "B", 0)) == BEFORE + RESET
    diverged = spans(log("3-diverged", "A", 0))
    assert diverged[: len(BEFORE)] == BEFORE
    assert diverged[len(BEFORE)][:2] + diverged[len(BEFORE)][4:5] == (21, 21, COMMIT)
    own = spans(log("3-diverged", "B", 0))[len(BEFORE + RESET) :]
    assert [row[:5] for row in own] == [
        (23, 25, 0, 0, DATA),
        (26, 26, 1, 0, DATA),
        (27, 27, 1, -1, COMMIT),
    ]


def test_old_producer_sessions_continue_after_the_reset_on_the_failed_back_cluster() -> None:
    after = [row[:5] for row in spans(log("5-a-stopped", "A", 0)) if row[0] >= 29]
    assert after == [
        (29, 29, -1, -1, OTHER_CONTROL),
        (30, 30, -1, -1, DATA),
        (31, 31, 2, 2, DATA),
        (32, 32, 2, -1, COMMIT),
        (33, 34, 0, 5, DATA),
    ]


@pytest.mark.parametrize("moment", ["1-before-stop", "4-after-failback"])
@pytest.mark.parametrize("partition", [0, 1])
def test_source_and_mirror_have_the_same_columns(moment: str, partition: int) -> None:
    a, b = log(moment, "A", partition), log(moment, "B", partition)
    assert spans(a) == spans(b)
    assert a.headers.crc.tolist() == b.headers.crc.tolist()
    assert records.decode(a)[0].digest.tolist() == records.decode(b)[0].digest.tolist()


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda p: "-".join(p.parts[-4:-1]))
def test_both_decoders_agree(path: Path) -> None:
    found = batches.scan([path])
    columns, damage = records.decode(found)
    slow = list(reference.batches(path.read_bytes()))
    assert not [*found.damage, *damage]
    assert all(b.crc_ok for b in slow)
    assert found.headers.last_sequence.tolist() == [b.last_sequence for b in slow]
    assert found.headers.transactional.tolist() == [b.transactional for b in slow]
    ends = [
        coordinator_epoch(b.codec, b.body) if b.is_control and b.transactional else -1 for b in slow
    ]
    assert found.headers.coordinator_epoch.tolist() == ends
    data = [(i, r) for i, b in enumerate(slow) if not b.is_control for r in reference.records(b)]
    assert columns.offset.tolist() == [r.offset for _, r in data]
    assert columns.batch.tolist() == [i for i, _ in data]
    assert columns.timestamp.tolist() == [r.timestamp for _, r in data]
    assert columns.digest.tolist() == [reference.digest(r) for _, r in data]
    assert set(columns.uid.tolist()) == {-1}
