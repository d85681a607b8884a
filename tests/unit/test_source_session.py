"""Spark's JVM: it dies with the process, and if it cannot start, one sentence says so."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from linkflap.harness.model.wait import until
from linkflap.spark_verify.spark import session

OPENS = """
import sys
from linkflap.spark_verify.spark import session
session.warm().result()
print(session._jvm.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_killed_harness_leaves_no_jvm_and_nothing_that_it_wrote(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"} | {
        "TMPDIR": str(tmp_path)
    }
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as harness:
        assert harness.stdout is not None
        jvm = psutil.Process(int(harness.stdout.readline()))
        assert jvm.is_running()
        workers = jvm.children(recursive=True)
        assert len(workers) >= 2, "the process that workers are forked from, and a worker"
        assert jvm.nice() == psutil.Process(harness.pid).nice(), (
            "on a busy machine a verdict would wait for everybody else"
        )
        (folder,) = tmp_path.glob("linkflap-spark-*")
        assert list(folder.glob("blockmgr-*"))
        os.kill(harness.pid, signal.SIGKILL)
    until(
        lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE,
        within=60,
        what="the JVM to end",
        state=jvm.status,
    )
    until(
        lambda: not psutil.wait_procs(workers, timeout=0)[1],
        within=60,
        what="its Python workers to end",
    )
    until(
        lambda: not folder.exists(),
        within=60,
        what="its folder to go",
        state=lambda: list(tmp_path.rglob("*")),
    )
    assert [left.name for left in tmp_path.iterdir()] == [f"linkflap-{os.getuid()}"], (
        "the ledger stays"
    )


FAILS = """
import sys
from pathlib import Path
from linkflap.harness.model.errors import SetupError
from linkflap.harness.machine.java import Java
from linkflap.spark_verify.spark import session
session.java_for = lambda kafka: Java(path=Path(sys.argv[1]), major=17)
try:
    session._open_gateway()
except SetupError as error:
    print(error, session._jvm)
"""


def test_a_java_that_fails_is_one_sentence(tmp_path: Path) -> None:
    """In its own process: in this one a session may be open, and there is one JVM per process."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: could not find a thing' >&2\nexit 1\n")
    java.chmod(0o755)
    env = os.environ | {"LINKFLAP_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", FAILS, str(java)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=env,
    )
    assert re.fullmatch(
        r"Spark did not start with .*could not find a thing; set JAVA_HOME.* None\n", done.stdout
    ), done.stdout


def test_the_telling_line_of_a_trace() -> None:
    trace = (
        "Traceback (most recent call last):\n  File x\nlinkflap.harness.model.errors.InputError: no"
        " run.json\n SQLSTATE"
    )
    assert session.cause(trace) == "linkflap.harness.model.errors.InputError: no run.json"
    assert session.cause('Exception in thread "main" java.lang.NoClassDefFoundError: A').endswith(
        "NoClassDefFoundError: A"
    )
    assert session.cause("") == "it printed nothing"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("kill -9 $$", "was killed by SIGKILL"),
        ("exit 3", "ran out of memory"),
        ("exit 1", "died with exit status 1"),
    ],
)
def test_a_dead_jvm_is_reported_as_dead(
    ends: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sh", "-c", ends]) as jvm:
        monkeypatch.setattr(session, "_jvm", jvm)
        assert (
            session.reason_of_failure(Py4JError("An error occurred while calling o228.getResult"))
            == f"Spark's JVM {said}"
        )


def test_the_error_of_a_live_jvm_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        monkeypatch.setattr(session, "_jvm", jvm)
        assert (
            session.reason_of_failure(PySparkException("org.apache.spark.SparkException: no"))
            == "org.apache.spark.SparkException: no"
        )
    monkeypatch.setattr(session, "_jvm", None)
    assert session.reason_of_failure(OSError("gone")) == "gone"
