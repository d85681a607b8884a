"""`linkflap verify` with several directories: each is judged, whatever the others are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.synthetic import write_run

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_one_bad_directory_spoils_no_other(tmp_path):
    good, bad = write_run(tmp_path / "good"), tmp_path / "bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"format": 1, "status": "nobody knows"}')
    command = [sys.executable, "-m", "linkflap", "verify", "--json", str(bad), str(good)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 254, done.stderr
    assert json.loads(done.stdout)["run"] == str(good)
    assert f"{bad}/run.json cannot be read" in done.stderr
    assert (good / "verdict.json").exists()
