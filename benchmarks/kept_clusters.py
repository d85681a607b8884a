"""The cost of a suite's runs on clusters that are kept, compared with new clusters for each run,
and with an older commit.

    python benchmarks/kept_clusters.py [--runs N] [--seed N] [--rounds N] [--jobs N]
                                       [--baseline CHECKOUT | --no-baseline] [FAULT ...]

It plays the same runs of `linkflap suite smoke --uniform`, once with `--fresh` and once without,
and measures runs an hour and CPU seconds a run (user and system, judging included). The baseline is
as many runs of commit 0ba4e2f4, from a git worktree that this program makes, or from a given
checkout; its generator draws other runs from the same faults. Suites are interleaved and medians
compared. Exits 1 if a run has another verdict with kept clusters, or if these do not take less CPU
time than new clusters, and than the baseline.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

from measuring import BASELINE, HERE, checkout, spent

from linkflap.suite import rounds
from linkflap.suite.folder import SuiteFolder

NEW, KEPT = "new clusters", "kept clusters"
FAULTS = (
    *("link-cut", "link-latency", "client-kill", "mirror-kill"),
    *("failover-planned", "failover-forced", "mirror-reverse"),
)


def played(sources: Path, folder: Path, given: argparse.Namespace, *options: str) -> list[float]:
    """Plays a suite; returns its wall and CPU seconds."""
    command = (
        *("suite", "smoke", "--uniform", "--jobs", str(given.jobs), "--for", "12h"),
        *("--runs", str(given.runs), "--seed", str(given.seed), "--topologies", "A->B"),
        *("--shrink", "1s", "--replays", "1", "--out", str(folder), *options),
        *(word for fault in given.faults for word in ("--faults", fault)),
    )
    return list(spent(sources, *command))


def verdicts_of(folder: Path) -> dict[int, str]:
    """The verdict of each run of a suite. Prints how many runs had clusters of a run before, and
    why clusters were given up."""
    made = SuiteFolder.open(folder)
    sizes = rounds.sizes(made)
    again = sum(size.round > 1 for size in sizes.values())
    verdicts = Counter(result.verdict for result in made.results)
    print(f"{folder.name}: {dict(verdicts)}; {again} runs on clusters of a run before")
    if unjudged := len(made.results) - verdicts["valid"] - verdicts["invalid"]:
        summary = (folder / "summary.md").read_text()
        sys.exit(f"{unjudged} runs are neither valid nor invalid:\n{summary[:2000]}")
    for run, size in sizes.items():
        if reason := size.ended or size.instead:
            print(f"  run {run}, round {size.round} of its clusters: {reason}")
    return {result.number: result.verdict for result in made.results}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--baseline",
        type=Path,
        help=f"a checkout of {BASELINE}, instead of a worktree made for this",
    )
    parser.add_argument("--no-baseline", action="store_true", help="only now: kept and new")
    parser.add_argument("faults", nargs="*", default=FAULTS, metavar="FAULT")
    given = parser.parse_args()
    took: dict[str, list[list[float]]] = {}
    differ: list[str] = []
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variants = {KEPT: (HERE, ()), NEW: (HERE, ("--fresh",))}
        if not given.no_baseline:
            variants[BASELINE] = stack.enter_context(checkout(given.baseline)), ()
        for number in range(given.rounds):
            verdicts: dict[str, dict[int, str]] = {}
            for name in list(variants) if number % 2 else reversed(variants):
                folder = temporary / f"{name}-{number + 1}".replace(" ", "-")
                sources, options = variants[name]
                took.setdefault(name, []).append(played(sources, folder, given, *options))
                if sources == HERE:
                    verdicts[name] = verdicts_of(folder)
            differ += [
                f"run {run} is {verdicts[KEPT].get(run)} on kept clusters and {verdict} on new ones"
                for run, verdict in verdicts[NEW].items()
                if verdicts[KEPT].get(run) != verdict
            ]
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in took.items()
    }
    met = True
    for name, (wall, cpu) in middle.items():
        print(f"{name}: {given.runs * 3600 / wall:.0f} runs an hour, {cpu / given.runs:.1f} CPU s")
        if name != KEPT:
            less = [kept / other for kept, other in zip(middle[KEPT], (wall, cpu), strict=True)]
            met &= less[1] < 1
            print(f"  kept clusters: {less[0]:.2f} of the time, {less[1]:.2f} of the CPU time")
    print(f"load average {os.getloadavg()[0]:.1f}")
    print("\n".join(differ) or "all verdicts are equal")
    sys.exit(bool(differ) or not met)


if __name__ == "__main__":
    main()
