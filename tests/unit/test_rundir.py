"""A run directory: its columns and manifest, a full disk, and impossible rows."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness import rundir
from linkflap.harness.model.errors import EnvironmentFailure, InputError, SetupError
from linkflap.harness.model.events import HostStall, Phase
from linkflap.harness.model.history import (
    Bounds,
    EventRow,
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.scenario import TopicSpec, WorkloadSpec
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import Appender, Damage, RunReader, RunWriter, files
from linkflap.harness.rundir.files import room
from linkflap.harness.rundir.manifest import MANIFEST, content
from linkflap.recording import run_end
from linkflap.spark_verify.checks.finding_rows import FindingRow, packed, unpacked
from linkflap.spark_verify.read.pieces import history_rows
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict import parquet
from tests.events import append_row
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.run_copy import seal
from tests.unit.recorded_run import ROW, START, run

NO_SPACE = (
    r"no space left for the run directory .*/run; free some on its disk, or name a folder on"
    r" another disk with --out"
)


def refused(writer: RunWriter) -> Appender[GroupOffset]:
    """An appender whose writes the kernel refuses, as on a full disk."""
    folder = writer.root / "groups"
    folder.mkdir(exist_ok=True)
    (folder / "full.jsonl").symlink_to("/dev/full")
    return writer.groups("full")


@contextmanager
def recorded(folder: Path) -> Iterator[RunWriter]:
    """Records a run in which nothing runs."""
    with run_end.written(folder, run()) as (writer, _), run_end.with_room(writer):
        yield writer


def as_good_as_full(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(f_bfree=1, f_bavail=1, f_frsize=4096, f_blocks=1000)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)


def test_the_first_write_that_fails_ends_the_record(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    writer.check()
    before = writer.groups("A")
    before.write(ROW)
    refused(writer).write(ROW)
    before.write(ROW)
    writer.write(Phase(name="nobody writes this down"))
    with pytest.raises(EnvironmentFailure, match=NO_SPACE):
        writer.check()
    with pytest.raises(EnvironmentFailure, match=NO_SPACE):
        writer.close("finished")
    reader = RunReader(tmp_path / "run")
    assert (reader.run.status, reader.run.error[:13]) == ("failed", "no space left")
    (tmp_path / "run" / "groups" / "full.jsonl").unlink()
    assert reader.groups()[0] == [ROW]
    assert reader.events()[0] == []


def test_a_disk_that_is_all_but_full_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    as_good_as_full(monkeypatch)
    with pytest.raises(EnvironmentFailure, match=NO_SPACE):
        writer.check()
    with pytest.raises(EnvironmentFailure, match=NO_SPACE):
        writer.close("failed")


def test_a_disk_that_does_not_tell_its_size_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=4096, f_blocks=0)
    )
    writer.check()
    writer.close("finished")


def test_a_line_that_does_not_fit_is_not_started(tmp_path: Path) -> None:
    broken = files.Breakage(tmp_path)
    rows: Appender[EventRow] = Appender(tmp_path / "rows.jsonl", broken)
    event = EventRow(time=1, kind="phase", subject="x", data={})
    rows.write(event)
    whole = (tmp_path / "rows.jsonl").read_bytes()
    _, most = soft_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # the kernel writes five bytes and refuses the rest
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 5, most))
        rows.write(event)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_limit)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole
    assert "can no longer be written (" in str(broken.reason)
    rows.close()


def test_events_without_a_run_fail_where_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    events = rundir.EventLog(tmp_path / "events.jsonl")
    with pytest.raises(OSError, match="No space left"):
        events.write(Phase(name="x"))
    events.close()


def test_an_incomplete_write_leaves_nothing(tmp_path: Path) -> None:
    _, most = soft_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, most))
        with pytest.raises(OSError, match="too large"):
            rundir.write_whole(tmp_path / "run.json", b"123456")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_limit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["verdict.json", "verdict.json.partial"])
@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to(path.parent / "theirs")])
def test_a_link_or_fifo_under_the_name_of_a_file_is_not_written_through(
    tmp_path: Path, name: str, put: Callable[[Path], None]
) -> None:
    (tmp_path / "theirs").write_text("theirs")
    put(tmp_path / name)
    rundir.write_whole(tmp_path / "verdict.json", b"ours")
    assert (tmp_path / "verdict.json").read_bytes() == b"ours"
    assert not (tmp_path / "verdict.json").is_symlink()
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.parametrize(
    "error", [SetupError("broker A/1 died by itself"), OSError(errno.EIO, "Input/output error")]
)
def test_errors_after_a_full_disk_name_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: SetupError | OSError
) -> None:
    folder = tmp_path / "run"

    def fail() -> None:
        with recorded(folder) as writer:
            (writer.logs / "a.log").touch()
            as_good_as_full(monkeypatch)
            raise error

    with pytest.raises(EnvironmentFailure, match=NO_SPACE):
        fail()
    assert msgspec.json.decode((folder / "run.json").read_bytes())["error"].startswith(
        "no space left"
    )


def test_an_exceeded_quota_is_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=NO_SPACE), recorded(tmp_path / "run"):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_other_errors_are_reported_unchanged(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such release"), recorded(tmp_path / "run"):
        raise SetupError("no such release")


def test_a_run_that_ends_without_its_record_has_not_finished(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=NO_SPACE), recorded(tmp_path / "run") as writer:
        refused(writer).write(ROW)


Row = Operation | Poll | Watermark | GroupOffset


HOUR = 3600 * 10**9


SENT = SendGroup(topic="A.t", partition=0, first_uid=7, count=3, acks=((0, 3, 10),))


RETURNED = Operation(
    number=1, phase="return", time=START, client="c", process=1, cluster="A", kind="send",
    outcome="ok", sends=(SENT,)
)  # fmt: skip


POLLED = Poll(
    time=START, returned=START + 1, reader="r", process=1, cluster="A", isolation="read_committed",
    kind="poll",
    fetched=(Fetched(topic="A.t", partition=0, runs=((-1, -1, 1), (7, 10, 3)), position=13),),
)  # fmt: skip


UNTOLD = Watermark(
    time=START, returned=START + 1, cluster="A", leader=-1, topic="A.t", partition=0, log_start=-1,
    last_stable=-1,
    high_watermark=0,
)  # fmt: skip


def sent(**changed: Any) -> Operation:
    return replace(RETURNED, sends=(replace(SENT, **changed),))


def fetched(uid: int, offset: int, count: int) -> Poll:
    return replace(POLLED, fetched=(replace(POLLED.fetched[0], runs=((uid, offset, count),)),))


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (
            RETURNED,
            sent(acks=((0, 500, 10),)),
            "records 1 to 500 were acknowledged, of 3 sent to A.t-0",
        ),
        (RETURNED, sent(refused=((2, 2),)), "records 3 to 4 were refused, of 3 sent to A.t-0"),
        (
            RETURNED,
            sent(acks=((0, 3, 10),) * 1000),
            "3000 records were acknowledged or refused, of 3 sent to A.t-0",
        ),
        (RETURNED, sent(acks=((-3, 2, 10),)), "acks"),
        (RETURNED, sent(count=1 << 40), "count"),
        (RETURNED, sent(partition=-4), "partition"),
        (RETURNED, sent(first_uid=2**63 - 1), "first_uid"),
        (RETURNED, replace(RETURNED, time=-1), "time"),
        (POLLED, fetched(7, -9, 1), "runs"),
        (POLLED, fetched(7, 10**30, 1), "runs"),
        (POLLED, fetched(7, 9, -1), "runs"),
        (replace(UNTOLD, log_start=-1001), replace(UNTOLD, high_watermark=-1002), "high_watermark"),
        (UNTOLD, replace(UNTOLD, leader=1 << 40), "leader"),
        (ROW, replace(ROW, offset=-1), "offset"),
        (ROW, replace(ROW, cluster="Z"), "it is of cluster 'Z', and the run has A, B"),
        (POLLED, replace(POLLED, cluster="Z"), "it is of cluster 'Z'"),
        (POLLED, replace(POLLED, returned=START - 1), "before that"),
        (
            POLLED,
            replace(POLLED, time=START - HOUR),
            "it is of 3596.0 s before the run had started",
        ),
        (UNTOLD, replace(UNTOLD, time=1 << 62, returned=1 << 62), "after the run had ended"),
        (RETURNED, replace(RETURNED, time=1 << 62), "after the run had ended"),
    ],
)
def test_a_row_that_cannot_be_is_named_and_left_out(
    tmp_path: Path, good: Row, bad: Row, said: str
) -> None:
    folders: dict[type[Row], str] = {
        Operation: "operations",
        Poll: "polls",
        Watermark: "watermarks",
        GroupOffset: "groups",
    }
    folder = folders[type(good)]
    writer = RunWriter(tmp_path / "run", run())
    rows = getattr(writer, folder)("A")
    for row in (good, bad, good):
        rows.write(row)
    writer.close("finished")
    found, damage = getattr(RunReader(tmp_path / "run"), folder)()
    assert found == [good, good]
    assert [(d.path, d.reason.partition(":")[0]) for d in damage] == [
        (f"{folder}/A.jsonl", "line 2")
    ]
    assert said in damage[0].reason


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (
            "promotion",
            {"cluster": "B", "topic": "t", "partition": 0, "offset": 10**23},
            "at `$.offset`",
        ),
        (
            "promotion",
            {"cluster": "B", "topic": "t", "partition": -1, "offset": 4},
            "Expected `int` >= 0 - at `$.partition`",
        ),
        (
            "truncation",
            {"cluster": "A", "topic": "t", "partition": 0, "offset": 4, "end": -4},
            "at `$.end`",
        ),
        (
            "failover",
            {"kind": "forced", "fault_time": -1, "open_transactions": 0},
            "at `$.fault_time`",
        ),
    ],
)
def test_an_event_of_an_offset_that_no_log_has_is_named_and_left_out(
    tmp_path: Path, kind: str, data: dict[str, Any], said: str
) -> None:
    writer = RunWriter(tmp_path / "run", run())
    append_row(writer.root, kind, "A->B", **data)
    writer.write(HostStall(seconds=-1))
    writer.close("finished")
    found, damage = RunReader(tmp_path / "run").events()
    assert [event.kind for event in found] == ["host-stall"]
    assert damage[0].path == "events.jsonl"
    assert damage[0].reason.startswith(f"a {kind} of A->B that cannot be read: ")
    assert said in damage[0].reason


@pytest.mark.parametrize(
    "wrong",
    [{"broker": 1 << 40}, {"log_start": -1}, {"high_watermark": -7}, {"compacted": 1 << 63}],
)
def test_bounds_that_cannot_be_take_their_partition_with_them_and_no_other(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    def of(broker: int, partition: int) -> Bounds:
        return Bounds(
            cluster="A", broker=broker, topic="A.t", partition=partition, leader=broker == 1,
            alive=True,
            log_start=0, high_watermark=5, high_watermark_from="sampled",
        )  # fmt: skip

    writer = RunWriter(tmp_path / "run", run())
    writer.write_bounds("1-end", [replace(of(1, 0), **wrong), of(2, 0), of(1, 1), of(2, 1)])
    writer.close("finished")
    found, damage = RunReader(tmp_path / "run").bounds("1-end")
    assert found == [of(1, 1), of(2, 1)]
    assert [d.path for d in damage] == ["captures/1-end/bounds.json"]
    assert damage[0].reason.startswith("entry 1 (of A A.t 0): ")


def with_document(root: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A run directory whose run.json is changed."""
    RunWriter(root / "run", run()).close("finished")
    path = root / "run" / "run.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return root / "run"


def test_a_run_of_an_older_version_had_its_partitions_in_the_scenario(tmp_path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        del document["scenario"]["topics"]
        document["scenario"]["partitions"] = 3

    assert RunReader(with_document(tmp_path, older)).run.scenario.topics == TopicSpec()


def test_how_topics_were_made_is_kept(tmp_path: Path) -> None:
    topics = TopicSpec(partitions=3, replicas=1, config={"cleanup.policy": "compact"})
    written = replace(run(), scenario=replace(run().scenario, topics=topics))
    RunWriter(tmp_path / "run", written).close("finished")
    assert RunReader(tmp_path / "run").run.scenario.topics == topics


@pytest.mark.parametrize("part", ["operations", "polls"])
def test_rows_claim_no_more_records_than_the_logs_allow(tmp_path: Path, part: str) -> None:
    """A hundred bytes may claim 2^24 records: no array is made of them."""
    writer = RunWriter(tmp_path / "run", run())
    rows = getattr(writer, part)("A")
    for number in range(500):
        rows.write(
            replace(sent(count=1 << 24), number=number)
            if part == "operations"
            else fetched(0, 0, 1 << 24)
        )
    writer.close("finished")
    damage = [
        row
        for batch in history_rows(tmp_path / "run", part)
        for row in batch["damage"].to_pylist()
        if row is not None
    ]
    assert {d["path"] for d in damage} == {part}
    assert "its rows claim more than 4194304 records" in damage[-1]["reason"]


def test_text_that_is_not_utf_8_in_an_unknown_field_is_refused(tmp_path: Path) -> None:
    folder = with_document(tmp_path, lambda document: document.update(unknown="text"))
    content = (folder / "run.json").read_bytes()
    (folder / "run.json").write_bytes(content.replace(b'"text"', b'"\xff"'))
    with pytest.raises(InputError, match=r"run\.json cannot be read \(.*UTF-8"):
        RunReader(folder)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"progress_within": 1e308}, "progress_within"),
        ({"progress_within": -1}, "progress_within"),
        ({"duration": 10**30}, "duration"),
        ({"seed": 10**400}, r"run\.json has a number of 1329 bits, which no run has"),
        (
            {"workloads": [{"kind": "readers", "home": "A"}] * 1000},
            "has 1000 workloads, and no run has more than 256",
        ),
        (
            {"topology": {"clusters": [{"name": "A"}] * 10_000, "links": []}},
            "has 10000 clusters, and no run has more than 256",
        ),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_scenario_with_what_no_run_has_is_refused(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    folder = with_document(tmp_path, lambda document: document["scenario"].update(wrong))
    with pytest.raises(InputError, match=said):
        RunReader(folder)


def test_the_keys_of_producers_take_no_memory(tmp_path: Path) -> None:
    workload = WorkloadSpec(kind="transactional", home="A", options={"keys": 10**15})
    made = run()
    made = replace(made, scenario=replace(made.scenario, workloads=(workload,)))
    RunWriter(tmp_path / "run", made).close("finished")
    with pytest.raises(InputError, match="keys = 1000000000000000 of a workload transactional"):
        plan(tmp_path / "run")


# The manifest of a run directory: a file that differs from it is damage, and is not read.


Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story(spec(1, shape="failover")).write(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def manifested(made: Path, tmp_path: Path) -> Path:
    copied = shutil.copytree(made, tmp_path / "run")
    seal(copied, digests=True)
    return copied


def segment_in(manifested: Path) -> Path:
    return next(
        p for p in sorted(manifested.glob("captures/*/B/*/A.*/*.log")) if p.stat().st_size > 200
    )


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replaced(by: Callable[[Path], object]) -> Change:
    def replace(path: Path) -> None:
        path.unlink()
        by(path)

    return replace


CHANGES: dict[str, Change] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "emptied": lambda path: path.write_bytes(b""),
    "extended": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one bit": flip,
    "removed": Path.unlink,
    "a FIFO": replaced(os.mkfifo),
    "a directory": replaced(Path.mkdir),
    "a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": replaced(lambda path: path.symlink_to(path)),
    "a link to another": replaced(
        lambda path: path.symlink_to(next(p for p in path.parents[2].rglob("*.log") if p != path))
    ),
}
FILES: dict[str, Callable[[Path], Path]] = {
    "segment": segment_in,
    "bounds": lambda manifested: next(manifested.glob("captures/*/bounds.json")),
    "events": lambda manifested: manifested / "events.jsonl",
    "polls": lambda manifested: next(manifested.glob("polls/*.jsonl")),
}


def of_a_capture(name: str) -> bool:
    return name.startswith("captures/")


def damaged(manifested: Path) -> list[str]:
    return [damage.path for damage in RunReader(manifested).damage()]


def test_files_as_they_were_are_no_damage(manifested: Path) -> None:
    assert not damaged(manifested)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_damage_and_is_not_read(manifested: Path, change: str, file: str) -> None:
    path = FILES[file](manifested)
    CHANGES[change](path)
    reader = RunReader(manifested)
    name = str(path.relative_to(manifested))
    assert [d.path for d in reader.damage()] == [name]
    moment = next(iter(reader.moments()), "") if "captures" not in name else name.split("/")[1]
    if file == "segment":
        assert path not in [p for b in reader.bounds(moment)[0] for p in reader.segments(moment, b)]
    elif file == "bounds":
        assert not reader.bounds(moment)[0]
    else:
        assert not (reader.events()[0] if file == "events" else [*reader.each(Poll, [])])


@pytest.mark.parametrize(
    "name", ["polls/again.jsonl", "operations/again.jsonl", "captures/{}/B/1/{}/{:020}.log"]
)
def test_a_file_that_was_not_there_is_damage_and_is_not_read(manifested: Path, name: str) -> None:
    there = segment_in(manifested).relative_to(manifested).parts
    added = manifested / name.format(there[1], there[4], 7)
    like = segment_in(manifested) if added.suffix == ".log" else next(added.parent.glob("*.jsonl"))
    added.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(like, added)
    reader = RunReader(manifested)
    assert damaged(manifested) == [str(added.relative_to(manifested))]
    assert not any(
        added in reader.segments(m, b) for m in reader.moments() for b in reader.bounds(m)[0]
    )


def test_of_logs_that_are_not_there_a_thousand_are_looked_at(manifested: Path) -> None:
    path = FILES["bounds"](manifested)
    there = json.loads(path.read_bytes())
    made_up = [{**there[0], "topic": "A.absent", "partition": n} for n in range(5000)]
    path.write_text(json.dumps([*made_up, *there]))
    seal(manifested)
    found, damage = RunReader(manifested).bounds(path.parent.name)
    assert len(found) == 1000 + len(there)
    assert "it lists 5000 logs that are not there; 1000 are looked at" in damage[0].reason


def test_a_file_of_holes_is_damage_and_is_not_read_to_its_end(manifested: Path) -> None:
    path = FILES["polls"](manifested)
    os.truncate(path, 1 << 40)  # a terabyte, of which nothing is on the disk
    recorded = json.loads((manifested / MANIFEST).read_bytes())
    recorded[str(path.relative_to(manifested))]["bytes"] = 1 << 40
    (manifested / MANIFEST).write_text(json.dumps(recorded))
    (damage,) = RunReader(manifested).damage()
    assert "is larger than a segment, and has holes" in damage.reason


@pytest.mark.parametrize("change", ["missing", "torn"])
def test_without_a_manifest_no_file_is_said_to_be_new(manifested: Path, change: str) -> None:
    path = manifested / MANIFEST
    path.write_text("{") if change == "torn" else path.unlink()
    reasons = {reader.reason for reader in RunReader(manifested).events()[1]}
    (reason,) = reasons
    assert "nothing says what it had when the run ended: manifest.json cannot be read" in reason


def test_two_segments_that_were_exchanged_are_both_damage(manifested: Path) -> None:
    one = segment_in(manifested)
    other = next(
        p for p in manifested.glob("captures/*/A/*/A.*/*.log") if content(p) != content(one)
    )
    content_of_one = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content_of_one)
    assert sorted(damaged(manifested)) == sorted(
        str(path.relative_to(manifested)) for path in (one, other)
    )


@pytest.mark.parametrize("left", [-1, 7, None])
@pytest.mark.parametrize("of", ["segment", "captures"])
def test_a_file_whose_digest_is_gone_is_damage_and_is_not_read(
    manifested: Path, left: int | None, of: str
) -> None:
    path, manifest = segment_in(manifested), manifested / MANIFEST
    recorded = msgspec.json.decode(manifest.read_bytes())
    gone = (
        [str(path.relative_to(manifested))]
        if of == "segment"
        else [*filter(of_a_capture, recorded)]
    )
    kept = {name: was for name, was in recorded.items() if name not in gone}
    left_of = {} if left is None else dict.fromkeys(gone, left)
    manifest.write_bytes(msgspec.json.encode(kept | left_of))
    reader = RunReader(manifested)
    assert sorted(damaged(manifested)) == sorted(gone)
    assert path not in [
        p for m in reader.moments() for b in reader.bounds(m)[0] for p in reader.segments(m, b)
    ]


def test_a_link_is_damage_whatever_it_leads_to(manifested: Path, tmp_path: Path) -> None:
    path = segment_in(manifested)
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert damaged(manifested) == [str(path.relative_to(manifested))]


@pytest.mark.parametrize("digests", [True, False])
def test_a_torn_manifest_is_damage_by_itself(manifested: Path, digests: bool) -> None:
    seal(manifested, digests=digests)
    path = manifested / MANIFEST
    path.write_bytes(path.read_bytes()[:-10])
    assert damaged(manifested) == [MANIFEST]
    path.unlink()
    assert damaged(manifested) == [MANIFEST]
    os.mkfifo(path)
    assert damaged(manifested) == [MANIFEST]


def test_directories_of_older_versions_have_no_digests(manifested: Path) -> None:
    seal(manifested)
    flip(segment_in(manifested))
    assert not damaged(manifested)
    segment_in(manifested).unlink()
    assert RunReader(manifested).damage() == [
        Damage(path=damaged(manifested)[0], reason="missing: it was there when the run ended")
    ]


def test_a_run_that_was_recorded_with_digests_has_them(manifested: Path) -> None:
    recorded = msgspec.json.decode((manifested / MANIFEST).read_bytes())
    assert RunReader(manifested).has_digests
    (manifested / MANIFEST).write_bytes(msgspec.json.encode(dict.fromkeys(recorded, -1)))
    assert {*damaged(manifested)} == {*recorded}
    path = manifested / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"digests": true', b'"digests": false'))
    assert (damaged(manifested), RunReader(manifested).has_digests) == ([], False)
    (manifested / MANIFEST).write_bytes(b"{}")
    assert damaged(manifested) == [MANIFEST]


def test_finished_captures_of_a_killed_run_have_digests(manifested: Path) -> None:
    listed = msgspec.json.decode((manifested / MANIFEST).read_bytes())
    captured = {name: was for name, was in listed.items() if name.startswith("captures/")}
    (manifested / MANIFEST).write_bytes(msgspec.json.encode(captured))
    assert damaged(manifested) == [MANIFEST], "it ended, and its manifest does not have all"
    path = manifested / "run.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    segment = segment_in(manifested)
    flip(segment)
    assert damaged(manifested) == ["run.json", str(segment.relative_to(manifested))]


# Columns of numbers as text: they are read back unchanged, and numbers that rise by one cost
# almost nothing.


LOWEST, HIGHEST = -(2**63), 2**63 - 1


def crossed(data: dict[str, object]) -> dict[str, object]:
    return unpacked(json.loads(json.dumps(packed(data))))


@given(st.lists(st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, -1, 0, HIGHEST]))))
def test_a_column_comes_back(numbers: list[int]) -> None:
    column = crossed({"of": np.array(numbers, np.int64)})["of"]
    assert isinstance(column, np.ndarray)
    assert column.dtype == np.int64
    assert column.tolist() == numbers


def test_other_values_are_unchanged() -> None:
    data: dict[str, object] = {
        "list": [1, 2],
        "object": {"int64": "x", "more": 1},
        "word": "int64",
        "nothing": None,
        "numbers": {},
    }
    assert crossed(data) == data


def test_a_value_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        packed({"of": np.array([0.5])})


def test_the_size_of_columns() -> None:
    """10,000 numbers: of a log with markers, of four producers in turn, and of no order at all."""
    n = np.arange(10_000)
    offsets, uids = n // 10 * 11 + n % 10, (n // 10 % 4 << 40) + n // 40 * 10 + n % 10
    anything = np.random.default_rng(1).integers(LOWEST, HIGHEST, len(n))

    def each(column: np.ndarray) -> float:
        return len(json.dumps(packed({"of": column}))) / len(column)

    assert each(offsets) < 0.2
    assert each(uids) < 0.3
    assert each(anything) < 11


# The Parquet files of a verdict: every anomaly and everything examined, also if there is none.


def examined(partition: int, count: int) -> FindingRow:
    return FindingRow(
        run="r", topic="A.t", partition=partition, check="duplicate", finding="examined",
        cluster="B", origin="mirrored",
        count=count, offset=7, data={"generation": 1},
    )  # fmt: skip


def test_parquet_has_every_anomaly_and_examined_row(tmp_path: Path) -> None:
    anomalies = [
        Anomaly(
            check="duplicate", kind="duplicate", cluster="B", topic="A.t", partition=0, offset=n,
            evidence={"uid": n, "why": ["a"]}, allowed=n == 0,
        )
        for n in range(100)
    ]  # fmt: skip
    other = FindingRow(
        run="r",
        topic="A.t",
        partition=0,
        check="duplicate",
        finding="unjudged",
        data={"reason": "because"},
    )
    parquet.write(tmp_path, anomalies, [examined(0, 3), other, examined(1, 4)], run=str(tmp_path))
    found = pq.read_table(tmp_path / parquet.FINDINGS_FILE).to_pylist()
    assert [row["offset"] for row in found] == list(range(100))
    assert [row["allowed"] for row in found].count(True) == 1
    assert json.loads(found[5]["evidence"]) == {"uid": 5, "why": ["a"]}
    counted = pq.read_table(tmp_path / parquet.EXAMINED_FILE).to_pylist()
    assert [
        (r["partition"], r["count"], r["era"], r["generation"], r["origin"]) for r in counted
    ] == [
        (0, 3, 7, 1, "mirrored"),
        (1, 4, 7, 1, "mirrored"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        parquet.FINDINGS_FILE,
        parquet.EXAMINED_FILE,
    }


def test_without_anomalies_the_columns_are_there(tmp_path: Path) -> None:
    parquet.write(tmp_path, [], [], run=str(tmp_path))
    assert pq.read_schema(tmp_path / parquet.FINDINGS_FILE).equals(parquet.FOUND)
    assert pq.read_schema(tmp_path / parquet.EXAMINED_FILE).equals(parquet.EXAMINED)


@pytest.mark.parametrize(
    ("size", "free", "left"),
    [
        (1 << 20, 300 << 10, 44 << 10),
        (1 << 30, 100 << 20, (100 << 20) - (1 << 30) // 50),
        (1 << 40, 1 << 30, (1 << 30) - (256 << 20)),
        (1 << 40, 200 << 20, -(56 << 20)),
        (0, 0, float("inf")),
    ],
    ids=["small disk", "a fiftieth", "large disk", "large disk, nearly full", "unknown"],
)
def test_room_leaves_some_of_the_disk_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, free: int, left: float
) -> None:
    disk = SimpleNamespace(
        f_bfree=free >> 10, f_bavail=free >> 10, f_frsize=1 << 10, f_blocks=size >> 10
    )
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    assert room(tmp_path) == left
