"""Folders that are no run directory, or have no readable run.json: wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.harness.model import errors
from linkflap.harness.model.errors import InputError
from linkflap.harness.rundir import RunReader
from tests import run_copy

pytestmark = pytest.mark.spark


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("linkflap")
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"\xff\xfe", b'{"format": 1}', b'{"format": 99}', b"[]"]
)
def test_without_a_readable_run_json_it_is_wrong_input(
    recorded: Path, tmp_path: Path, content: bytes | None
) -> None:
    run = run_copy.copy(recorded, tmp_path / "run")
    (run.root / "run.json").unlink()
    if content is not None:
        (run.root / "run.json").write_bytes(content)
    with pytest.raises(InputError, match=r"run\.json|format") as raised:
        RunReader(run.root)
    assert "\n" not in str(raised.value)


def test_the_command_says_in_one_sentence_that_it_is_no_run(tmp_path: Path) -> None:
    done = command("verify", tmp_path, "--json")
    assert done.returncode == errors.WRONG_INPUT
    assert done.stderr.count("\n") == 1
    assert "run.json" in done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["exit_code"]) == (None, errors.WRONG_INPUT)
    assert document["error"] in done.stderr
