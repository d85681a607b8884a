"""A run directory on a full disk: the record ends at the first write that fails, and the reason is
kept.

Impossible rows of a run directory are reported and left out.
"""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from linkflap.harness import rundir
from linkflap.harness.machine import disk_full
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
from linkflap.harness.rundir import Appender, RunReader, RunWriter
from linkflap.recording import run_end
from linkflap.spark_verify.read.pieces import history_rows
from linkflap.spark_verify.read.plan import plan
from tests.events import append_row
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
    broken = disk_full.Breakage(tmp_path)
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
    (tmp_path / "run.json.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        rundir.write_whole(tmp_path / "run.json", b"x")
    assert list(tmp_path.iterdir()) == []


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


def test_a_run_of_an_older_version_had_its_partitions_in_the_scenario(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", run()).close("finished")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    del document["scenario"]["topics"]
    document["scenario"]["partitions"] = 3
    path.write_text(json.dumps(document))
    assert RunReader(tmp_path / "run").run.scenario.topics == TopicSpec()


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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"progress_within": 1e308}, "progress_within"),
        ({"progress_within": -1}, "progress_within"),
        ({"duration": 10**30}, "duration"),
    ],
)
def test_times_that_no_scenario_has_are_refused(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    RunWriter(tmp_path / "run", run()).close("finished")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    document["scenario"] |= wrong
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=said):
        RunReader(tmp_path / "run")


@pytest.mark.parametrize(("what", "many"), [("clusters", 10_000), ("workloads", 1000)])
def test_more_parts_than_any_run_has_are_refused(tmp_path: Path, what: str, many: int) -> None:
    RunWriter(tmp_path / "run", run()).close("finished")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    holder = document["scenario"] if what == "workloads" else document["scenario"]["topology"]
    first = {"kind": "readers", "home": "A"} if what == "workloads" else holder[what][0]
    holder[what] = [first] * many
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"has {many} {what}, and no run has more than 256"):
        RunReader(tmp_path / "run")


def test_the_keys_of_producers_take_no_memory(tmp_path: Path) -> None:
    workload = WorkloadSpec(kind="transactional", home="A", options={"keys": 10**15})
    made = run()
    made = replace(made, scenario=replace(made.scenario, workloads=(workload,)))
    RunWriter(tmp_path / "run", made).close("finished")
    with pytest.raises(InputError, match="keys = 1000000000000000 of a workload transactional"):
        plan(tmp_path / "run")
