"""What CI does without Chromium: one visible line with the reason, status 0, and tests of the
report that fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.test_ci_engine import put

BROWSER = Path(__file__).parents[2] / ".ci" / "browser"
SCRIPT = f'set -euo pipefail; source "{BROWSER}"; install_browser'


def installed(machine: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": str(machine), "TMPDIR": str(machine)}
    return subprocess.run(
        ["/bin/bash", "-c", SCRIPT],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with only what the script itself needs."""
    put(tmp_path, "id", "echo 0")
    put(tmp_path, "timeout", 'shift; exec "$@"')
    put(tmp_path, "mktemp", f"echo {tmp_path}/log")
    put(tmp_path, "tail", "echo the last line")
    put(tmp_path, "rm", "exit 0")
    return tmp_path


def test_an_installed_browser_is_used(machine: Path) -> None:
    put(machine, "chromium", "exit 0")
    put(machine, "apt-get", "exit 1")
    done = installed(machine)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_installed(machine: Path) -> None:
    put(machine, "apt-get", f'echo "$@" >> {machine}/asked')
    done = installed(machine)
    assert (done.returncode, done.stderr) == (0, "installing Chromium\n")
    assert "install chromium" in (machine / "asked").read_text()


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("nothing to install it with", "there is no chromium and no apt-get"),
        ("somebody who may not", "only root can install it"),
        ("it cannot be fetched", "apt-get could not install chromium (the last line)"),
    ],
)
def test_without_one_there_is_a_loud_line(machine: Path, lacks: str, reason: str) -> None:
    if lacks != "nothing to install it with":
        put(machine, "apt-get", "exit 100")
    if lacks == "somebody who may not":
        put(machine, "id", "echo 1000")
    done = installed(machine)
    assert done.returncode == 0
    (loud,) = [line for line in done.stderr.splitlines() if line.startswith("##### NO BROWSER: ")]
    assert reason in loud
    assert "the tests of the report will FAIL" in loud
