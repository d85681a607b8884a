"""The real command line in a child process with a ledger of its own, as a user or a CI job runs
it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.model.wait import until
from tests.waiting import eventually

# If a shell starts pytest in the background, SIGINT is ignored, and child processes inherit that.
_LAUNCH = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable,"
    " sys.argv[1:])"
)
_COMMAND = (sys.executable, "-c", _LAUNCH, sys.executable, "-m", "linkflap")


def ledger_of_its_own(folder: Path) -> dict[str, str]:
    """Makes a harness write its leases to `folder`, separate from other harnesses, and lease other
    ports than they. Otherwise invisible leases would collide: while a proxy is cut, its port is
    held by a lease and free to bind."""
    first = 10000 + 500 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return {"LINKFLAP_RUNTIME_DIR": str(folder), "LINKFLAP_PORTS": f"{first}-{first + 499}"}


def use_ledger(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes this process, and those that it starts, a harness with its own ledger."""
    for name, value in ledger_of_its_own(folder).items():
        monkeypatch.setenv(name, value)


def environment(folder: Path, **own: str) -> dict[str, str]:
    """The environment of a command with its own ledger."""
    return {**os.environ, **ledger_of_its_own(folder), **own}


def unprivileged() -> list[str]:
    """A prefix for a command that may write only where its user may. Root may write anywhere,
    unless it has no privileges."""
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []


def linkflap(
    command: str | Sequence[str], *, env: Mapping[str, str], cwd: Path, within: float = 600
) -> subprocess.CompletedProcess[str]:
    """Runs a command, as a user types it or as words, and waits for its end."""
    return ran([*_COMMAND, *_words(command)], env=env, cwd=cwd, within=within)


def _words(command: str | Sequence[str]) -> Sequence[str]:
    return shlex.split(command) if isinstance(command, str) else command


def ran(
    command: Sequence[str | bytes | Path],
    *,
    within: float = 600,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs any program to its end; its output as text."""
    return subprocess.run(
        command,
        env=env,
        cwd=cwd,
        input=input,
        capture_output=True,
        text=True,
        timeout=within,
        check=check,
    )


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(slots=True)
class Running:
    """A running command: its output on stderr so far, and every descendant process seen so far."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    seen: set[psutil.Process] = field(default_factory=set)
    _reader: threading.Thread | None = None

    def read(self) -> None:
        def lines() -> None:
            assert self.process.stderr
            for line in self.process.stderr:
                self.said.append(line)

        self._reader = threading.Thread(target=lines, daemon=True)
        self._reader.start()

    def says(self, text: str, *, within: float = 300) -> None:
        """Waits until standard error has a line with `text` in it."""
        until(
            lambda: (
                any(text in line for line in list(self.said)) or self.process.poll() is not None
            ),
            within=within,
            what=f"the command to say {text!r}",
            state=lambda: self.said[-5:],
        )
        assert any(text in line for line in list(self.said)), self.said

    def look(self) -> None:
        """Notes every descendant process."""
        self.seen |= set(psutil.Process(self.process.pid).children(recursive=True))

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Sends a signal to the process, as `kill` does, or to its process group, as a terminal
        does."""
        (os.killpg if to_group else os.kill)(self.process.pid, number)

    def ends(self, *, within: float = 180) -> int:
        """Waits for its exit status."""
        status = self.process.wait(within)
        if self._reader:
            self._reader.join(within)
        return status

    def close(self) -> None:
        """Kills it."""
        self.process.kill()
        self.ends()
        if self.process.stderr:
            self.process.stderr.close()

    def alive(self) -> list[psutil.Process]:
        """The noted processes that are still alive."""
        return [process for process in self.seen if alive(process)]

    def leaves_nothing(self) -> None:
        """Waits until the noted processes are gone, and what they leased is given back."""
        eventually(
            "every process below the command to be gone",
            lambda: not self.alive(),
            state=self.alive,
        )
        eventually(
            "its ports and children to be given back",
            lambda: not ledger.entries(),
            state=ledger.entries,
        )


def start(command: str | Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Running:
    """Starts a command, as a user types it or as words, in a new session."""
    process = subprocess.Popen(
        [*_COMMAND, *_words(command)],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running = Running(process)
    running.read()
    return running


@contextmanager
def harness(program: str, stderr: int | None = None) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process that runs `program`, in a session of its own, and the JSON document that it printed
    as its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    try:
        yield process, json.loads(cast(IO[str], process.stdout).readline())
    finally:
        process.kill()
        process.communicate()


def kill_watchdog(of: int) -> None:
    """Kills the watchdog of a harness, by the harness's process id."""
    for child in psutil.Process(of).children(recursive=True):
        if "linkflap.harness.machine.cleanup" in child.cmdline():
            child.kill()
