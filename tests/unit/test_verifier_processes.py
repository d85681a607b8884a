"""The verifier service and its clients, over a real socket and with verdicts that need no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.model.wait import until
from linkflap.judging import messages, shared, verifier
from linkflap.judging.messages import Failed, Hello, JudgedRun, Lines
from linkflap.judging.service import VerifierService
from linkflap.judging.shared import ServiceFailure, User
from linkflap.judging.verifier import VerifierAnswer

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


def test_it_is_found_where_the_path_of_its_socket_is_longer_than_an_address(tmp_path: Path) -> None:
    with serving(tmp_path / ("long" * 30)) as served:
        user = User()
        assert user.connect().pid == os.getpid()
        user.close()
        assert not served.over


def test_what_waits_is_judged_as_one_batch_and_a_folder_once(tmp_path: Path) -> None:
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


def test_it_ends_a_while_after_its_last_user_and_at_once_when_that_one_was_killed(
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


def test_what_a_directory_is_refused_for_is_raised_as_it_is_by_a_spark_of_ones_own(
    tmp_path: Path,
) -> None:
    refused = Failed(kind="InputError", sentence="x is no run directory")
    with serving(tmp_path / "service", lambda folders: [refused for _ in folders]):
        user = User()
        with pytest.raises(InputError, match=r"^x is no run directory$"):
            user.judge(tmp_path / "run")
        user.close()


def test_one_that_ends_in_the_middle_is_a_sentence_and_the_run_is_judged_all_the_same(
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


def test_one_of_another_key_and_one_that_is_dead_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def spawn(log: Path) -> None:
        started.append(log)
        raise OSError("no")

    monkeypatch.setattr(shared, "_spawn", spawn)
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


def test_who_judges_is_said_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
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
