"""clock-skew: its options, where it is generated, what is refused without its library, and how a
clock is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos import schedule
from linkflap.chaos.faults.brokers import ClockSkew, clock_of, near
from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.runtimes import faketime


def spec(**options: Option) -> FaultSpec:
    return FaultSpec(id="f", fault="clock-skew", target="A/1", at=0, duration=0, options=options)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "libfaketimeMT.so.1"
    made.touch()
    monkeypatch.setenv(faketime.VARIABLE, str(made))
    return made


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the library."""
    monkeypatch.delenv(faketime.VARIABLE, raising=False)
    monkeypatch.setattr(faketime, "_FOLDERS", (tmp_path,))


class Broker:
    """A broker that answers nobody, and records what is done to it."""

    cluster, id, state, pid, client_address = "A", 1, "running", None, "127.0.0.1:1"

    def __init__(self, done: list[str], log: Path) -> None:
        self.done, self.log = done, log

    def stop(self) -> None:
        self.done.append("stop")

    def start(self) -> None:
        self.done.append("start")


def world(done: list[str], log: Path) -> World:
    cluster = SimpleNamespace(name="A", brokers={1: Broker(done, log)}, bootstrap="127.0.0.1:1")
    skew = lambda cluster, broker, seconds: done.append(f"{cluster}/{broker} {seconds:+g}")  # noqa: E731
    return cast(
        World,
        SimpleNamespace(
            deployment=SimpleNamespace(clusters={"A": cluster}, skew_clock=skew), stopping=True
        ),
    )


@pytest.mark.parametrize(
    ("options", "off"),
    [({}, -30), ({"clock": "ahead"}, 30), ({"clock": "ahead", "seconds": 600.0}, 600)],
)
def test_the_broker_is_restarted_with_its_clock_off(
    tmp_path: Path, options: dict[str, Option], off: float
) -> None:
    done: list[str] = []
    made = world(done, tmp_path / "server.log")
    fault = ClockSkew(spec(**options), made)
    fault.take_down(made.deployment.clusters["A"].brokers[1])
    assert done == ["stop", f"A/1 {off:+g}", "start"]


@pytest.mark.parametrize("seconds", [1.0, 3600.0])
def test_seconds_that_are_no_skew_are_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(InputError, match="it must be 2 to 3000"):
        ClockSkew(spec(seconds=seconds), world([], tmp_path / "server.log"))


def test_without_its_library_it_is_refused_before_anything_starts(bare: None) -> None:
    with pytest.raises(InputError, match="apt install libfaketime"):
        schedule.check_runtime([spec()], "process")
    with pytest.raises(InputError, match="apt install libfaketime"):
        GeneratorBounds(faults=("clock-skew",)).check()
    with pytest.raises(InputError, match="run it with --runtime process"):
        schedule.check_runtime([spec()], "docker")


def test_a_library_that_is_named_has_to_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(faketime.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="which is no file"):
        faketime.library()


def test_the_library_is_loaded_into_one_command(library: Path) -> None:
    schedule.check_runtime([spec()], "process")
    before = faketime.command(-30.0)
    assert before[0] == "/usr/bin/env"
    assert {f"LD_PRELOAD={library}", "FAKETIME=-30", "FAKETIME_FORCE_MONOTONIC_FIX=0"} <= set(
        before
    )


def test_what_a_process_shares_with_its_children_is_forgotten_and_that_of_others_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faketime, "_SHARED", tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine, other, gone = (f"faketime_shm_{pid}" for pid in (os.getpid(), os.getppid(), ended.pid))
    for name in (mine, other, gone, f"sem.faketime_sem_{os.getpid()}", "faketime_shm_x"):
        (tmp_path / name).touch()
    faketime.forget(os.getpid())
    assert {path.name for path in tmp_path.iterdir()} == {other, "faketime_shm_x"}


def test_what_is_drawn_goes_to_brokers_that_others_replace_and_only_where_it_is_named(
    library: Path,
) -> None:
    bounds = GeneratorBounds(
        topologies=("A:3->B", "A->B"), faults=("clock-skew", "link-cut"), most=6
    )
    bounds.check()
    drawn = [
        f
        for n in range(60)
        for f in generate(3, n, Coverage(), bounds, guided=False).schedule
        if f.fault == "clock-skew"
    ]
    assert drawn
    assert {f.target for f in drawn} <= {"A/1", "A/2", "A/3"}
    assert "clock-skew" not in GeneratorBounds().allowed


@pytest.mark.parametrize("off", [0.0, -30.0, 600.0])
@pytest.mark.parametrize("separator", ["T", " "])
def test_a_clock_is_read_from_a_log_whose_file_has_the_machines_time(
    tmp_path: Path, off: float, separator: str
) -> None:
    log, at = tmp_path / "server.log", time.time() - 100
    stamp = (
        datetime.fromtimestamp(at + off)
        .isoformat(sep=separator, timespec="milliseconds")
        .replace(".", ",")
    )
    log.write_text(
        f"[2020-01-01T00:00:00,000] INFO first\n[{stamp}] INFO last (K)\n\tat a.stack.Trace\n[no "
        "time] x\n"
    )
    os.utime(log, (at, at))
    found = clock_of(log)
    assert found is not None
    assert abs(found - off) < 0.01
    assert near(found, 30.0) is False
    assert near(found, off) or not off


def test_a_log_without_a_time_proves_nothing(tmp_path: Path) -> None:
    assert clock_of(tmp_path / "server.log") is None
    (tmp_path / "server.log").write_text("words\n[not a time] more\n")
    assert clock_of(tmp_path / "server.log") is None
    assert not near(None, 30.0)
