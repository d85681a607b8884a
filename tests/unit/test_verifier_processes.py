"""The verifier service and its clients, over a real socket; and where a verdict is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.cli.verify import _outs, _without_out
from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader
from linkflap.judging import messages, page, verifier
from linkflap.judging.messages import Failed, Hello, JudgedRun, Lines
from linkflap.judging.service import VerifierService
from linkflap.judging.verifier import ServiceFailure, User, VerifierAnswer
from linkflap.report import table
from linkflap.report.document import read
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import keep
from tests.command_line import ran, unprivileged
from tests.unit.recorded_run import Recorded
from tests.unit.recorded_verdict import document

KEY = "0" * 16
_DIES = """
import os, signal, socket, sys
user = socket.socket(socket.AF_UNIX)
user.connect(sys.argv[1])
user.recv(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def ledger_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "ledger"))
    # What this worker's other tests hold in this process (Spark's JVM) is not in an entry of this
    # folder.
    monkeypatch.setattr(ledger, "_own", None)
    monkeypatch.setattr(messages, "key", lambda: KEY)


def valid(folders: Sequence[Path]) -> list[JudgedRun]:
    found = Anomaly(check="c", kind="k", evidence={"folder": "x", "numbers": [1, 2.5, None]})
    return [
        JudgedRun(
            document=Document(verdict=Verdict.VALID, run=str(f)), anomalies=(found,), left_out=()
        )
        for f in folders
    ]


Verdicts = Callable[[Sequence[Path]], Sequence[JudgedRun | Failed]]


class Served:
    """A service in a thread; `over` is the reason why it ended."""

    def __init__(self, folder: Path, verdicts: Verdicts, lingers: float, key: str) -> None:
        self.listener = messages.listen(folder / "socket")
        hello = Hello(key=key, pid=os.getpid(), log=str(folder / "log"))
        self.service = VerifierService(self.listener, hello, verdicts, lingers=lingers)
        self.over = ""
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        self.over = self.service.serve()

    def ends(self) -> str:
        self.thread.join(60)
        return self.over


@contextmanager
def serving(
    folder: Path, verdicts: Verdicts = valid, *, lingers: float = 3600.0, key: str = KEY
) -> Iterator[Served]:
    folder.mkdir(parents=True, exist_ok=True)
    served = Served(folder, verdicts, lingers, key)
    ledger.add_service(KEY, folder / "socket")
    try:
        yield served
    finally:
        ledger.remove_service(KEY)
        served.service.end("the test is over")
        served.ends()
        served.listener.close()


def test_a_user_gets_the_document_and_every_anomaly(tmp_path: Path) -> None:
    with serving(tmp_path / "service") as served:
        user = User()
        answer = user.judge(tmp_path / "run")
        assert answer == valid([tmp_path / "run"])[0]
        user.close()
        user.close()
        assert not served.over


def test_service_is_found_if_its_socket_path_is_longer_than_a_socket_address(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / ("long" * 30)) as served:
        user = User()
        assert user.connect().pid == os.getpid()
        user.close()
        assert not served.over


def test_waiting_folders_are_judged_as_one_batch_each_once(tmp_path: Path) -> None:
    batches, first, go = [], threading.Event(), threading.Event()

    def verdicts(folders: Sequence[Path]) -> list[JudgedRun]:
        batches.append([f.name for f in folders])
        first.set()
        assert go.wait(60)
        return valid(folders)

    users, answers = [User() for _ in range(4)], {}

    def ask(number: int, name: str) -> None:
        answers[number] = users[number].judge(tmp_path / name).document.run

    with serving(tmp_path / "service", verdicts) as served:
        threads = [threading.Thread(target=ask, args=(0, "a"))]
        threads[0].start()
        assert first.wait(60)
        threads += [
            threading.Thread(target=ask, args=(n, name))
            for n, name in ((1, "b"), (2, "c"), (3, "b"))
        ]
        connections = [user.connect() for user in users[1:]]
        assert len(connections) == 3
        for thread in threads[1:]:
            thread.start()
        until(lambda: served.service.waiting == 3, within=60, what="all others to wait")
        go.set()
        for thread in threads:
            thread.join(60)
        for user in users:
            user.close()
    assert [sorted(batch) for batch in batches] == [["a"], ["b", "c"]]
    assert answers == {n: str(tmp_path / name) for n, name in enumerate("abcb")}


def test_service_exits_some_time_after_its_last_user_and_at_once_if_that_user_was_killed(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "good", lingers=0.1) as served:
        user = User()
        user.connect()
        user.close()
        assert served.ends() == "nobody used it for 0.1 s"
    with serving(tmp_path / "killed") as served:
        dies = subprocess.run(
            [sys.executable, "-c", _DIES, str(tmp_path / "killed" / "socket")],
            check=False,
            timeout=60,
        )
        assert dies.returncode == -9
        assert served.ends() == "its last user was killed"


def test_a_verifier_that_raises_says_so_to_those_whose_turn_it_was_and_goes_on(
    tmp_path: Path,
) -> None:
    broken = [True]

    def verdicts(folders: Sequence[Path]) -> list[JudgedRun]:
        if broken.pop() if broken else False:
            raise RuntimeError("a bug")
        return valid(folders)

    with serving(tmp_path / "service", verdicts):
        user = User()
        with pytest.raises(
            ServiceFailure, match=r"the verifier failed \(RuntimeError: a bug\); its log is .*log"
        ):
            user.judge(tmp_path / "run")
        assert user.judge(tmp_path / "run").document.verdict is Verdict.VALID
        user.close()


def test_refusal_of_a_directory_is_raised_as_input_error(
    tmp_path: Path,
) -> None:
    refused = Failed(kind="InputError", sentence="x is no run directory")
    with serving(tmp_path / "service", lambda folders: [refused for _ in folders]):
        user = User()
        with pytest.raises(InputError, match=r"^x is no run directory$"):
            user.judge(tmp_path / "run")
        user.close()


def test_service_that_dies_during_a_job_is_reported_and_the_run_is_still_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = messages.listen(tmp_path / "socket")

    def serve() -> None:
        connection, _ = listener.accept()
        lines = Lines(connection)
        lines.send(Hello(key=KEY, pid=7, log="/its/log"))
        lines.next()
        lines.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ledger.add_service(KEY, tmp_path / "socket")
    alone = cast(VerifierAnswer, object())
    monkeypatch.setattr(verifier, "_alone", {tmp_path / "run": alone}.__getitem__)
    monkeypatch.setattr(verifier, "_user", User())
    monkeypatch.setenv(verifier.VARIABLE, "shared")
    try:
        assert verifier.judge(tmp_path / "run") is alone
    finally:
        ledger.remove_service(KEY)
        thread.join(60)
        listener.close()
    assert caplog.messages == [
        f"the verifier service (process 7) ended; its log is /its/log; {tmp_path / 'run'} is judged"
        " by a Spark of this process"
    ]


def test_service_with_another_key_or_a_dead_one_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def spawn(log: Path) -> None:
        started.append(log)
        raise OSError("no")

    monkeypatch.setattr(verifier, "_spawn", spawn)
    with (
        serving(tmp_path / "service", key="another"),
        pytest.raises(ServiceFailure, match="takes a connection"),
    ):
        User().connect()
    dead = (
        'from linkflap.harness.machine import ledger; ledger.add_service("'
        + KEY
        + '", ledger.Path("/nowhere"))'
    )
    subprocess.run(
        [sys.executable, "-c", dead],
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert [each.serves for each in ledger.entries()] == [{KEY: "/nowhere"}]
    assert ledger.service(KEY) is None
    with pytest.raises(ServiceFailure, match=r"did not start \(no\); its log is"):
        User().connect()
    assert len(started) == 1


def test_environment_chooses_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(verifier.VARIABLE, "somebody")
    with pytest.raises(
        InputError, match="LINKFLAP_VERIFIER is 'somebody'; set it to own or shared"
    ):
        verifier.warm()


def test_other_sources_and_another_java_have_another_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    source = tmp_path / "linkflap" / "x.py"
    source.parent.mkdir()
    source.write_text("1")
    monkeypatch.setattr(messages, "INSTALLED", tmp_path)
    keys = [messages.key(), messages.key()]
    assert keys[0] == keys[1]
    source.write_text("11")
    keys.append(messages.key())
    monkeypatch.setenv("JAVA_HOME", "/another")
    keys.append(messages.key())
    assert len(set(keys)) == 3


# Where a verdict is written: into the run directory, another folder (`verify --out`), or only
# printed; it is never lost.


_KEEPS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_verifier_processes import judgement
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
        done = ran(command, within=300, cwd=here.parents[1])
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
