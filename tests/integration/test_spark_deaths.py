"""Spark that never starts, dies, is stopped or has no memory, and its service: never a wrong
verdict, and one sentence tells why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.wheels import JAVA
from linkflap.harness.model import errors
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify import verify
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Check, Finding
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verify import VERDICT_FILE
from tests.command_line import environment, linkflap, ran
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.synthetic import write_run
from tests.waiting import eventually

HEAVY = """
from linkflap.cli import commands
from linkflap.spark_verify import verify
from linkflap.spark_verify.checks.base import Check, Found

def kernel(view):
    weight = {"weight": "x" * 300_000_000}
    return [Found(kind="heavy", cluster="A", offset=n, evidence=weight) for n in range(3)]

nothing = {"guarantee": "", "source": "", "inputs": frozenset(), "anomalies": ()}
heavy = Check(name="duplicate", kernel=kernel, **nothing)
verify.REGISTRY = {**verify.REGISTRY, "duplicate": heavy}
commands.main()
"""


@pytest.fixture
def closed() -> Iterator[int]:
    """A port without a listener, reserved."""
    lease = Lease()
    yield lease.ports(1)[0]
    lease.release()


def error_of(tmp_path: Path, master: str) -> str:
    run = write_run(tmp_path / "run")
    env = environment(tmp_path / "ledger")
    done = linkflap(f"verify {run} --master {master}", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (errors.FAILED, ""), done.stderr
    assert not (run / VERDICT_FILE).exists()
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_master_that_is_not_there_is_one_sentence_and_there_was_no_verdict(
    tmp_path: Path, closed: int
) -> None:
    said = error_of(tmp_path, f"spark://127.0.0.1:{closed}")
    assert said.startswith(f"linkflap: no Spark master answers at spark://127.0.0.1:{closed} (")
    assert said.endswith("omit --master to use local[2]")


def test_address_without_a_master_is_one_sentence_without_a_verdict(tmp_path: Path) -> None:
    assert error_of(tmp_path, "7077").startswith(
        "linkflap: '7077' is no Spark master; give spark://HOST:7077"
    )


def greedy(view: PartitionView) -> list[Finding]:
    return [] if view.partition else [bytearray(1 << 60)]  # type: ignore[list-item]


@pytest.mark.spark
def test_a_check_that_runs_out_of_memory_is_unknown_and_hides_no_other(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    check = Check(
        name="duplicate", guarantee="", source="", inputs=frozenset(), anomalies=(), kernel=greedy
    )
    monkeypatch.setattr(verify, "REGISTRY", {**REGISTRY, "duplicate": check})
    seen = []
    (judgement,) = verify.verify([run], spark=spark, tell=lambda *done: seen.append(done))
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    results = {c.name: c for c in judgement.checks}
    assert results["duplicate"].verdict is Verdict.UNKNOWN
    assert "crashed on A.t-0: MemoryError" in results["duplicate"].reason
    assert results["replica-agreement"].verdict is Verdict.VALID
    assert all(0 <= count <= total for _, count, total in seen)


def assert_unknown(done: subprocess.CompletedProcess[str], run: Path) -> None:
    assert done.returncode == errors.UNKNOWN, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "unknown"
    assert "Spark failed during the checks" in document["reason"]
    assert json.loads((run / VERDICT_FILE).read_bytes()) == document


@pytest.mark.nightly
@pytest.mark.spark
def test_when_spark_runs_out_of_memory_during_the_checks_the_verdict_is_unknown(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run")
    words = f"verify {run} --json --spark spark.driver.memory=600m"
    done = ran(
        [sys.executable, "-c", HEAVY, *words.split()],
        within=900,
        cwd=Path(__file__).parents[2],
    )
    assert_unknown(done, run)


# A process of Spark that somebody stopped is named and not waited for without end. Each test
# has a process of its own: the Spark of the other tests must live on.


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
until(lambda: process.status() == psutil.STATUS_STOPPED, within=60, what="the JVM to stop")
if goes_on:
    threading.Timer(3, os.kill, (pid, signal.SIGCONT)).start()
(judgement,) = verify([run])
print(json.dumps([pid, psutil.pid_exists(pid), judgement.verdict, str(judgement.judged.checks)]))
"""


def judged(run: Path, jvm: str) -> tuple[int, bool, str, str, str]:
    """The JVM's process id, whether it lives on, the verdict, the checks, and what was logged."""
    done = ran([sys.executable, "-c", STOPPED, str(run), jvm], within=180, check=True)
    pid, lives, verdict, checks = json.loads(done.stdout.splitlines()[-1])
    return pid, lives, verdict, checks, done.stderr


@pytest.mark.spark
def test_a_stopped_jvm_is_named_and_ended(tmp_path: Path) -> None:
    run = story(spec(8)).write(tmp_path / "run")
    pid, lives, verdict, checks, logged = judged(run, "stays stopped")
    assert (lives, verdict) == (False, "unknown")
    assert f"process {pid} was stopped for 3 s" in checks
    assert f"kill -CONT {pid}" in logged


@pytest.mark.spark
@pytest.mark.nightly
def test_a_jvm_that_goes_on_in_time_gives_the_verdict(tmp_path: Path) -> None:
    run = story(spec(8)).write(tmp_path / "run")
    assert judged(run, "goes on")[2] == "valid"


# `linkflap verify` if Spark does not start, or dies: never valid, and one sentence tells why.


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
    done = ran(
        [Path(sys.executable).with_name("linkflap"), "verify", run, "--json"], env=kept | without
    )
    assert done.returncode == errors.FAILED, done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["exit_code"]) == (None, errors.FAILED)
    assert document["error"] in done.stderr
    *before, sentence = done.stderr.splitlines()
    assert [line for line in before if " phase judging " not in line] == before[1:]
    compiled, fetched = (line.partition("note  ")[2] for line in before[1:])
    assert compiled.startswith("first use: the code that reads logs is compiled")
    assert fetched == f"first use: fetching Java with pip ({JAVA})"
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
    done = ran(
        [sys.executable, "-c", PROGRAM.format(victim=victim), "verify", run, "--json"],
        cwd=Path(__file__).parents[2],
    )
    assert_unknown(done, run)


# The verifier service with a real Spark: it ends with its last client, and if it is killed no
# verdict is lost.


USER = """
import signal, sys
from pathlib import Path
from linkflap.judging import verifier
verifier.share()
verifier._user.connect()
print("connected", flush=True)
sys.stdin.readline()
print(verifier.judge(Path(sys.argv[1])).document.verdict, flush=True)
verifier.close()
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    made = environment(tmp_path / "ledger")
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", made["LINKFLAP_RUNTIME_DIR"])
    return made


@pytest.fixture
def user(tmp_path: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that connects to or starts the service, and judges when it gets a line."""
    run = write_run(tmp_path / "run")
    program = subprocess.Popen(
        [sys.executable, "-c", USER, str(run)],
        env=env, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert program.stdout
    assert program.stdout.readline() == "connected\n"
    yield program
    program.kill()
    program.communicate()


def serving() -> ledger.OwnerEntry:
    (entry,) = [each for each in ledger.entries() if each.serves]
    return entry


def gone(entry: ledger.OwnerEntry) -> bool:
    folders = [Path(folder) for folder in entry.folders]
    return not any(map(process_identity.alive, (entry.owner, *entry.children))) and not any(
        f.exists() for f in folders
    )


@pytest.mark.spark
def test_service_is_private_and_ends_when_its_last_user_is_killed(
    user: subprocess.Popen[str],
) -> None:
    eventually("Spark's JVM to be started", lambda: serving().children)
    entry = serving()
    (path,) = entry.serves.values()
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    os.kill(user.pid, signal.SIGKILL)
    eventually(
        "the service, its JVM and its folders to be gone",
        lambda: gone(entry) and not ledger.entries(),
    )
    assert cleanup.clean().removed == []


@pytest.mark.spark
@pytest.mark.nightly
def test_users_of_a_killed_service_judge_by_themselves(user: subprocess.Popen[str]) -> None:
    eventually("Spark's JVM to be started", lambda: serving().children)
    entry = serving()
    os.kill(entry.owner.pid, signal.SIGKILL)
    eventually("its JVM and its folders to be gone", lambda: gone(entry))
    out, _ = user.communicate("\n", timeout=600)
    assert out in ("valid\n", "unknown\n", "invalid\n")
    assert ledger.entries() == []


@pytest.mark.spark
@pytest.mark.nightly
def test_service_gives_the_verdict_of_an_own_spark(
    user: subprocess.Popen[str], tmp_path: Path, env: dict[str, str]
) -> None:
    out, _ = user.communicate("\n", timeout=600)
    said = (tmp_path / "run" / "verdict.json").read_bytes()
    (tmp_path / "run" / "verdict.json").unlink()
    own = ran(
        [sys.executable, "-c", USER, str(tmp_path / "run")],
        env={**env, "LINKFLAP_VERIFIER": "own"},
        cwd=Path(__file__).parents[2],
        input="\n",
        check=True,
    )
    assert own.stdout == f"connected\n{out}"
    assert (tmp_path / "run" / "verdict.json").read_bytes() == said
