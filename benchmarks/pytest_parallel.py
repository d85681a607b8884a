"""The cost of eight judged runs in a session of `pytest -n 4`, compared with an older commit.

    python benchmarks/pytest_parallel.py [--times N] [--baseline CHECKOUT] [--workers N]

It measures wall seconds, CPU seconds (user and system, of the whole process tree), the number of
Spark JVMs, and the verdicts. The runs are link-flap with the shadow mirror and with MirrorMaker 2,
baseline, planned-failover, round-trip, mirror-crash, failover-open-transactions and
producer-id-collision. The baseline is the same tests on commit 0ba4e2f4, from a git worktree that
this program makes, or from a given checkout, in the same Python. Sessions are interleaved and
medians compared; the load average is printed too. Exits 1 if a session takes more wall or CPU
seconds than the baseline's, if there is more than one Spark JVM, or if a run is unknown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from measuring import BASELINE, HERE, CpuTime, checkout

from linkflap.harness.model.wait import until

EVERY = 0.05
SPARK = "org.apache.spark.deploy.SparkSubmit"
SERVICE = "linkflap.judging.service"
RUNS = (
    '"link-flap"',
    '"link-flap", mirror="mm2"',
    '"baseline"',
    '"planned-failover"',
    '"round-trip"',
    '"mirror-crash"',
    '"failover-open-transactions"',
    '"producer-id-collision"',
)
TEST = """
@pytest.mark.linkflap({marker}, seed=7)
def test_{number}(linkflap_run):
    path = pathlib.Path(__file__).with_name("{number}.json")
    result = {{"run": {marker!r}, "verdict": str(linkflap_run.verdict), "why": linkflap_run.why}}
    path.write_text(json.dumps(result))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The cost of one session of pytest, and how many of its runs had each verdict; `failed` are
    the runs without a verdict."""

    seconds: float
    cpu: float
    sparks: int
    verdicts: Counter[str]
    failed: int
    why: tuple[str, ...]

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(self.verdicts.items()))
        broken = f", {self.failed} without a verdict" if self.failed else ""
        return (
            f"{self.seconds:.0f} s, {self.cpu:.0f} CPU s, {self.sparks} Spark JVMs; "
            f"{verdicts}{broken}"
        )


class Used(CpuTime):
    """CPU seconds of every descendant process, and which of them were Spark's JVMs."""

    def __init__(self) -> None:
        super().__init__()
        self.sparks: set[tuple[int, float]] = set()

    def look(self) -> list[psutil.Process]:
        running = super().look()
        for process in running:
            with contextlib.suppress(psutil.Error):
                identity = process.pid, process.create_time()
                if (
                    identity not in self.sparks
                    and SPARK in process.cmdline()
                    and not forked_by_spark(process)
                ):
                    self.sparks.add(identity)
        return running

    def end(self) -> None:
        """Ends the verifier service, which would wait for other sessions. The other processes end
        by themselves, and are counted."""
        for process in self.look():
            with contextlib.suppress(psutil.Error):
                if SERVICE in process.cmdline():
                    process.terminate()
        until(lambda: not self.look(), within=120, every=EVERY, what="all processes to end")


def forked_by_spark(process: psutil.Process) -> bool:
    """Whether this process was forked by Spark's JVM and has not executed its program yet: until
    then, it has the JVM's command line."""
    parent = process.parent()
    return parent is not None and SPARK in parent.cmdline()


def session(sources: Path, workers: int) -> Session:
    """Runs the eight tests with the sources of a checkout."""
    # A separate ledger, so that no verifier service of an earlier session is used.
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile("w+") as out:
        folder = Path(temporary)
        tests = [TEST.format(marker=marker, number=number) for number, marker in enumerate(RUNS)]
        (folder / "test_eight.py").write_text("import json, pathlib, pytest\n" + "".join(tests))
        (folder / "pytest.ini").write_text("[pytest]\n")
        environment = os.environ | {
            "PYTHONPATH": str(sources),
            "LINKFLAP_RUNTIME_DIR": str(folder / "ledger"),
        }
        # the plugin of these sources, not the installed one
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        plugin = "linkflap.pytest_plugin" if (sources / "linkflap").is_dir() else "linkflap_pytest"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "xdist.plugin",
            "-p",
            plugin,
            "-n",
            str(workers),
        ]
        command += ["--basetemp", str(folder / "runs"), str(folder / "test_eight.py")]
        began, used = time.time(), Used()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, cwd=folder
        )
        used.wait(child)
        seconds = time.time() - began
        used.end()
        results = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
        if not results:
            out.seek(0)
            sys.exit(f"{sources}: pytest ended with {child.returncode}:\n{out.read()[-3000:]}")
    why = tuple(f"{each['run']}: {each['why']}" for each in results if each["verdict"] == "unknown")
    return Session(
        seconds=seconds, cpu=used.seconds, sparks=len(used.sparks),
        verdicts=Counter(each["verdict"] for each in results),
        failed=len(RUNS) - len(results), why=why,
    )  # fmt: skip


def row(sessions: Sequence[Session]) -> tuple[float, float]:
    """Medians of wall and CPU seconds."""
    return statistics.median(s.seconds for s in sessions), statistics.median(
        s.cpu for s in sessions
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--baseline",
        type=Path,
        help=f"a checkout of {BASELINE}, instead of a worktree made for this",
    )
    parser.add_argument("--no-baseline", action="store_true", help="only now: no ratio")
    asked = parser.parse_args()
    now: list[Session] = []
    before: list[Session] = []
    with contextlib.ExitStack() as stack:
        old = None if asked.no_baseline else stack.enter_context(checkout(asked.baseline))
        for number in range(asked.times):
            for name, sources, sessions in (("now", HERE, now), (BASELINE, old, before)):
                if sources is not None:
                    sessions.append(session(sources, asked.workers))
                    print(
                        f"{number + 1} {name}: {sessions[-1]}; load average "
                        f"{os.getloadavg()[0]:.0f}",
                        flush=True,
                    )
                    for why in sessions[-1].why:
                        print(f"   {why}", flush=True)
    wall, cpu = row(now)
    sparks, unknown = max(s.sparks for s in now), sum(s.verdicts["unknown"] + s.failed for s in now)
    print(
        f"\nnow: {wall:.0f} s, {cpu:.0f} CPU s, {sparks} Spark JVMs, {unknown} of "
        f"{len(now) * len(RUNS)} runs unknown"
    )
    more = False
    if before:
        was = row(before)
        more = wall > was[0] or cpu > was[1]
        print(
            f"{BASELINE}: {was[0]:.0f} s, {was[1]:.0f} CPU s; ratios {wall / was[0]:.2f} and "
            f"{cpu / was[1]:.2f}"
        )
    sys.exit(more or sparks > 1 or unknown > 0)


if __name__ == "__main__":
    main()
