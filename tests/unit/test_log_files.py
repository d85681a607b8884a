"""Log files that others wrote (tests/data/logs): common clients, old formats, and the brokers of a
KIP-1279 build."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from linkflap.harness.capture.folders import record as record_logs
from linkflap.harness.log import batches, layout, old_messages, records, reference, segments
from linkflap.harness.log.codecs import NAMES
from linkflap.harness.log.layout import ABORT, COMMIT, DATA, OTHER_CONTROL
from linkflap.harness.log.reference import coordinator_epoch
from linkflap.harness.model.verdict import Verdict
from tests.copied_logs import KIP_1279, asked, judged, kip_1279_log
from tests.kafka_log import batch as batch_of
from tests.kafka_log import batches_in, old_message, record, rewrite, segment
from tests.run_copy import views
from tests.unit.checks.verdicts import anomalies
from tests.unit.test_forensics import found, look

# The batches that the common clients write (`tests/data/logs/clients`) are sound, and are read
# as sent.


CLIENTS = Path(__file__).parents[1] / "data" / "logs" / "clients"
PARTITIONS = sorted(path.name for path in CLIENTS.iterdir() if path.is_dir())
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITHOUT_ZSTD = ("kafkajs", "sarama-1.19")


def sent(partition: str, codec: str) -> list[tuple[bytes | None, bytes | None, list[object]]]:
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    if partition.startswith("kafkajs"):
        headers = [headers[0], headers[2], headers[1]]
    named: list[object] = [(name.encode(), value) for name, value in headers]
    return [(b"k", f"{codec} ".encode() * 40, named), (None, b"", []), (b"", None, [])]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_clients_records_are_read_as_sent(partition: str) -> None:
    (path,) = (CLIENTS / partition).glob("*.log")
    data = [batch for batch in reference.batches(path.read_bytes()) if not batch.is_control]
    codecs = CODECS[:4] if partition.startswith(WITHOUT_ZSTD) else CODECS
    assert [NAMES[batch.codec] for batch in data] == list(codecs)
    for batch, codec in zip(data, codecs, strict=True):
        read = [(r.key, r.value, list(r.headers)) for r in reference.records(batch)]
        assert read == sent(partition, codec)
    log = batches.scan([path])
    columns, damage = records.decode(log)
    assert (list(log.damage), damage, len(columns)) == ([], [], 3 * len(codecs))


def test_a_clients_batches_are_those_of_a_healthy_cluster(tmp_path: Path) -> None:
    assert len(PARTITIONS) == 20
    result = judged(tmp_path / "judged", asked({"A": CLIENTS}))
    assert result.verdict is Verdict.VALID
    document = look(CLIENTS, code=0)
    assert found(document) == []


# Messages of formats 0 and 1, as Kafka's classes write them
# (`tests/data/logs/formats-0-and-1`), are read, compared, and hide nothing behind them.


FOLDER = Path(__file__).parents[1] / "data" / "logs" / "formats-0-and-1"
OLD_CODECS = ("none", "gzip", "snappy", "lz4")
TIME = 1_400_000_000_000
APPENDED = TIME + 777
GZIP = 1


def sent_in_old_formats(name: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    for codec in OLD_CODECS:
        for magic in (0, 2, 1) if name == "mixed" else (int(name[7]),):
            base = len(found)
            times = [TIME + base + ms if magic else -1 for ms in (0, 5, 1)]
            times = [APPENDED] * 3 if name.endswith("append-time") else times
            contents = [(b"k", f"{codec} ".encode() * 40), (None, b""), (b"", None)]
            found += [
                (base + n, time, *content)
                for n, (time, content) in enumerate(zip(times, contents, strict=True))
            ]
    return found


@pytest.mark.parametrize("name", ["format-0", "format-1", "format-1-append-time", "mixed"])
def test_messages_are_read_as_they_were_written(name: str) -> None:
    path = FOLDER / f"{name}-0" / f"{0:020}.log"
    log = batches.scan([path])
    h = log.headers
    assert log.damage == ()
    read = [r for row in range(len(h)) for r in old_messages.records_of(log.bytes_of(row))]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read] == sent_in_old_formats(name)
    columns, damage = records.decode(log)
    assert damage == []
    assert columns.digest.tolist() == [reference.digest(r) for r in read]
    assert (columns.offset.tolist(), columns.timestamp.tolist()) == (
        [r.offset for r in read],
        [r.timestamp for r in read],
    )
    assert (h.base_offset[1:] == h.last_offset[:-1] + 1).all()
    assert batches.log_end(log) == segments.log_end([path])[0] == len(read)


def test_logs_of_old_formats_are_those_of_a_healthy_cluster(tmp_path: Path) -> None:
    logs = {cluster: tmp_path / cluster for cluster in "AB"}
    for folder in logs.values():
        shutil.copytree(FOLDER, folder)
    result = judged(tmp_path / "judged", asked(logs, "A->B"))
    assert result.verdict is Verdict.VALID
    assert {c.name: c for c in result.checks}["byte-equality"].verdict is Verdict.VALID


def _pair(tmp_path: Path, change: Callable[[Path], None]) -> list[tuple[str, str, int]]:
    """The findings of byte-equality in the mixed log, after a change on B."""
    for cluster in "AB":
        shutil.copytree(FOLDER / "mixed-0", tmp_path / cluster / "t-0")
    change(tmp_path / "B" / "t-0" / f"{0:020}.log")
    logs = {cluster: tmp_path / cluster for cluster in "AB"}
    record_logs(tmp_path / "judged", asked(logs, "A->B"), "")
    (seen,) = views(tmp_path / "judged")
    return anomalies("byte-equality", seen)


def _put(number: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        every = [one for _, one in batches_in(path)]
        rewrite(path, [*every[:number], data, *every[number + 1 :]])

    return change


def test_a_changed_message_in_the_middle_is_found(tmp_path: Path) -> None:
    other = old_message(7, b"x", timestamp=TIME + 11)
    assert _pair(tmp_path, _put(5, other)) == [("byte-divergence", "B", 7)]


def test_batch_behind_a_message_of_an_older_format_is_compared(tmp_path: Path) -> None:
    """A downgrade of the format: the changed batch of format 2 is behind one of format 0."""
    other = batch_of(12, [record(b"x"), record(b"y"), record(b"z")])
    assert _pair(tmp_path, _put(8, other)) == [("byte-divergence", "B", 12)]


def test_a_message_with_a_wrong_crc_is_damage_and_hides_nothing_behind_it(tmp_path: Path) -> None:
    def change(path: Path) -> None:
        every = [bytearray(one) for _, one in batches_in(path)]
        every[0][-1] ^= 1
        rewrite(path, [bytes(one) for one in every])
        _put(5, old_message(7, b"x", timestamp=TIME + 11))(path)

    assert _pair(tmp_path, change) == [("byte-divergence", "B", 7)]
    log = batches.scan([tmp_path / "B" / "t-0" / f"{0:020}.log"])
    assert [(d.kind, d.position) for d in log.damage] == [("corrupt-batch", 0)]


@pytest.mark.parametrize(
    "inside",
    [
        b"",
        old_message(0, b"x")[:-1],
        old_message(0, b"x", magic=0),
        old_message(0, b"x", attributes=GZIP),
        old_message(0, b"x")[:-1] + b"y",
    ],
    ids=["nothing", "torn", "of another format", "compressed again", "of a wrong CRC"],
)
def test_a_compressed_message_that_cannot_be_read_is_damage(tmp_path: Path, inside: bytes) -> None:
    outer = old_message(4, zlib.compress(inside, wbits=31), attributes=GZIP)
    path = segment(tmp_path / "t-0", [outer, old_message(5, b"y")])
    log = batches.scan([path])
    assert [d.kind for d in log.damage] == ["unreadable-records"]
    assert log.headers.last_offset.tolist() == [4, 5]
    assert records.decode(log)[0].offset.tolist() == [5]


def test_relative_offsets_of_a_compacted_message_end_at_its_own(tmp_path: Path) -> None:
    """Of four messages compaction left the second and the last."""
    left = old_message(1, b"x") + old_message(3, b"y")
    path = segment(
        tmp_path / "t-0", [old_message(13, zlib.compress(left, wbits=31), attributes=GZIP)]
    )
    h = batches.scan([path]).headers
    assert (h.base_offset.tolist(), h.last_offset.tolist(), h.count.tolist()) == ([11], [13], [2])
    assert h.leader_epoch.tolist() == [layout.NO_EPOCH]


# Logs of real brokers: the offsets that the README beside them names, and both decoders in
# agreement.


SEGMENTS = sorted(KIP_1279.rglob("*.log"))


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
    assert spans(kip_1279_log("1-before-stop", "A", 0)) == BEFORE
    assert spans(kip_1279_log("2-after-stop", "B", 0)) == BEFORE + RESET
    diverged = spans(kip_1279_log("3-diverged", "A", 0))
    assert diverged[: len(BEFORE)] == BEFORE
    assert diverged[len(BEFORE)][:2] + diverged[len(BEFORE)][4:5] == (21, 21, COMMIT)
    own = spans(kip_1279_log("3-diverged", "B", 0))[len(BEFORE + RESET) :]
    assert [row[:5] for row in own] == [
        (23, 25, 0, 0, DATA),
        (26, 26, 1, 0, DATA),
        (27, 27, 1, -1, COMMIT),
    ]


def test_old_producer_sessions_continue_after_the_reset_on_the_failed_back_cluster() -> None:
    after = [row[:5] for row in spans(kip_1279_log("5-a-stopped", "A", 0)) if row[0] >= 29]
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
    a, b = kip_1279_log(moment, "A", partition), kip_1279_log(moment, "B", partition)
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
