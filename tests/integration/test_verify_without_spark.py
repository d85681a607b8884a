"""`linkflap verify` if Spark does not start, or dies: never valid, and one sentence tells why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.harness.machine.wheels import JAVA
from linkflap.harness.model import errors
from linkflap.spark_verify.verify import VERDICT_FILE
from tests.synthetic import write_run

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from linkflap.cli import commands
from linkflap.spark_verify.spark import session
from linkflap.spark_verify import verify
from linkflap.spark_verify.checks.base import Check

session.session()
jvm = session._jvm.pid

def kernel(view):
    os.kill({victim}, signal.SIGKILL)
    return []

nothing = {{"guarantee": "", "source": "", "inputs": frozenset(), "anomalies": ()}}
killer = Check(name="duplicate", kernel=kernel, **nothing)
verify.REGISTRY = {{**verify.REGISTRY, "duplicate": killer}}
commands.main()
"""


def test_without_java_it_is_one_sentence_and_there_was_no_verdict(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PATH") and "PIP" not in name
    }
    # pip has no registry: nothing listens on the discard port.
    without = {
        "PATH": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("linkflap"), "verify", run, "--json"],
        env=kept | without,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == errors.FAILED, done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["exit_code"]) == (None, errors.FAILED)
    assert document["error"] in done.stderr
    *before, sentence = done.stderr.splitlines()
    assert [line for line in before if " phase judging " not in line] == before[1:]
    assert [line.partition("note  ")[2] for line in before[1:]] == [
        f"first use: fetching Java with pip ({JAVA})"
    ]
    assert sentence.startswith("linkflap: no Java was found")
    assert not (run / VERDICT_FILE).exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("jvm", id="the JVM"),
        pytest.param("os.getpid()", id="a Python worker", marks=pytest.mark.nightly),
    ],
)
def test_when_spark_is_killed_during_the_checks_the_verdict_is_unknown(
    tmp_path: Path, victim: str
) -> None:
    run = write_run(tmp_path / "run")
    (run / VERDICT_FILE).write_text('{"verdict": "valid"}')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(victim=victim), "verify", run, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == errors.UNKNOWN, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert "Spark failed during the checks" in document["reason"]
    assert json.loads((run / VERDICT_FILE).read_bytes()) == document
