"""Suites against planted bugs: which bugs they find, how soon, and to what size they shrink the
scenario.

    python -m benchmarks.planted_bugs --minutes 20 --out FOLDER
        every bug, guided by coverage
    python -m benchmarks.planted_bugs --minutes 20 --out FOLDER --uniform BUG...
        these bugs, drawn at random, with the same budget
    python -m benchmarks.planted_bugs --table FOLDER
        the table of all results so far

Each bug (`tests.planted`) gets its own nightly suite, on the topology that it needs. The suite
draws from all faults of the generator, or with `--near` from a few that include those that the
bug's state needs (NEAR). It ends with the first failure, which is replayed and shrunk. A bug
reports in which runs it took effect, so the table distinguishes a bug that was never reached from
one that was reached and not found. Results are appended to FOLDER/results.jsonl; a suite that has a
result is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from linkflap.chaos import scenario_file
from linkflap.suite.failures import REPORT, SMALLEST, name_of
from linkflap.suite.folder import RunResult, SuiteFolder
from tests.planted import BUGS, environment

CHAIN: Final = "A->B->C"
TOPOLOGIES: Final = {"second-hop-commits-aborted": CHAIN}
"""Topologies on which a bug is searched for; other bugs use a pair."""
NEAR: Final = {
    "reconnect-drops-batch": ("link-cut", "link-reset", "link-flap"),
    "reconnect-repeats-batch": ("link-cut", "link-reset", "link-flap"),
    "reconnect-old-producer-epoch": ("link-cut", "link-reset", "link-flap", "client-kill"),
    "outage-mixes-partitions": ("link-cut", "link-reset", "link-flap"),
    "backlog-marker-before-data": ("link-cut", "link-half-open", "broker-pause"),
    "restart-drops-backlog": ("mirror-kill", "link-cut"),
    "second-restart-rewinds-groups": ("mirror-kill", "link-cut", "failover-planned"),
    "one-of-two-left-open": ("failover-forced", "link-cut"),
    "failback-truncates-short": ("failover-forced", "mirror-reverse", "link-cut"),
    "failback-lowers-epochs": ("failover-forced", "failover-planned", "mirror-reverse", "link-cut"),
    "failover-keeps-settings": ("failover-forced", "failover-planned", "link-cut"),
    "high-watermark-of-the-fastest": ("link-cut", "broker-pause", "broker-restart"),
    "new-partition-begins-late": ("partitions-added", "link-cut"),
    "second-hop-commits-aborted": ("link-cut", "link-reset"),
    "unknown-commit-is-ok": ("failover-forced", "broker-kill", "broker-pause"),
    "purged-is-acknowledged": ("failover-forced", "broker-kill", "link-cut"),
    "reader-skips-after-death": ("client-kill", "link-cut"),
}
"""With `--near`: the faults that a suite draws from. They include those that lead to a bug's
state."""
RESULTS: Final = "results.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one suite. `reached`: runs in which the bug took effect. `run`: the first
    failed run, if `kind` is given. `minutes`: until then, or in total. `others`: failures in runs
    without an effect of the bug."""

    bug: str
    guided: bool
    topology: str
    seed: int
    runs: int
    reached: int
    run: int
    minutes: float
    kind: str = ""
    replayed: str = ""
    smallest: str = ""
    faults: int = 0
    rate: str = ""
    others: str = ""
    near: bool = False


def main() -> int:
    """Runs the requested suites and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bugs", nargs="*", help="by default all")
    parser.add_argument("--out", type=Path, help="folder of the suites and their results")
    parser.add_argument("--table", type=Path, help="only print the table of this folder")
    parser.add_argument("--minutes", type=float, default=20.0, help="to find a bug")
    parser.add_argument("--shrink", default="5m", help="to shrink it")
    parser.add_argument("--replays", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--uniform", action="store_true", help="at random, not by coverage")
    parser.add_argument(
        "--near",
        action="store_true",
        help="only the faults that lead to the bug's state, and a few others",
    )
    given = parser.parse_args()
    folder = given.table or given.out
    if folder is None:
        parser.error("name a folder with --out or --table")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if unknown := [bug for bug in given.bugs if bug not in BUGS]:
        parser.error(f"there is no bug {unknown[0]!r}; known: {', '.join(BUGS)}")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        known = {(found.bug, found.guided, found.near) for found in results(folder)}
        for bug in given.bugs or BUGS:
            if (bug, not given.uniform, given.near) not in known:
                add(folder, look_for(bug, given))
    sys.stdout.write(table(results(folder)))
    return 0


def look_for(bug: str, given: argparse.Namespace) -> Found:
    """Runs one suite against one bug."""
    name = f"{bug}-{'uniform' if given.uniform else 'guided'}{'-near' if given.near else ''}"
    out, log = given.out / name, given.out / f"{name}.struck"
    topology = TOPOLOGIES.get(bug, "A->B")
    command = [
        *(
            sys.executable,
            "-m",
            "linkflap",
            "suite",
            "nightly",
            "--until-fail",
            "--fresh",  # a bug says where it took effect: in the folder of its run
            "--topologies",
            topology,
            "--mirrors",
            "shadow",
        ),
        *(
            "--for",
            f"{60 * given.minutes:g}",
            "--shrink",
            given.shrink,
            "--replays",
            str(given.replays),
        ),
        *("--seed", str(given.seed), "--jobs", str(given.jobs), "--out", str(out)),
        *(["--uniform"] if given.uniform else []),
        *([word for fault in NEAR[bug] for word in ("--faults", fault)] if given.near else []),
    ]
    with (
        (given.out / f"{name}.log").open("wb") as output,
        subprocess.Popen(
            command, env={**os.environ, **environment(bug, log)}, stdout=output, stderr=output
        ) as suite,
    ):
        try:
            suite.wait()
        except BaseException:
            suite.terminate()  # the suite ends its own processes; leaving this block waits for it
            raise
    return found_in(bug, SuiteFolder.open(out), touched(log, out))


def touched(log: Path, out: Path) -> set[int]:
    """The suite's runs in which the bug took effect."""
    lines = log.read_text().splitlines() if log.exists() else []
    behind = [line.partition(": ")[0].partition(f"{out.absolute()}/runs/")[2] for line in lines]
    return {int(rest.partition("/")[0]) for rest in behind if rest}


def found_in(bug: str, folder: SuiteFolder, reached: set[int]) -> Found:
    """The suite's first failure."""
    plan = folder.plan
    invalid = sorted(
        (r for r in folder.results if r.verdict == "invalid"), key=lambda result: result.ended
    )
    by_it = [result for result in invalid if result.number in reached]
    others = [f"{r.number}: {r.kinds[0]}" for r in folder.results if r.failed and r not in by_it]
    first: RunResult | None = by_it[0] if by_it else None
    ended = first.ended if first else max((result.ended for result in folder.results), default=0.0)
    found = Found(
        bug=bug,
        guided=plan.guided,
        topology=plan.bounds.topologies[0],
        seed=plan.seed,
        runs=len(folder.results),
        reached=len(reached & {result.number for result in folder.results}),
        run=first.number if first else 0,
        minutes=round(ended / 60, 1),
        others="; ".join(others),
        near=bool(plan.bounds.faults),
    )
    return shrunk(folder, first, found) if first else found


def shrunk(folder: SuiteFolder, first: RunResult, found: Found) -> Found:
    """Adds the results of replaying and shrinking the first failure."""
    own = folder.root / "failures" / name_of(first.kinds[0])
    more = {**asdict(found), "kind": first.kinds[0]}
    if (own / REPORT).exists():
        report = json.loads((own / REPORT).read_text())
        smallest = scenario_file.read(own / SMALLEST, seed=0)
        steps = [
            f"{f.fault}{'' if f.when == 'always' else f' once {f.when}'}" for f in smallest.schedule
        ]
        more |= {
            "replayed": report["replayed"],
            "rate": report["rate"],
            "smallest": ", ".join(steps),
            "faults": len(steps),
        }
    return Found(**more)


def results(folder: Path) -> list[Found]:
    """All results so far."""
    path = folder / RESULTS
    return (
        [Found(**json.loads(line)) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def add(folder: Path, found: Found) -> None:
    """Appends one result."""
    with (folder / RESULTS).open("a") as file:
        file.write(json.dumps(asdict(found)) + "\n")


def table(every: list[Found]) -> str:
    """Markdown: a row for each suite, in the order of the bugs."""
    order = {bug: number for number, bug in enumerate(BUGS)}
    lines = [
        (
            "| bug | faults | drawn | runs | state reached in | found | minutes | as | smallest | "
            "fails again in |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(every, key=lambda found: (order[found.bug], found.near, not found.guided)):
        failing_run = f"run {one.run}" if one.kind else "no"
        faults = ", ".join(NEAR[one.bug]) if one.near else "all"
        cells = (
            one.bug,
            faults,
            "guided" if one.guided else "uniform",
            one.runs,
            one.reached,
            failing_run,
            one.minutes,
        )
        lines.append(
            f"| {' | '.join(map(str, cells))} | {one.kind} | {one.smallest} | {one.rate} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
