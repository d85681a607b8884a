"""A run directory on a full disk: the record ends at the first write that fails, and the reason is
kept."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from linkflap.harness import rundir
from linkflap.harness.machine import disk_full
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.model.events import Phase
from linkflap.harness.model.history import EventRow, GroupOffset
from linkflap.harness.recording import run_end
from linkflap.harness.rundir import Appender, RunReader, RunWriter
from tests.unit.recorded_run import ROW, run

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
