"""What the pytest plugin costs where no test uses it, against the same session without it.

    python benchmarks/plugin_cost.py [--rounds N]

CPU seconds (user and system) of `pytest --collect-only` on a project with 200 trivial tests, and of running them, once as it is
and once with `-p no:linkflap`. The two are interleaved, and the median of the differences of pairs is what it costs. Exits 1 when
that is 50 ms or more.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TARGET = 0.050
TESTS = 200


def cpu(folder: Path, words: Sequence[str]) -> float:
    """CPU seconds of one session."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words, str(folder)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_trivial.py").write_text("".join(f"def test_{n}():\n    assert {n} == {n}\n\n\n" for n in range(TESTS)))
        for name, words in (("collected", ["--collect-only"]), ("run", [])):
            pairs = []
            for number in range(asked.rounds + 1):
                order = (["-p", "no:linkflap"], []) if number % 2 else ([], ["-p", "no:linkflap"])
                took = {bool(more): cpu(folder, [*words, *more]) for more in order}
                if number:  # the first pair reads files for the first time
                    pairs.append((took[False], took[True]))
            cost = statistics.median(with_it - without for with_it, without in pairs)
            ratio = statistics.median(with_it / without for with_it, without in pairs)
            without = statistics.median(without for _, without in pairs)
            missed |= cost >= TARGET
            print(f"{TESTS} tests {name}: {without * 1000:.0f} ms without it, {cost * 1000:+.0f} ms with it, ratio {ratio:.3f}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
