"""A pair ready in containers against the same pair as child processes, as a ratio from one run.

Measured: from `deploy` to a deployment whose clusters are whole and whose links are proven (`A->B`, one broker each), and how
long its end takes. Rounds are interleaved, so that what else the machine does hits both; medians are compared. Jars, images,
templates and class archives are warm.

    python benchmarks/runtimes.py [rounds] [brokers]      target: at most 2 times the process runtime
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from harness.model.topology import ClusterSpec, LinkSpec, Topology
from harness.rundir import EventLog
from harness.runtimes import cleanup, runtime

TARGET = 2.0
ORDER = ("process", "docker")


def one(name: str, brokers: int, folder: Path) -> tuple[float, float]:
    """Seconds until a pair is ready, and until it is gone again."""
    topology = Topology(
        clusters=(ClusterSpec(name="A", brokers=brokers), ClusterSpec(name="B", brokers=brokers)),
        links=(LinkSpec(source="A", destination="B"),),
    )
    folder.mkdir()
    with closing(EventLog(folder / "events.jsonl")) as events:
        began = time.perf_counter()
        deployment = runtime(name)(topology, folder=folder, recorder=events)
        ready = time.perf_counter()
        deployment.close()
        return ready - began, time.perf_counter() - ready


def main(rounds: int, brokers: int) -> int:
    """Prints the medians and their ratio; 1 when the target is missed."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ORDER}
    with cleanup.temporary_folder() as folder:
        for number in range(-1, rounds):  # the first, which warms what is cold, does not count
            for name in ORDER:
                seconds = one(name, brokers, folder / f"{name}{number}")
                if number >= 0:
                    taken[name].append(seconds)
    ready = {name: statistics.median(up for up, _ in taken[name]) for name in ORDER}
    gone = {name: statistics.median(down for _, down in taken[name]) for name in ORDER}
    for name in ORDER:
        print(f"{name:8} ready {ready[name]:6.2f} s   gone {gone[name]:5.2f} s   ({rounds} rounds, {brokers} brokers each)")
    ratio = ready["docker"] / ready["process"]
    print(f"ready, docker to process: {ratio:.2f} (target: at most {TARGET:g})")
    return int(ratio > TARGET)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    sys.exit(main(*(given + [3, 1][len(given) :])))
