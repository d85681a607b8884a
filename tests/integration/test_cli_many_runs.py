"""`linkflap verify` with several directories: each is judged, whatever the others are, also if it
is read-only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import unprivileged
from tests.synthetic import write_run

pytestmark = pytest.mark.spark


def test_one_bad_directory_spoils_no_other(tmp_path: Path) -> None:
    good, bad = write_run(tmp_path / "good"), tmp_path / "bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"format": 1, "status": "nobody knows"}')
    for path in (good, *good.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)  # as on a read-only file system
    command = [
        sys.executable,
        "-m",
        "linkflap",
        "verify",
        "--json",
        str(bad),
        str(good),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        [*unprivileged(), *command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 254, done.stderr
    assert json.loads(done.stdout)["run"] == str(good)
    assert f"{bad}/run.json cannot be read" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "examined.parquet", "findings.parquet", "report.html", "verdict.json",
    ]  # fmt: skip
    assert not (good / "verdict.json").exists()
