"""The run directory's disk becomes full during a run: the run ends there with one sentence, and
nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader
from tests.command_line import environment, linkflap

pytestmark = pytest.mark.nightly


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        ledger.mount(folder, size=1 << 20)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted ({error.strerror}); that takes root, on Linux")
    yield folder
    ledger.unmount(folder)


def test_a_full_disk_ends_the_run_and_is_named(tmp_path: Path, small: Path) -> None:
    env = environment(tmp_path / "ledger")
    arguments = ["--out", str(small / "r"), "--duration", "600"]
    ended = linkflap(
        "run",
        "baseline",
        "--runtime",
        "process",
        "--seed",
        "1",
        "--no-verify",
        *arguments,
        env=env,
        cwd=tmp_path,
    )
    assert ended.returncode == 255, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith(f"linkflap: no space left for the run directory {small / 'r'}; "), (
        ended.stderr
    )
    assert "Traceback" not in ended.stderr
    assert "report it" not in ended.stderr
    reader = RunReader(small / "r")
    assert (reader.run.status, reader.run.error) == ("failed", last.removeprefix("linkflap: "))
    nothing_left = list((tmp_path / "ledger").glob("[0-9]*.json"))
    until(
        lambda: not any(path.exists() for path in nothing_left),
        within=60,
        what="the watchdog to have seen its harness end",
    )
