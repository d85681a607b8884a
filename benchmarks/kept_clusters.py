"""The cost of a suite's runs on clusters that are kept, compared with new clusters for each run.

    python benchmarks/kept_clusters.py [--runs N] [--seed N] [--rounds N] [FAULT ...]

It plays the same runs of `linkflap suite smoke --uniform --jobs 1`, once with `--fresh` and once
without, and measures runs an hour and CPU seconds a run (user and system, judging included).
Suites are interleaved and medians compared. Exits 1 if a run has another verdict with kept
clusters, or if these do not take less CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import CpuTime

from linkflap.suite import rounds
from linkflap.suite.folder import SuiteFolder

NEW, KEPT = "new clusters", "kept clusters"
FAULTS = (
    *("link-cut", "link-latency", "client-kill", "mirror-kill"),
    *("failover-planned", "failover-forced", "mirror-reverse"),
)


def played(folder: Path, given: argparse.Namespace, *options: str) -> tuple[float, float]:
    """Plays a suite; returns its wall and CPU seconds."""
    command = [
        *(sys.executable, "-m", "linkflap", "suite", "smoke", "--uniform", "--jobs", "1"),
        *("--for", "12h", "--runs", str(given.runs), "--seed", str(given.seed)),
        *("--shrink", "1s", "--replays", "1", "--out", str(folder), *options),
        *(word for fault in given.faults for word in ("--faults", fault)),
    ]
    used, began = CpuTime(), time.monotonic()
    with (
        folder.with_suffix(".log").open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as suite,
    ):
        used.wait(suite)
    return time.monotonic() - began, used.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("faults", nargs="*", default=FAULTS, metavar="FAULT")
    given = parser.parse_args()
    took: dict[str, list[tuple[float, float]]] = {NEW: [], KEPT: []}
    differ: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(given.rounds):
            verdicts: dict[str, dict[int, str]] = {}
            for name in (NEW, KEPT) if number % 2 else (KEPT, NEW):
                folder = Path(temporary) / f"{name.split()[0]}-{number}"
                options = ("--fresh",) if name == NEW else ()
                took[name].append(played(folder, given, *options))
                made = SuiteFolder.open(folder)
                verdicts[name] = {result.number: result.verdict for result in made.results}
                sizes = rounds.sizes(made)
                again = sum(size.round > 1 for size in sizes.values())
                print(f"{name}: {again} of {len(made.results)} runs on clusters of a run before")
                for run, size in sizes.items():
                    if reason := size.ended or size.instead:
                        print(f"  run {run}, round {size.round} of its clusters: {reason}")
            differ += [
                f"run {run} is {verdicts[KEPT].get(run)} on kept clusters and {verdict} on new ones"
                for run, verdict in verdicts[NEW].items()
                if verdicts[KEPT].get(run) != verdict
            ]
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in took.items()
    }
    for name, (wall, cpu) in middle.items():
        print(f"{name}: {given.runs * 3600 / wall:.0f} runs an hour, {cpu / given.runs:.1f} CPU s")
    wall, cpu = (kept / new for kept, new in zip(middle[KEPT], middle[NEW], strict=True))
    load = os.getloadavg()[0]
    print(f"ratio {wall:.2f} of the time, {cpu:.2f} of the CPU time; load average {load:.1f}")
    print("\n".join(differ) or "all verdicts are equal")
    sys.exit(bool(differ) or cpu >= 1)


if __name__ == "__main__":
    main()
