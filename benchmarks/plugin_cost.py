"""The cost of the pytest plugin in a session without its tests, compared with the same session
without the plugin.

    python benchmarks/plugin_cost.py [--rounds N] [--instructions]

It measures CPU seconds (user and system) of `pytest --collect-only` on a project with 200 trivial
tests, and of running them, with the plugin and with `-p no:linkflap`. The sessions are interleaved,
and the cost is the median difference of pairs. Exits 1 if it is 50 ms or more.

On a busy machine this difference is noise. `--instructions` counts instructions instead (valgrind's
cachegrind), which do not depend on the load. The cost is then the plugin's share of the
instructions, times the CPU seconds of the fastest session without it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measuring import of_session, pytest_session

TARGET = 0.050
TESTS = 200


COUNTING = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def cpu(folder: Path, words: Sequence[str]) -> float:
    """CPU seconds of one session."""
    return of_session(folder, words)[1]


def instructions(folder: Path, words: Sequence[str]) -> int:
    """Instructions of one session."""
    counted = re.search(r"I\s+refs:\s+([\d,]+)", pytest_session(folder, words, by=COUNTING))
    if counted is None:
        sys.exit("valgrind printed no count of instructions; it has to be one with cachegrind")
    return int(counted[1].replace(",", ""))


WITHOUT = ["-p", "no:linkflap"]


def by_time(folder: Path, name: str, words: Sequence[str], rounds: int) -> float:
    """The median difference of interleaved pairs, in seconds."""
    pairs = []
    for number in range(rounds + 1):
        order = (WITHOUT, []) if number % 2 else ([], WITHOUT)
        took = {bool(more): cpu(folder, [*words, *more]) for more in order}
        if number:  # the first pair reads files from disk
            pairs.append((took[False], took[True]))
    cost = statistics.median(with_it - without for with_it, without in pairs)
    ratio = statistics.median(with_it / without for with_it, without in pairs)
    without = statistics.median(without for _, without in pairs)
    print(
        f"{TESTS} tests {name}: {without * 1000:.0f} ms without it, {cost * 1000:+.0f} ms with it, "
        f"ratio {ratio:.3f}"
    )
    return cost


def by_instructions(folder: Path, name: str, words: Sequence[str], rounds: int) -> float:
    """The CPU seconds of the plugin's instructions, at the average speed of the session."""
    seconds = min(cpu(folder, [*words, *WITHOUT]) for _ in range(rounds))
    with_it, without = instructions(folder, words), instructions(folder, [*words, *WITHOUT])
    share = (with_it - without) / without
    print(
        f"{TESTS} tests {name}: {without / 1e6:.0f} million instructions without it, "
        f"{(with_it - without) / 1e6:+.1f} with it ({share:+.2%}): of {seconds * 1000:.0f} ms "
        f"{seconds * share * 1000:+.1f} ms"
    )
    return seconds * share


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--instructions", action="store_true")
    asked = parser.parse_args()
    if asked.instructions and not shutil.which(COUNTING[0]):
        sys.exit("--instructions takes valgrind, which is not installed")
    measure = by_instructions if asked.instructions else by_time
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_trivial.py").write_text(
            "".join(f"def test_{n}():\n    assert {n} == {n}\n\n\n" for n in range(TESTS))
        )
        sessions = {"collected": ["--collect-only"], "run": []}
        costs = [measure(folder, name, words, asked.rounds) for name, words in sessions.items()]
    sys.exit(max(costs) >= TARGET)


if __name__ == "__main__":
    main()
