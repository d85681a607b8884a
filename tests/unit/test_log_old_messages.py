"""Messages of formats 0 and 1, as Kafka's classes write them (`tests/data/logs/formats-0-and-1`),
are read, compared, and hide nothing behind them."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from linkflap.harness.capture.folders import record as record_logs
from linkflap.harness.log import batches, layout, old_messages, records, reference, segments
from linkflap.harness.model.verdict import Verdict
from tests.copied_logs import asked, judged
from tests.kafka_log import batch, batches_in, old_message, record, rewrite, segment
from tests.run_views import views
from tests.unit.checks.verdicts import anomalies

FOLDER = Path(__file__).parents[1] / "data" / "logs" / "formats-0-and-1"
CODECS = ("none", "gzip", "snappy", "lz4")
TIME = 1_400_000_000_000
APPENDED = TIME + 777
GZIP = 1


def sent(name: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    for codec in CODECS:
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
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read] == sent(name)
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
    """What byte-equality finds of the mixed log, after a change on B."""
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


def test_what_is_behind_a_message_of_a_lower_format_is_compared(tmp_path: Path) -> None:
    """A downgrade of the format: the changed batch of format 2 is behind one of format 0."""
    other = batch(12, [record(b"x"), record(b"y"), record(b"z")])
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
