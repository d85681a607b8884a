"""The growth of the cost of runs and verdicts with clusters, hops, partitions, records, and runs in
one call.

    python benchmarks/growth.py [--folder DIR] [AXIS[:SIZE,SIZE,…] …]        default: all axes

For each size of an axis, it measures CPU seconds and wall seconds of the command with all its
descendants, and their peak memory (proportional set size). The baseline is the smallest size of the
same axis. Between two sizes, it computes the cost of one more unit in CPU milliseconds, and the
exponent of growth (1 is linear). Target, for axes with verdicts: at the upper end, one more unit
costs at most 1.5 times the CPU time that it costs at the lower end.

clusters            `linkflap run baseline` with one source and 1, 3, 7 destinations; not judged
hops                the same on chains of 1 to 4 links; not judged
partitions          `linkflap verify --logs`: a million records per side, in `size` partitions
records-copied      `linkflap verify --logs`: `size` million records per side, in four partitions
                    (200 MB of disk for each million)
records-recorded    `linkflap verify` of a synthetic recorded run (`recorded`), `size` million
                    records
runs                `linkflap verify` of `size` copies of one recorded baseline in one call
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import string
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mirrored_logs
import recorded
from measuring import HERE, Memory, spent

TARGET = 1.5
_RECORD = ("run", "baseline", "--runtime", "process", "--no-verify", "--seed", "7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of growth and its sizes. `arguments` prepares the inputs of one size in a folder, and
    returns the arguments of `linkflap`."""

    sizes: Sequence[float]
    unit: str
    arguments: Callable[[Path, float], list[str]]
    judged: bool = True


def fan_out(folder: Path, clusters: float) -> list[str]:
    names = string.ascii_uppercase[1 : int(clusters)]
    return [
        *_RECORD,
        "--topology",
        ", ".join(f"A->{name}" for name in names),
        "--out",
        str(folder / "run"),
    ]


def chain(folder: Path, hops: float) -> list[str]:
    return [
        *_RECORD,
        "--topology",
        "->".join(string.ascii_uppercase[: int(hops) + 1]),
        "--out",
        str(folder / "run"),
    ]


def copied(folder: Path, *, records: float, partitions: int) -> list[str]:
    for side in "AB":
        mirrored_logs.write(folder / side, records=int(records), partitions=partitions, side=side)
    logs = [f"--logs={side}={folder / side}" for side in "AB"]
    return ["verify", *logs, "--link", "A->B", "--out", str(folder / "judged")]


def made_up(folder: Path, millions: float) -> list[str]:
    return ["verify", str(recorded.write(folder / "run", int(millions * 1e6), 10))]


def many(folder: Path, runs: float) -> list[str]:
    spent(HERE, *_RECORD, "--out", str(folder / "1"))
    for number in range(2, int(runs) + 1):
        shutil.copytree(folder / "1", folder / str(number))
    return ["verify", *(str(folder / str(number)) for number in range(1, int(runs) + 1))]


AXES: Mapping[str, Axis] = {
    "clusters": Axis(sizes=(2, 4, 8), unit="cluster", arguments=fan_out, judged=False),
    "hops": Axis(sizes=(1, 2, 4), unit="hop", arguments=chain, judged=False),
    "partitions": Axis(
        sizes=(10, 100, 1000),
        unit="partition",
        arguments=lambda folder, n: copied(folder, records=1e6, partitions=int(n)),
    ),
    "records-copied": Axis(
        sizes=(1, 10, 100),
        unit="million records",
        arguments=lambda folder, n: copied(folder, records=n * 1e6, partitions=4),
    ),
    "records-recorded": Axis(sizes=(0.5, 2, 10), unit="million records", arguments=made_up),
    "runs": Axis(sizes=(1, 10, 50), unit="run", arguments=many),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU seconds, wall seconds and memory (MiB) for one size."""

    size: float
    cpu: float
    wall: float
    memory: int


def measured(axis: Axis, size: float, folder: Path) -> Cost:
    """Measures one size. Its inputs are prepared before, and deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="growth-") as own:
        arguments = axis.arguments(Path(own), size)
        watch = Memory(os.getpid())
        watch.start()
        wall, cpu = spent(HERE, *arguments)
        peak = watch.stop()
    # the driver is this program
    return Cost(size=size, cpu=cpu, wall=wall, memory=peak["all"] - peak["driver"])


def shown(name: str, axis: Axis, sizes: Sequence[float], folder: Path) -> bool:
    """Measures and prints an axis. Returns whether its growth meets the target."""
    print(f"\n{name}: load average {os.getloadavg()[0]:.0f}", flush=True)
    costs: list[Cost] = []
    more: list[float] = []
    for size in sizes:
        now = measured(axis, size, folder)
        line = f"| {size:g} | {now.cpu:.1f} s | {now.wall:.1f} s | {now.memory:,} MiB |"
        if costs:
            before = costs[-1]
            more.append((now.cpu - before.cpu) / (size - before.size))
            exponent = math.log(now.cpu / before.cpu) / math.log(size / before.size)
            line += (
                f" {1000 * more[-1]:.3g} ms for each {axis.unit} more | exponent {exponent:.2f} |"
            )
            line += f" {now.cpu / costs[0].cpu:.1f} times the smallest |"
        print(line, flush=True)
        costs.append(now)
    return not axis.judged or len(more) < 2 or more[-1] <= TARGET * more[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("axes", metavar="AXIS[:SIZE,…]", nargs="*", default=list(AXES))
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where there is room for the logs",
    )
    asked = parser.parse_args()
    met = True
    for each in asked.axes:
        name, _, sizes = each.partition(":")
        if name not in AXES:
            parser.error(f"there is no axis {name!r}; known: {', '.join(AXES)}")
        axis = AXES[name]
        met &= shown(
            name,
            axis,
            [float(size) for size in sizes.split(",")] if sizes else axis.sizes,
            asked.folder or Path("/tmp"),
        )
    print("\ntargets met" if met else "\ntargets missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
