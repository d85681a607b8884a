"""What .ci/run installs where it is missing: a browser and a container engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / ".ci" / "engine"
TOOLS = ("bash", "cat", "kill", "ln", "mktemp", "rm", "setsid", "sleep", "tail", "timeout")
SCRIPT = (
    f'set -euo pipefail; source "{ENGINE}"; trap end_engine EXIT; begin_engine; echo'
    ' "${LINKFLAP_NO_DOCKER:-an engine}"'
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with few programs: no engine answers, and the user appears to be root."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tmp_path / tool).symlink_to(found)
    put(tmp_path, "python3", "exit 1")
    put(tmp_path, "id", "echo 0")
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def begun(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DOCKER_HOST", "LINKFLAP_NO_DOCKER")
    }
    env |= {"PATH": str(machine), "TMPDIR": str(machine), **environment}
    return subprocess.run(
        ["bash", "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert done.returncode == 0, done.stderr
    (loud,) = [line for line in done.stderr.splitlines() if line.startswith("##### NO DOCKER: ")]
    assert reason in loud
    assert "the tests with docker are SKIPPED" in loud
    assert reason in done.stdout


def test_an_engine_that_was_named_and_does_not_answer(machine: Path) -> None:
    refused(
        begun(machine, DOCKER_HOST="tcp://127.0.0.1:1"),
        "nothing answers at DOCKER_HOST=tcp://127.0.0.1:1",
    )


def test_a_user_who_may_not_start_an_engine(machine: Path) -> None:
    put(machine, "id", "echo 1000")
    refused(begun(machine), "only root can start one")


def test_nothing_to_install_one_with(machine: Path) -> None:
    refused(begun(machine), "there is no dockerd and no apt-get")


def test_a_package_that_cannot_be_installed(machine: Path) -> None:
    put(machine, "apt-get", "echo 'E: Unable to locate package docker.io'; exit 100")
    refused(
        begun(machine),
        "apt-get could not install docker.io (E: Unable to locate package docker.io)",
    )


def test_a_kernel_that_refuses(machine: Path) -> None:
    put(machine, "dockerd", "echo 'failed to start daemon: no cgroups'; exit 1")
    refused(begun(machine), "dockerd does not start here (failed to start daemon: no cgroups)")


BROWSER = Path(__file__).parents[2] / ".ci" / "browser"
BROWSER_COMMAND = f'set -euo pipefail; source "{BROWSER}"; install_browser'


def installed(bare_machine: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": str(bare_machine),
        "TMPDIR": str(bare_machine),
    }
    return subprocess.run(
        ["/bin/bash", "-c", BROWSER_COMMAND],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """A PATH with only what the script itself needs."""
    put(tmp_path, "id", "echo 0")
    put(tmp_path, "timeout", 'shift; exec "$@"')
    put(tmp_path, "mktemp", f"echo {tmp_path}/log")
    put(tmp_path, "tail", "echo the last line")
    put(tmp_path, "rm", "exit 0")
    return tmp_path


def test_an_installed_browser_is_used(bare_machine: Path) -> None:
    put(bare_machine, "chromium", "exit 0")
    put(bare_machine, "apt-get", "exit 1")
    done = installed(bare_machine)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_installed(bare_machine: Path) -> None:
    put(bare_machine, "apt-get", f'echo "$@" >> {bare_machine}/asked')
    done = installed(bare_machine)
    assert (done.returncode, done.stderr) == (0, "installing Chromium\n")
    assert "install chromium" in (bare_machine / "asked").read_text()


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("nothing to install it with", "there is no chromium and no apt-get"),
        ("somebody who may not", "only root can install it"),
        ("it cannot be fetched", "apt-get could not install chromium (the last line)"),
    ],
)
def test_without_one_there_is_a_loud_line(bare_machine: Path, lacks: str, reason: str) -> None:
    if lacks != "nothing to install it with":
        put(bare_machine, "apt-get", "exit 100")
    if lacks == "somebody who may not":
        put(bare_machine, "id", "echo 1000")
    done = installed(bare_machine)
    assert done.returncode == 0
    (loud,) = [line for line in done.stderr.splitlines() if line.startswith("##### NO BROWSER: ")]
    assert reason in loud
    assert "the tests of the report will FAIL" in loud
