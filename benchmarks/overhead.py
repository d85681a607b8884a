"""The overhead of a link-flap run outside its fault windows, by phase, compared with recording and
judging in two commands.

    python benchmarks/overhead.py [rounds]

The overhead is the time of `linkflap run link-flap`, from the start of the process to its exit,
minus the union of its fault windows (a flap of 3 s, a slow link of 3 s, the failover). Baseline
*one after the other*: `linkflap run --no-verify`, then `linkflap verify`. There, Spark starts after
the clusters have ended, and not while they boot. The seed is the same, rounds are interleaved, and
medians are compared. Exits 1 if the run costs more than the baseline, or is not valid. The aim is a
total of 25 s on 2 cores.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from linkflap.harness.model.events import Event, FaultEnd, FaultStart, Phase, of_kind
from linkflap.harness.rundir import RunReader

AIM = 25.0
SEED = "1279"


def linkflap(*arguments: str) -> float:
    """Runs the command line in a child process, and returns its seconds. Ends this program if the
    verdict is not valid."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "linkflap", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"linkflap {' '.join(arguments)} ended with "
            f"{done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return time.monotonic() - began


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


def main(rounds: int) -> None:
    together: dict[str, list[float]] = defaultdict(list)
    apart: list[float] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as temporary:
            one, two = Path(temporary) / "one", Path(temporary) / "two"
            common = ("run", "link-flap", "--seed", SEED, "--runtime", "process")
            for name, seconds in breakdown(one, linkflap(*common, "--out", str(one))).items():
                together[name].append(seconds)
            wall = linkflap(*common, "--no-verify", "--out", str(two)) + linkflap(
                "verify", str(two)
            )
            apart.append(sum(breakdown(two, wall).values()))
        print(
            f"round {number + 1}: {sum(s[-1] for s in together.values()):.1f} s, one after the "
            f"other {apart[-1]:.1f} s",
            flush=True,
        )
    medians = {name: statistics.median(values) for name, values in together.items()}
    whole = sum(medians.values())
    print("\nseconds outside the fault windows, medians:")
    for name, seconds in medians.items():
        print(f"  {name:30} {seconds:6.1f}")
    print(f"  {'whole':30} {whole:6.1f}   (aim: {AIM:g})")
    ratio = whole / statistics.median(apart)
    print(f"ratio to one after the other ({statistics.median(apart):.1f} s): {ratio:.2f}")
    sys.exit(ratio > 1.0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
