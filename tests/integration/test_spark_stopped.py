"""A process of Spark that somebody stopped is named and not waited for without end. Each test has a
process of its own: the Spark of the other tests must live on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faithful.spec import spec
from tests.faithful.stories import story

pytestmark = pytest.mark.spark

STOPPED = """
import json, os, signal, sys, threading
from pathlib import Path
import psutil
from linkflap.harness.model.wait import until
from linkflap.spark_verify.spark import session
from linkflap.spark_verify.verify import verify

run, goes_on = Path(sys.argv[1]), sys.argv[2] == "goes on"
if not goes_on:
    session.STOPPED_WITHIN = 3.0
session.session()
pid = session._jvm.pid
os.kill(pid, signal.SIGSTOP)
process = psutil.Process(pid)
until(lambda: process.status() == psutil.STATUS_STOPPED, within=10, what="the JVM to stop")
if goes_on:
    threading.Timer(3, os.kill, (pid, signal.SIGCONT)).start()
(judgement,) = verify([run])
print(json.dumps([pid, psutil.pid_exists(pid), judgement.verdict, str(judgement.judged.checks)]))
"""


def judged(run: Path, jvm: str) -> tuple[int, bool, str, str, str]:
    """The JVM's process id, whether it lives on, the verdict, the checks, and what was logged."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(run), jvm],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    pid, lives, verdict, checks = json.loads(done.stdout.splitlines()[-1])
    return pid, lives, verdict, checks, done.stderr


def test_a_stopped_jvm_is_named_and_ended(tmp_path: Path) -> None:
    run = story(spec(8)).write(tmp_path / "run")
    pid, lives, verdict, checks, logged = judged(run, "stays stopped")
    assert (lives, verdict) == (False, "unknown")
    assert f"process {pid} was stopped for 3 s" in checks
    assert f"kill -CONT {pid}" in logged


def test_a_jvm_that_goes_on_in_time_gives_the_verdict(tmp_path: Path) -> None:
    run = story(spec(8)).write(tmp_path / "run")
    assert judged(run, "goes on")[2] == "valid"
