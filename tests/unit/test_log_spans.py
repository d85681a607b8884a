"""Logs in windows: the same batches and records as the whole log, whatever the window size; and
whose records they are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkflap.harness.log import batches, records, segments
from linkflap.harness.log.batch_headers import Headers
from tests.kafka_log import COMMIT, batch, changed, marker, ours, record, segment


def many(tmp_path: Path, **how: Any) -> list[Path]:
    """Two segments of several batches each, with markers in between."""
    data, offset = [], 0
    for number in range(40):
        values = [record(b"value %d" % number * 40, key=b"k") for _ in range(3)]
        data.append(
            batch(offset, values, pid=1, epoch=0, seq=3 * number, transactional=True, **how)
        )
        offset += 3
        if number % 7 == 6:
            data.append(marker(offset, COMMIT, pid=1, epoch=0))
            offset += 1
    half = len(data) // 2
    first = (
        batches.scan([segment(tmp_path / "all" / "t-0", data[:half])]).headers.last_offset[-1] + 1
    )
    folder = tmp_path / "t-0"
    return [segment(folder, data[:half]), segment(folder, data[half:], base_offset=int(first))]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("window", [1, 700, 5000])
def test_windows_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, window: int
) -> None:
    paths = many(tmp_path, codec=codec)
    whole = batches.scan(paths)
    decoded, damage = records.decode(whole)
    monkeypatch.setattr(segments, "AT_ONCE", window)
    monkeypatch.setattr(records, "WINDOW", window)
    found = batches.scan(paths)
    for field in fields(Headers):
        assert np.array_equal(
            getattr(found.headers, field.name), getattr(whole.headers, field.name)
        ), field.name
    spans = list(records.spans(found))
    assert spans[0][0] == 0
    assert spans[-1][1] == len(found.headers)
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    assert len(spans) > 1
    parts = [records.decode(found, *span)[0] for span in spans]
    for field in fields(records.Columns):
        together = np.concatenate([getattr(part, field.name) for part in parts])
        assert np.array_equal(together, getattr(decoded, field.name)), field.name
    assert (len(damage), len(decoded)) == (0, 120)


def test_an_empty_log_has_no_span(tmp_path: Path) -> None:
    log = batches.scan([])
    assert list(records.spans(log)) == []
    assert not records.holds_ours(log, records.FirstRecords())
    assert len(records.decode(log)[0]) == 0


def test_what_was_let_go_is_read_again(tmp_path: Path) -> None:
    log = batches.scan(many(tmp_path))
    before = log.segments[0].data.copy()
    log.segments[0].let_go(0, len(before))
    log.segments[0].let_go(10, 10**9)
    assert np.array_equal(log.segments[0].data, before)


def has_ours(path: Path) -> bool:
    first = records.FirstRecords()
    return records.holds_ours(batches.scan([path], look=first), first)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_one_record_of_ours_in_any_batch_is_noticed(tmp_path: Path, codec: str) -> None:
    strangers = [batch(number, [record(b"x")], codec=codec) for number in range(5)]
    mine = [batch(5, [ours(7)], codec=codec), batch(6, [record(b"y")], codec=codec)]
    assert not has_ours(segment(tmp_path / "a-0", strangers))
    assert has_ours(segment(tmp_path / "b-0", [*strangers, *mine]))


def test_an_unknown_codec_is_reported_by_headers_as_by_decoding(tmp_path: Path) -> None:
    data = [batch(0, [record(b"x")]), changed(batch(1, [record(b"y")]), attributes=6)]
    log = batches.scan([segment(tmp_path / "t-0", data)])
    codecs = records.unknown_codecs(log)
    assert [(d.kind, d.position) for d in codecs] == [("unknown-codec", len(data[0]))]
    assert codecs == records.decode(log)[1]
