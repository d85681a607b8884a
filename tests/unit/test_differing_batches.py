"""Which record of which replica differs, and in which field: from bytes to the finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.replica_agreement import kernel
from tests.kafka_log import Plain, batch, batches_in, ours, rewrite
from tests.run_views import views
from tests.synthetic import ENDED, TOPIC, Shape, write_run

UIDS = [(1 << 40) + n for n in range(3)]
OPERATION = 1 << 40
SOUND = [ours(uid, OPERATION, n) for n, uid in enumerate(UIDS)]


def replica(root: Path, broker: int) -> Path:
    return root / "captures" / ENDED / "B" / str(broker) / f"{TOPIC}-0" / f"{0:020}.log"


def with_first_batch(path: Path, data: bytes) -> None:
    rewrite(path, [data, *[one for _, one in batches_in(path)][1:]])


def like_the_first(records: list[Plain], codec: str = "none") -> bytes:
    """The first batch of the made-up run, with other records."""
    return batch(0, records, seq=0, transactional=True, pid=0, epoch=0, leader_epoch=1, codec=codec)


def disagreements(root: Path) -> list[Found]:
    rows = kernel(next(iter(views(root))))
    return [row for row in rows if isinstance(row, Found) and row.kind == "replica-disagreement"]


def test_a_healthy_partition_is_not_looked_into(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    with_first_batch(replica(root, 2), like_the_first(SOUND))
    assert disagreements(root) == []
    assert all(not len(r.parts.offset) for view in views(root) for r in view.replicas)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("broker", [1, 2])
@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (ours(UIDS[1], OPERATION, 1, value=b"other"), ["value"]),
        (ours(UIDS[1], OPERATION, 1, key=b""), ["key"]),
        (ours(UIDS[1], OPERATION, 1, timestamp=1_700_000_000_001), ["timestamp"]),
        (ours(UIDS[1], OPERATION, 7), ["headers"]),
    ],
    ids=["value", "key", "timestamp", "headers"],
)
def test_the_record_and_its_part_are_named(
    tmp_path: Path, codec: str, broker: int, other: Plain, fields: list[str]
) -> None:
    root = write_run(tmp_path / "run", Shape(codec=codec))
    with_first_batch(replica(root, broker), like_the_first([SOUND[0], other, SOUND[2]], codec))
    (found,) = disagreements(root)
    assert found.offset == 1
    assert found.evidence["changed"] == [{"offset": 1, "uid": UIDS[1], "fields": fields}]


def test_a_batch_whose_crc_is_wrong_is_reported_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    changed = bytearray(like_the_first(SOUND))
    changed[changed.index(b"v%d" % UIDS[2]) + 3] ^= 1
    with_first_batch(replica(root, 2), bytes(changed))
    (found,) = disagreements(root)
    assert found.evidence["changed"] == [{"offset": 2, "uid": UIDS[2], "fields": ["value"]}]


def test_a_batch_that_cannot_be_read_is_named_as_a_whole(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    changed = bytearray(like_the_first(SOUND))
    changed[61] = 0xFF  # the length of the first record
    with_first_batch(replica(root, 2), bytes(changed))
    (found,) = disagreements(root)
    assert (found.offset, found.evidence["changed"], found.evidence["uids"]) == (0, [], UIDS)
