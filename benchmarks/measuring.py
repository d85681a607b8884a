"""Measures programs for the benchmarks: the peak memory and the CPU seconds of all their processes.
Also a baseline's sources, and sessions of pytest."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

BASELINE = "0ba4e2f4"
"""The commit before the code base was made smaller (issue 34) and suites kept clusters."""
HERE = Path(__file__).parents[1]
_PR_SET_CHILD_SUBREAPER = 36
_EVERY = 0.02


class Memory(threading.Thread):
    """Samples the peak memory of a process and all its descendants, by name, in MiB."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process, self._over = psutil.Process(process), threading.Event()
        self.peak: dict[str, float] = {}

    def run(self) -> None:
        while not self._over.wait(0.1):
            found: dict[str, float] = {}
            try:
                every = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                continue
            for each in every:
                name = "driver" if each == self._process else "workers"
                try:
                    name = "JVM" if each.name() == "java" else name
                except psutil.Error:
                    continue
                found[name] = found.get(name, 0) + _proportional(each.pid)
            found["all"] = sum(found.values())
            self.peak = {
                name: max(size, self.peak.get(name, 0))
                for name, size in (self.peak | found).items()
            }

    def stop(self) -> dict[str, int]:
        self._over.set()
        self.join()
        return {name: round(size) for name, size in self.peak.items()}


def _proportional(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


class CpuTime:
    """CPU seconds (user and system) of every descendant of this process that began after the object
    was made. Also of processes whose parent has died.

    They are sampled. wait(2) is not enough: Spark's daemon ignores the exits of its workers, whose
    CPU time is then never counted.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._began = time.time() - 1 / os.sysconf("SC_CLK_TCK")
        self._used: dict[tuple[int, float], float] = {}

    @property
    def seconds(self) -> float:
        return sum(self._used.values())

    def look(self) -> list[psutil.Process]:
        """Samples the processes; returns those that still run."""
        running = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.create_time() < self._began:  # of the command before
                    continue
                times = process.cpu_times()
                self._used[process.pid, process.create_time()] = times.user + times.system
                if process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
        return running

    def wait(self, child: subprocess.Popen[bytes]) -> None:
        """Samples until this child has ended."""
        while child.poll() is None:
            self.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_EVERY)


@contextlib.contextmanager
def checkout(given: Path | None) -> Iterator[Path]:
    """The baseline's sources: the given checkout, or a temporary worktree."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / BASELINE
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(at), BASELINE], check=True)
        try:
            yield at
        finally:
            subprocess.run([*git, "remove", "--force", str(at)], check=True)


def spent(sources: Path, *arguments: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command of linkflap, all its descendants included, with the sources
    of a checkout. Ends this program if the command ends without a verdict."""
    module = "linkflap.cli" if (sources / "linkflap" / "cli").is_dir() else "linkflap.harness.cli"
    command = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"
    with tempfile.TemporaryFile("w+") as out:
        cpu, began = CpuTime(), time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-c", command, str(sources), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=os.environ | {"PYTHONPATH": str(sources)},  # of child processes started with -m
            cwd=sources,
        )
        cpu.wait(child)
        wall = time.monotonic() - began
        out.seek(0)
        if child.returncode > 2:  # 0 valid, 1 invalid, 2 unknown
            sys.exit(
                f"{sources}: linkflap {' '.join(arguments)} ended with "
                f"{child.returncode}:\n{out.read()[-2000:]}"
            )
    return wall, cpu.seconds


def verdict_of(run: Path) -> str:
    """Only the verdict: an older commit has fewer checks."""
    return str(json.loads((run / "verdict.json").read_bytes())["verdict"])


def pytest_session(folder: Path, words: Sequence[str], *, by: Sequence[str] = ()) -> str:
    """Runs one session of pytest in a folder, without its cache and xdist, under the program `by`
    that measures it. Returns the output on stderr."""
    plain = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        [*by, sys.executable, "-m", "pytest", *plain, *words],
        cwd=folder,
        env=os.environ | {"PYTEST_ADDOPTS": "", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stderr


def of_session(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one session of pytest."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    pytest_session(folder, words)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
