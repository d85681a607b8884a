"""The verifier service with a real Spark: it ends with its last client, and if it is killed no
verdict is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.model.wait import until
from tests.command_line import environment
from tests.synthetic import write_run

pytestmark = pytest.mark.spark
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


def test_it_is_the_users_alone_and_ends_when_its_last_user_is_killed(
    user: subprocess.Popen[str],
) -> None:
    until(lambda: serving().children, within=120, what="Spark's JVM to be started")
    entry = serving()
    (path,) = entry.serves.values()
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    os.kill(user.pid, signal.SIGKILL)
    until(
        lambda: gone(entry) and not ledger.entries(),
        within=120,
        what="the service, its JVM and its folders to be gone",
    )
    assert cleanup.clean().removed == []


@pytest.mark.nightly
def test_when_it_is_killed_its_users_judge_by_themselves(user: subprocess.Popen[str]) -> None:
    until(lambda: serving().children, within=120, what="Spark's JVM to be started")
    entry = serving()
    os.kill(entry.owner.pid, signal.SIGKILL)
    until(lambda: gone(entry), within=120, what="its JVM and its folders to be gone")
    out, _ = user.communicate("\n", timeout=600)
    assert out in ("valid\n", "unknown\n", "invalid\n")
    assert ledger.entries() == []


@pytest.mark.nightly
def test_what_one_says_is_what_a_spark_of_ones_own_says(
    user: subprocess.Popen[str], tmp_path: Path, env: dict[str, str]
) -> None:
    out, _ = user.communicate("\n", timeout=600)
    said = (tmp_path / "run" / "verdict.json").read_bytes()
    (tmp_path / "run" / "verdict.json").unlink()
    own = subprocess.run(
        [sys.executable, "-c", USER, str(tmp_path / "run")],
        env={**env, "LINKFLAP_VERIFIER": "own"}, cwd=Path(__file__).parents[2], input="\n",
        capture_output=True, text=True,
        timeout=600, check=True,
    )  # fmt: skip
    assert own.stdout == f"connected\n{out}"
    assert (tmp_path / "run" / "verdict.json").read_bytes() == said
