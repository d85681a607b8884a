"""The user's programs: the process group is killed as a whole, and their environment is never
logged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import HIDDEN, Foreign, program, redacted
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.wait import until

PARENT = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
{then}
"""


def foreign(tmp_path: Path, **secrets: str) -> Foreign:
    return Foreign(
        name="the program", folder=tmp_path, log=tmp_path / "output.log", secrets=secrets
    )


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def started(tmp_path: Path, then: str) -> tuple[Child, int]:
    """A program that starts a child; returns the child's pid too."""
    note = tmp_path / "pid"
    child = foreign(tmp_path).start([sys.executable, "-c", PARENT.format(then=then), str(note)])
    until(
        lambda: note.exists() and note.read_text(), within=60, what="the program to start another"
    )
    return child, int(note.read_text())


def test_a_killed_programs_children_are_killed(tmp_path: Path) -> None:
    child, grandchild = started(tmp_path, "child.wait()")
    foreign(tmp_path).kill(child)
    assert gone(grandchild)
    assert child.group() == frozenset()


def test_a_program_that_ends_leaves_no_children(tmp_path: Path) -> None:
    child, grandchild = started(tmp_path, "sys.exit(7)")
    assert until(child.end_group, within=60, what="the program to end") == 7
    until(lambda: gone(grandchild), within=60, what="what it left to die")


def test_the_exit_of_a_program_killed_by_a_signal_names_it(tmp_path: Path) -> None:
    child = foreign(tmp_path).start(
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    )
    assert until(child.end_group, within=60, what="the program to end") == -signal.SIGKILL


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
        "signal.pause(); signal.pause()"
    )
    mine = foreign(tmp_path)
    child = mine.start([sys.executable, "-c", code])
    until(lambda: "up" in mine.last_words(), within=60, what="the program to start")
    assert not mine.end(child, within=0.3)
    assert child.group() == frozenset()


def test_a_stopped_one_can_be_ended(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    child = mine.start(
        [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
    )
    until(lambda: "up" in mine.last_words(), within=60, what="the program to start")
    child.pause()
    assert child.paused
    assert mine.end(child, within=60)


def test_a_program_that_stops_itself_can_be_killed(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    child = mine.start(
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
    )
    until(lambda: child.any_suspended, within=60, what="the program to stop itself")
    assert not child.paused
    mine.kill(child)
    assert not child.any_suspended


def test_when_the_harness_dies_the_whole_group_does(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    harness = f"""
import sys
from pathlib import Path
from linkflap.harness.machine.user_programs import Foreign
from linkflap.harness.model.wait import until
folder, note = Path({str(tmp_path)!r}), Path({str(note)!r})
mine = Foreign(name="it", folder=folder, log=folder / "output.log")
mine.start([sys.executable, "-c", {PARENT.format(then="child.wait()")!r}, {str(note)!r}])
until(lambda: note.exists() and note.read_text(), within=60, what="it")
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "LINKFLAP_RUNTIME_DIR": str(tmp_path / "ledger")}
    done = subprocess.run(
        [sys.executable, "-c", harness], env=environment, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    until(lambda: gone(int(note.read_text())), within=60, what="the program's own child to die")


def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    mine = foreign(tmp_path)
    assert (
        mine.run([sys.executable, "-c", "print('first')"], what="ask", within=60).output
        == "first\n"
    )
    ran = mine.run(
        [sys.executable, "-c", "import sys; print('second'); sys.exit(3)"], what="ask", within=60
    )
    assert (ran.status, ran.output) == (3, "second\n")


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="ask of the program to end"):
        foreign(tmp_path).run(
            [sys.executable, "-c", "import signal; signal.pause()"], what="ask", within=0.5
        )


def test_values_that_the_user_gave_are_in_no_log(tmp_path: Path) -> None:
    mine = foreign(tmp_path, TOKEN="a-secret-value", SHORT="1")
    ran = mine.run(
        [sys.executable, "-c", "import os; print(os.environ['TOKEN'], 1)"], what="ask", within=60
    )
    assert "a-secret-value" not in ran.output
    assert "a-secret-value" not in mine.log.read_text()
    assert "a-secret-value" not in mine.last_words()
    assert mine.log.read_text().rstrip().endswith(" 1"), "a value that short is no secret"
    assert redacted("see a-secret-value", ["a-secret-value"]) == f"see {HIDDEN}"


def test_programs_are_paths_from_the_folder_or_names_in_the_path(tmp_path: Path) -> None:
    script = tmp_path / "mine.sh"
    script.write_text("#!/bin/sh\n")
    assert program("./mine.sh", tmp_path) is None, "it cannot be executed"
    script.chmod(0o755)
    assert program("./mine.sh", tmp_path) == str(script)
    assert program("mine.sh", tmp_path) is None, "the folder is not in PATH"
    assert program("sh", tmp_path)
    with pytest.raises(SetupError, match=r"no program 'mine\.sh'"):
        foreign(tmp_path).start(["mine.sh"])
