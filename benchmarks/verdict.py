"""The CPU time of a verdict, compared with an older commit.

    python benchmarks/verdict.py [--rounds N] [--baseline CHECKOUT] [RUNDIR …]

It measures CPU seconds (user and system, of the whole process tree: command line, JVM, Python
workers) of `linkflap verify` on one run directory, and on ten in one call. The baseline is the same
command of commit 0ba4e2f4, from a git worktree that this program makes, or from a given checkout,
in the same Python. The run directories are copies of the given ones; if none is given, a link-flap
is recorded first. Rounds are interleaved and medians compared. Exits 1 if one directory costs more
than with the baseline, if ten cost more than twice one, or if the verdict differs from the
baseline's.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from measuring import BASELINE, HERE, checkout, spent, verdict_of

MOST, MOST_OF_TEN, MANY = 1.0, 2.0, 10


def copies(runs: Sequence[Path], number: int, folder: Path) -> list[str]:
    """`number` copies of the run directories, in rotation."""
    folder.mkdir()
    made = []
    for index, run in enumerate(islice(cycle(runs), number)):
        made.append(str(shutil.copytree(run, folder / f"{index}-{run.name}")))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUNDIR", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--baseline",
        type=Path,
        help=f"a checkout of {BASELINE}, instead of a worktree made for this",
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, checkout(asked.baseline) as before:
        folder = Path(temporary)
        if not asked.runs:
            record = "run link-flap --seed 7 --runtime process --no-verify --out"
            spent(before, *record.split(), str(folder / "run"))
        runs = [run.absolute() for run in asked.runs] or [folder / "run"]
        sets = {
            name: copies(runs, number, folder / name)
            for name, number in (("before", 1), ("now", 1), ("ten", MANY))
        }
        spent(HERE, "verify", *sets["now"])  # the first use creates the class archive
        seconds: dict[str, list[float]] = {name: [] for name in sets}
        for number in range(asked.rounds):
            for name, sources in (("before", before), ("now", HERE), ("ten", HERE)):
                seconds[name].append(spent(sources, "verify", *sets[name])[1])
            print(
                f"round {number + 1}: "
                + ", ".join(f"{name} {s[-1]:.1f}" for name, s in seconds.items()),
                flush=True,
            )
        same = verdict_of(Path(sets["before"][0])) == verdict_of(Path(sets["now"][0]))
    medians = {name: statistics.median(s) for name, s in seconds.items()}
    one, ten = medians["now"] / medians["before"], medians["ten"] / medians["now"]
    print(
        f"\nCPU seconds of a verdict: {medians['now']:.1f}; of {BASELINE}: {medians['before']:.1f};"
        f" of ten: {medians['ten']:.1f}"
    )
    print(
        f"ratio to {BASELINE}: {one:.2f} (target {MOST}); ten to one: {ten:.2f} (target "
        f"{MOST_OF_TEN})"
    )
    print(f"the verdict is {'the same' if same else 'ANOTHER'}")
    sys.exit(one > MOST or ten > MOST_OF_TEN or not same)


if __name__ == "__main__":
    main()
