"""A suite of a scenario file that starts programs: only where that was allowed, and shown before."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.cli.commands import linkflap as command
from linkflap.harness.cli.suite import _kind
from linkflap.harness.model.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
FILES = (EXAMPLES / "application" / "failover.toml", EXAMPLES / "replicator" / "crash.toml")


@pytest.mark.parametrize("path", FILES, ids=["application", "mirror"])
def test_programs_are_started_only_where_that_is_allowed(tmp_path: Path, path: Path) -> None:
    with pytest.raises(InputError, match=r"starts programs of yours \(python3 .*; let the suite do so with --allow-commands"):
        command.main(["suite", str(path), "--out", str(tmp_path / "suite")], standalone_mode=False)
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("path", "program"), list(zip(FILES, ("payments.py", "copier.py"), strict=True)), ids=["application", "mirror"]
)
def test_a_dry_run_shows_them(capsys: pytest.CaptureFixture[str], path, program) -> None:
    assert command.main(["suite", str(path), "--dry-run"], standalone_mode=False) == 0
    assert f"python3 {program}" in capsys.readouterr().out


def test_what_is_allowed_is_kept_with_full_paths() -> None:
    kind, given = _kind(str(FILES[1]), allow_commands=True)
    assert kind == "own"
    assert str(EXAMPLES / "replicator" / "mirror.toml") in given
    assert str(EXAMPLES / "application") in _kind(str(FILES[0]), allow_commands=True)[1]
