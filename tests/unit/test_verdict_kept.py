"""Where a verdict is written: into the run directory, another folder (`verify --out`), or only
printed; it is never lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.cli.verify import _outs, _without_out
from linkflap.harness.model.errors import InputError
from linkflap.harness.rundir import RunReader
from linkflap.judging import page
from linkflap.report import table
from linkflap.report.document import read
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import keep
from tests.command_line import unprivileged
from tests.unit.recorded_run import Recorded
from tests.unit.recorded_verdict import document

_KEEPS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_verdict_kept import judgement
from linkflap.spark_verify.verify import keep
print(keep(judgement(Path(sys.argv[1])), [], Path(sys.argv[1])).kept)
"""


def judgement(folder: Path) -> Judgement:
    return Judgement(folder=folder, judged=read(document(folder, "invalid")), anomalies=[])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "runs" / "run", seconds=1.0).write().close()


def test_the_verdict_on_a_read_only_run_directory_is_shown(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.chmod(0o555)
    here = Path(__file__).parent
    command = [*unprivileged(), sys.executable, "-c", _KEEPS, str(run), str(here)]
    try:
        done = subprocess.run(
            command, cwd=here.parents[1], capture_output=True, text=True, timeout=300, check=False
        )
    finally:
        run.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
    assert not (run / "verdict.json").exists()
    (said,) = page.write(judgement(run))
    assert said.startswith(
        f"{run} cannot be written, so that this verdict is printed and not kept; linkflap verify "
    )
    assert not (run / "report.html").exists()
    table.show(document(run, "invalid"), run, kept=())
    shown = capsys.readouterr().out
    assert "INVALID" in shown
    assert "report.html" not in shown
    assert "linkflap explain" not in shown


def test_with_out_everything_is_written_there_and_explained_from_there(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    kept = keep(judgement(run), [], out)
    assert kept.kept == out
    assert page.write(kept) == []
    assert {path.name for path in out.iterdir()} == {
        "verdict.json",
        "findings.parquet",
        "examined.parquet",
        "report.html",
    }
    assert not (run / "verdict.json").exists()
    table.show(kept.document, run, kept=(out,))
    assert f"linkflap explain {out} 1" in capsys.readouterr().out
    said = CliRunner().invoke(linkflap, ["explain", str(out), "1", "--json"], standalone_mode=False)
    assert said.exception is None
    assert json.loads(said.output)["number"] == 1


def test_the_command_to_run_again_has_no_out() -> None:
    words = ["verify", "--logs", "A=x", "--out", "DIR", "--link", "A->B", "--out=OTHER", "--json"]
    assert _without_out(words) == ["verify", "--logs", "A=x", "--link", "A->B", "--json"]


def test_several_runs_have_a_folder_each(run: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other", tmp_path / "out"
    assert _outs([run], out) == {run: out}
    assert _outs([run, other], out) == {run: out / "run", other: out / "other"}
    assert _outs([run, other], None) == {}
    with pytest.raises(InputError, match="two run directories are called run"):
        _outs([run, tmp_path / "else" / "run"], out)
    with pytest.raises(InputError, match="exists already"):
        _outs([run], tmp_path)


def test_the_error_about_a_folder_of_run_directories_names_them(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=rf"runs is not a run directory: .*; give the one in it: {run}$"
    ):
        RunReader(run.parent)
    newest = Recorded(tmp_path / "runs" / "second", seconds=1.0).write().close()
    with pytest.raises(
        InputError,
        match=rf"give one of the 2 in it, the newest is {newest}, or all: {run.parent}/\*$",
    ):
        RunReader(run.parent)
    with pytest.raises(InputError, match="give the folder that linkflap run named"):
        RunReader(tmp_path)
