"""The overhead of a link-flap run outside its fault windows, by phase, compared with recording and
judging in two commands, and with an older commit.

    python benchmarks/overhead.py [--rounds N] [--baseline CHECKOUT]

The overhead is the time of `linkflap run link-flap`, from the start of the process to its exit,
minus the union of its fault windows (a flap of 3 s, a slow link of 3 s, the failover). There are
two baselines. *One after the other* is `linkflap run --no-verify`, then `linkflap verify`: there,
Spark starts after the clusters have ended, and not while they boot. The other is the run of commit
0ba4e2f4, from a git worktree that this program makes, or from a given checkout; its CPU seconds are
compared, too. The seed is the same, rounds are interleaved, and medians are compared. Exits 1 if
the run has more overhead than one of both, if it takes over 5 % more CPU seconds than the older
commit's (about what they vary by), or if a run is not valid.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from measuring import BASELINE, HERE, checkout, spent, verdict_of

from linkflap.harness.model.events import Event, FaultEnd, FaultStart, Phase, of_kind
from linkflap.harness.rundir import RunReader

NOW, APART = "now", "one after the other"
MOST_CPU = 1.05
COMMON = ("run", "link-flap", "--seed", "1279", "--runtime", "process")


def windows(events: list[Event]) -> list[tuple[int, int]]:
    """The union of the fault windows, as intervals in nanoseconds."""
    starts = {e.id: e.time for e in of_kind(events, FaultStart)}
    spans = sorted((starts[e.id], e.time) for e in of_kind(events, FaultEnd))
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def breakdown(folder: Path, wall: float) -> dict[str, float]:
    """Seconds of each phase outside the fault windows, including the time before and after the
    recording. Their sum is the overhead."""
    run = RunReader(folder).run
    events, _ = RunReader(folder).events()
    phases = [(e.name, e.time) for e in of_kind(events, Phase)]
    ends = [start for _, start in phases[1:]] + [run.ended]
    spent = {}
    for (name, start), end in zip(phases, ends, strict=True):
        broken = sum(max(0, min(end, b) - max(start, a)) for a, b in windows(events))
        spent[name] = (end - start - broken) / 1e9
    spent["imports, verdict, report"] = wall - (run.ended - run.started) / 1e9
    return spent


def played(name: str, sources: Path, folder: Path) -> tuple[dict[str, float], float]:
    """Seconds of each phase of a run outside its fault windows, and its CPU seconds."""
    if name != APART:
        wall, cpu = spent(sources, *COMMON, "--out", str(folder))
    else:
        wall, cpu = spent(sources, *COMMON, "--no-verify", "--out", str(folder))
        then = spent(sources, "verify", str(folder))
        wall, cpu = wall + then[0], cpu + then[1]
    if (verdict := verdict_of(folder)) != "valid":
        sys.exit(f"the run of {name} is {verdict}")
    return breakdown(folder, wall), cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--baseline",
        type=Path,
        help=f"a checkout of {BASELINE}, instead of a worktree made for this",
    )
    asked = parser.parse_args()
    phases: dict[str, list[float]] = defaultdict(list)
    overhead: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    with checkout(asked.baseline) as before:
        variants = {NOW: HERE, APART: HERE, BASELINE: before}
        for number in range(asked.rounds):
            for name in list(variants) if number % 2 else reversed(variants):
                with tempfile.TemporaryDirectory() as temporary:
                    took, seconds = played(name, variants[name], Path(temporary) / "run")
                overhead[name].append(sum(took.values()))
                cpu[name].append(seconds)
                if name == NOW:
                    for phase, each in took.items():
                        phases[phase].append(each)
            figures = (
                f"{name} {overhead[name][-1]:.1f} s and {cpu[name][-1]:.1f} CPU s"
                for name in variants
            )
            print(f"round {number + 1}: " + ", ".join(figures), flush=True)
    print("\nseconds outside the fault windows, medians:")
    for phase, values in phases.items():
        print(f"  {phase:30} {statistics.median(values):6.1f}")
    met = True
    for name in variants:
        wall = statistics.median(overhead[NOW]) / statistics.median(overhead[name])
        used = statistics.median(cpu[NOW]) / statistics.median(cpu[name])
        met &= wall <= 1 and (name != BASELINE or used <= MOST_CPU)
        print(
            f"{name}: {statistics.median(overhead[name]):.1f} s, "
            f"{statistics.median(cpu[name]):.1f} CPU s; now to that {wall:.2f} and {used:.2f}"
        )
    sys.exit(not met)


if __name__ == "__main__":
    main()
