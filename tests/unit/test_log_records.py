"""The columnar decoder against the reference decoder: on any batch both read the same records, or
neither reads any; also control records and the entries of coordinators."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.harness.log import (
    batches,
    codecs,
    coordinators,
    layout,
    records,
    reference,
    segments,
)
from linkflap.harness.log.batch_headers import Headers, Records
from linkflap.harness.log.coordinators import (
    GroupCommit,
    GroupMembers,
    Undecodable,
    group_entry,
    transaction_state,
)
from linkflap.harness.log.reference import MalformedBatch, Record
from linkflap.harness.model.payload import FOREIGN, HEADER, LAYOUT, encode
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.replica_agreement import kernel
from linkflap.spark_verify.read import assemble
from tests.kafka_log import (
    ABORT,
    CODECS,
    COMMIT,
    Plain,
    batch,
    batches_in,
    changed,
    marker,
    mirror_pid_reset,
    ours,
    record,
    recrc,
    rewrite,
    segment,
)
from tests.run_copy import views
from tests.synthetic import ENDED, TOPIC, Shape, as_sent, write_run

Row = tuple[int, int, int, int, int, int, int]


def fast(found: batches.ReplicaLog) -> tuple[list[Row], list[str]]:
    c, damage = records.decode(found)
    columns = (c.offset, c.uid, c.operation, c.digest, c.content, c.timestamp, c.batch)
    return list(zip(*(column.tolist() for column in columns), strict=True)), [
        d.kind for d in damage
    ]


def slow(data: Sequence[bytes]) -> list[Row]:
    rows: list[Row] = []
    for index, one in enumerate(data):
        (each,) = reference.batches(one)
        if each.is_control or not each.crc_ok:
            continue
        try:
            found = reference.records(each)
        except (MalformedBatch, codecs.CannotInflate):
            continue
        rows += [
            (
                r.offset,
                *reference.identity(r),
                reference.digest(r),
                reference.content(r.key, r.value),
                r.timestamp,
                index,
            )
            for r in found
        ]
    return rows


def readable(one: bytes) -> bool:
    (each,) = reference.batches(one)
    try:
        reference.records(each)
    except (MalformedBatch, codecs.CannotInflate):
        return False
    return True


def scanned(data: Sequence[bytes]) -> batches.ReplicaLog:
    """The log of these batches. The file is unlinked at once; the mapping keeps its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        return batches.scan([segment(Path(folder) / "A.t-0", data)])


blobs = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192]),
)
our_values = st.builds(
    encode,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**31 - 1),
)
names = st.one_of(
    st.just(HEADER.encode()), st.sampled_from([b"", b"linkfla", b"linkflapp", b"h" * 70])
)
plains = st.builds(
    Plain,
    value=blobs,
    key=blobs,
    headers=st.lists(st.tuples(names, st.one_of(our_values, blobs)), max_size=3),
    timestamp=st.integers(-(2**62), 2**62),
)
written = st.builds(
    batch,
    st.integers(0, 2**40),
    st.lists(plains, max_size=4),
    codec=st.sampled_from(sorted(CODECS)),
    log_append_time=st.one_of(st.none(), st.integers(0, 2**62)),
    pid=st.integers(-1, 2**40),
    epoch=st.integers(-1, 2**15 - 1),
    seq=st.integers(-1, 2**31 - 1),
)


@settings(max_examples=150)
@given(st.lists(written, max_size=4))
def test_fast_equals_reference_on_whole_batches(data: list[bytes]) -> None:
    found = scanned(data)
    h = found.headers
    assert h.crc_ok.all()
    sound = [next(iter(reference.batches(one))) for one in data]
    assert h.last_sequence.tolist() == [b.last_sequence for b in sound]
    assert h.last_offset.tolist() == [b.last_offset for b in sound]
    rows, damage = fast(found)
    assert rows == slow(data)
    assert not damage


@settings(max_examples=300)
@given(written, st.data())
def test_fast_equals_reference_on_any_bytes_behind_a_header(
    one: bytes, data: st.DataObject
) -> None:
    body = bytearray(one[layout.HEADER_SIZE :])
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, min(len(body) - 1, 60)))] = data.draw(st.integers(0, 255))
    changed = recrc(one[: layout.HEADER_SIZE] + bytes(body[: data.draw(st.integers(0, len(body)))]))
    rows, damage = fast(scanned([changed]))
    assert rows == slow([changed])
    assert len(damage) == (0 if readable(changed) else 1)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_ours_and_foreign_records_in_every_codec(codec: str) -> None:
    data = [
        batch(
            10,
            [ours(7, 3), record(b"else"), ours(8, 3, 1)],
            codec=codec,
            pid=4,
            epoch=0,
            seq=0,
            transactional=True,
        ),
        marker(13, 1, pid=4, epoch=0),
        batch(14, [record(None, key=b"k", headers=[("h", None)])], codec=codec),
    ]
    rows, damage = fast(scanned(data))
    assert not damage
    assert [row[:3] for row in rows] == [
        (10, 7, 3),
        (11, FOREIGN, FOREIGN),
        (12, 8, 3),
        (14, FOREIGN, FOREIGN),
    ]
    assert [row[6] for row in rows] == [0, 0, 0, 2]


def test_compressed_and_plain_batches_stay_in_file_order() -> None:
    data = [batch(i, [ours(i)], codec="gzip" if i % 2 else "none") for i in range(6)]
    assert [row[0] for row in fast(scanned(data))[0]] == list(range(6))


def test_the_first_header_of_ours_with_the_right_size_counts() -> None:
    headers = [(HEADER, b"short"), (HEADER, encode(5, 6, 0)), (HEADER, encode(9, 9, 0))]
    assert [row[1:3] for row in fast(scanned([batch(0, [record(b"v", headers=headers)])]))[0]] == [
        (5, 6)
    ]


def test_the_digest_sees_everything_but_the_offset() -> None:
    base = Plain(value=b"v", key=b"k", headers=[("h", b"x")], timestamp=1000)

    def digest(plain: Plain, offset: int = 0) -> int:
        return fast(scanned([batch(offset, [plain])]))[0][0][3]

    same = digest(base)
    assert digest(base, offset=99) == same
    others = [
        Plain(value=b"v", key=b"k", headers=[("h", b"x")], timestamp=1001),
        Plain(value=b"w", key=b"k", headers=[("h", b"x")], timestamp=1000),
        Plain(value=b"v", key=None, headers=[("h", b"x")], timestamp=1000),
        Plain(value=b"v", key=b"", headers=[("h", b"x")], timestamp=1000),
        Plain(value=b"kv", key=b"", headers=[("h", b"x")], timestamp=1000),
        Plain(value=b"v", key=b"k", headers=[("h", None)], timestamp=1000),
        Plain(value=b"v", key=b"k", headers=[("hx", b"")], timestamp=1000),
        Plain(value=b"v", key=b"k", headers=[], timestamp=1000),
    ]
    assert len({same, *(digest(other) for other in others)}) == len(others) + 1


def test_the_digest_is_published_fnv_1a() -> None:
    plain = struct.pack(">i", -1) + struct.pack(">i", 1) + b"v" + struct.pack(">qi", 5, 0)
    state, states = 14695981039346656037, []
    for byte in plain:
        state = (state ^ byte) * 1099511628211 % 2**64
        states.append(state)
    (row,) = fast(scanned([batch(0, [Plain(value=b"v", timestamp=5)])]))[0]
    assert (row[3] % 2**64, row[4] % 2**64) == (state, states[8])


def test_log_append_time_is_every_records_time() -> None:
    rows, _ = fast(
        scanned(
            [batch(0, [record(b"a", timestamp=1), record(b"b", timestamp=2)], log_append_time=77)]
        )
    )
    assert [row[5] for row in rows] == [77, 77]


def test_compacted_batches_keep_their_offsets() -> None:
    rows, damage = fast(scanned([batch(100, [ours(1, delta=3), ours(2, delta=9)], last_delta=20)]))
    assert [row[0] for row in rows] == [103, 109]
    assert not damage


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (batch(0, [ours(1)], count=2), "unreadable-records"),
        (batch(0, [ours(1), ours(2)], count=1), "unreadable-records"),
        (batch(0, [ours(1)], count=2**31 - 1), "unreadable-records"),
        (batch(0, [ours(1)], count=-1), "unreadable-records"),
        (batch(0, [ours(1, delta=5)], last_delta=4), "unreadable-records"),
        (batch(0, [ours(1, delta=2), ours(2, delta=2)]), "unreadable-records"),
        (batch(0, [ours(1)], attributes=5), "unknown-codec"),
        (batch(0, [ours(1)], attributes=codecs.ZSTD), "unreadable-records"),
        (batch(0, [ours(1)], attributes=codecs.GZIP), "unreadable-records"),
        (batch(0, [ours(1)], attributes=codecs.LZ4), "unreadable-records"),
        (batch(0, [ours(1)], attributes=codecs.SNAPPY), "unreadable-records"),
    ],
)
def test_records_that_cannot_be_read_are_damage_and_the_next_batch_is_read(
    data: bytes, kind: str
) -> None:
    found = scanned([data, batch(50, [ours(9)])])
    rows, damage = fast(found)
    assert [row[:2] for row in rows] == [(50, 9)]
    assert damage == [kind]


def test_a_corrupt_batch_yields_no_record() -> None:
    good = batch(0, [ours(1)])
    bad = bytearray(batch(1, [ours(2)]))
    bad[-1] ^= 1
    rows, damage = fast(scanned([good, bytes(bad)]))
    assert [row[1] for row in rows] == [1]
    assert not damage, "the scan reported the corrupt batch already"


def test_parcels_of_inflated_batches_are_bounded_and_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_PARCEL", 1000)
    data = [batch(i * 10, [ours(i * 10 + j) for j in range(10)], codec="zstd") for i in range(30)]
    assert [row[1] for row in fast(scanned(data))[0]] == list(range(300))


def test_our_header_layout_is_what_the_kernel_reads() -> None:
    assert LAYOUT.size == 20
    numbers = random.Random(1)
    pairs = [(numbers.getrandbits(62), numbers.getrandbits(62)) for _ in range(20)]
    rows, _ = fast(scanned([batch(0, [ours(uid, operation) for uid, operation in pairs])]))
    assert [row[1:3] for row in rows] == pairs


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
    for field in fields(Records):
        together = np.concatenate([getattr(part, field.name) for part in parts])
        assert np.array_equal(together, getattr(decoded, field.name)), field.name
    assert (len(damage), len(decoded)) == (0, 120)


def test_an_empty_log_has_no_span(tmp_path: Path) -> None:
    log = batches.scan([])
    assert list(records.spans(log)) == []
    assert not records.holds_ours(log, records.FirstRecords())
    assert len(records.decode(log)[0]) == 0


def test_released_bytes_of_a_segment_are_read_again(tmp_path: Path) -> None:
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


UIDS = [(1 << 40) + n for n in range(3)]
OPERATION = 1 << 40
SOUND = [as_sent(uid, OPERATION, n) for n, uid in enumerate(UIDS)]


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
        (as_sent(UIDS[1], OPERATION, 1, value=b"other"), ["value"]),
        (as_sent(UIDS[1], OPERATION, 1, key=b""), ["key"]),
        (as_sent(UIDS[1], OPERATION, 1, timestamp=1_700_000_000_001), ["timestamp"]),
        (as_sent(UIDS[1], OPERATION, 7), ["headers"]),
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
    changed[changed.index(SOUND[2].value or b"") + 3] ^= 1
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


def test_a_batch_of_too_many_records_is_named_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow decoder would take minutes for millions of them."""
    root = write_run(tmp_path / "run")
    other = as_sent(UIDS[1], OPERATION, 1, value=b"other")
    with_first_batch(replica(root, 2), like_the_first([SOUND[0], other, SOUND[2]]))
    for most, named in ((3, 1), (2, 0)):
        monkeypatch.setattr(assemble, "MOST_RECORDS", most)
        (found,) = disagreements(root)
        assert len(found.evidence["changed"]) == named
        assert found.evidence["uids"] == ([UIDS[1]] if named else UIDS)


def test_a_coordinators_log_has_no_more_records_than_its_size_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "_RECORDS_FOR_NOTHING", 5)
    monkeypatch.setattr(coordinators, "_RECORDS_EACH_BYTE", 0)
    key = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 0)
    commit = record(struct.pack(">hq", 3, 7), key=key)
    log = batches.scan(
        [segment(tmp_path / FOLDER, [batch(at, [commit] * 2) for at in (0, 2, 4, 6)])]
    )
    found, (damage,) = coordinators.entries(log, "__consumer_offsets")
    assert [entry.offset for entry in found] == [0, 1, 2, 3]
    assert (damage.kind, damage.position) == ("unreadable-records", int(log.headers.position[2]))


# Control records of a log: markers, resets of producer ids, and unknown ones.


FOLDER = "A.t-0"


@pytest.mark.parametrize(
    ("control", "kind"),
    [
        (marker(0, ABORT, pid=1, epoch=0), layout.ABORT),
        (marker(0, COMMIT, pid=1, epoch=0, version=1), layout.COMMIT),
        (mirror_pid_reset(0), layout.OTHER_CONTROL),
        (marker(0, 4, pid=1, epoch=0), layout.SKIPPED_CONTROL),
        (marker(0, 8, pid=1, epoch=0), layout.SKIPPED_CONTROL),
        (marker(0, -2, pid=1, epoch=0), layout.SKIPPED_CONTROL),
    ],
)
def test_control_records_are_read_as_consumers_read_them(
    tmp_path: Path, control: bytes, kind: int
) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, [control])])
    assert (found.headers.control.tolist(), found.damage) == ([kind], ())


@pytest.mark.parametrize(
    "control",
    [
        marker(0, ABORT, pid=1, epoch=0, version=-1),
        batch(0, [Plain(key=None, value=None)], control=True),
        batch(0, [Plain(key=b"\x00\x00", value=None)], control=True),
    ],
)
def test_control_records_that_consumers_refuse_are_damage(tmp_path: Path, control: bytes) -> None:
    found = batches.scan([segment(tmp_path / FOLDER, [control])])
    assert [d.kind for d in found.damage] == ["unknown-control"]
    assert found.headers.control.tolist() == [layout.SKIPPED_CONTROL]


def test_a_control_batch_that_compaction_emptied_is_no_reset_and_no_damage(tmp_path: Path) -> None:
    emptied = batch(4, [], control=True, transactional=True, pid=7, epoch=0, last_delta=0)
    found = batches.scan([segment(tmp_path / FOLDER, [marker(3, ABORT, pid=7, epoch=0), emptied])])
    assert (found.headers.control.tolist(), found.damage) == ([layout.ABORT, layout.EMPTIED], ())


def test_a_marker_has_the_epoch_of_its_coordinator(tmp_path: Path) -> None:
    """As brokers write it; with a delete horizon, which moves the field; and with a value that is
    too short for it."""
    short = batch(
        2,
        [Plain(key=b"\x00\x00\x00\x01", value=b"\x00\x00")],
        control=True,
        transactional=True,
        pid=7,
        epoch=0,
    )
    later = Plain(
        key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x05", timestamp=1_700_000_000_000
    )
    compacted = batch(
        3, [later], control=True, transactional=True, pid=7, epoch=0, horizon=1_700_000_900_000
    )
    usual = (
        marker(0, COMMIT, pid=7, epoch=0, coordinator=4),
        marker(1, ABORT, pid=8, epoch=0, coordinator=2**31 - 1),
    )
    data = batch(4, [record(b"one")], pid=7, epoch=0, seq=0)
    found = batches.scan([segment(tmp_path / FOLDER, [*usual, short, compacted, data])])
    assert found.headers.coordinator_epoch.tolist() == [4, 2**31 - 1, -1, 5, -1]


def test_mirror_pid_reset_is_control_of_another_kind(tmp_path: Path) -> None:
    h = batches.scan([segment(tmp_path / FOLDER, [mirror_pid_reset(0, leader_epoch=13)])]).headers
    assert (h.control.tolist(), h.transactional.tolist(), h.producer_id.tolist()) == (
        [layout.OTHER_CONTROL],
        [False],
        [-1],
    )


# Entries of group coordinators, from bytes: commits, and whether a group has members.


def coordinator_record(key: bytes, value: bytes | None) -> Record:
    return Record(offset=5, timestamp=0, key=key, value=value, headers=())


def text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def compact(word: str) -> bytes:
    return bytes([len(word) + 1]) + word.encode()


def classic(version: int, members: int, *, named: bool = True) -> bytes:
    """The beginning of a GroupMetadataValue; what follows the number of members is not decoded."""
    flexible = version >= 4
    word = compact if flexible else text
    null = b"\0" if flexible else struct.pack(">h", -1)
    value = struct.pack(">h", version) + word("consumer") + struct.pack(">i", 7)
    value += word("range") + word("m-1") if named else null + null
    value += struct.pack(">q", 1) if version >= 2 else b""
    return (
        value
        + (bytes([members + 1]) if flexible else struct.pack(">i", members))
        + b"whatever follows"
    )


CLASSIC = struct.pack(">h", 2) + text("g")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(("members", "named"), [(2, True), (0, True), (0, False)])
def test_a_classic_group_has_members_or_none(version: int, members: int, named: bool) -> None:
    found = group_entry(coordinator_record(CLASSIC, classic(version, members, named=named)))
    assert found == GroupMembers(offset=5, group="g", member="", present=members > 0)


def test_a_group_that_was_deleted_has_no_members() -> None:
    assert group_entry(coordinator_record(CLASSIC, None)) == GroupMembers(
        offset=5, group="g", member="", present=False
    )


@pytest.mark.parametrize(("value", "present"), [(b"\0\0", True), (None, False)])
def test_a_member_of_a_group_of_the_new_protocol_comes_and_goes(
    value: bytes | None, present: bool
) -> None:
    found = group_entry(coordinator_record(struct.pack(">h", 5) + text("g") + text("m-1"), value))
    assert found == GroupMembers(offset=5, group="g", member="m-1", present=present)


def test_a_commit_and_one_that_is_taken_back() -> None:
    key = struct.pack(">h", 1) + text("g") + text("A.t") + struct.pack(">i", 3)
    commit = GroupCommit(offset=5, group="g", topic="A.t", partition=3, committed=42)
    assert group_entry(coordinator_record(key, struct.pack(">hq", 4, 42) + b"rest")) == commit
    taken_back = group_entry(coordinator_record(key, None))
    assert isinstance(taken_back, GroupCommit)
    assert taken_back.committed == -1


@pytest.mark.parametrize("kind", [3, 4, 6, 7, 8, 17])
def test_assignments_and_groups_of_other_kinds_are_left_out(kind: int) -> None:
    assert group_entry(coordinator_record(struct.pack(">h", kind) + text("g"), b"\0\0")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (CLASSIC, struct.pack(">h", 5)),
        (CLASSIC, classic(3, 0)[:9]),
        (CLASSIC[:3], b""),
        (b"", b""),
        (struct.pack(">h", 5) + text("g"), b""),
    ],
    ids=["a newer version", "value ends early", "key ends early", "no key", "no member"],
)
def test_record_that_no_coordinator_writes_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(Undecodable):
        group_entry(coordinator_record(key, value))


def test_tagged_fields_are_passed_over() -> None:
    """A state of version 1 in which each topic has a tagged field of three bytes."""
    value = struct.pack(">hqhib", 1, 9, 0, 1000, 1) + bytes([3])
    for topic in ("t", "u"):
        value += compact(topic) + bytes([2]) + struct.pack(">i", 1) + bytes([1, 0, 3]) + b"xyz"
    value += struct.pack(">qq", 20, 10) + bytes([3, 1, 8]) + struct.pack(">q", 11)
    value += bytes([2, 2]) + struct.pack(">h", 2) + bytes([9, 1]) + b"?"
    found = transaction_state(coordinator_record(struct.pack(">h", 0) + text("id"), value))
    assert found is not None
    assert found.partitions == (("t", 1), ("u", 1))
    assert (found.timeout, found.updated, found.started) == (1000, 20, 10)
    assert (found.previous_id, found.next_id, found.version) == (-1, 11, 2)
