"""How many scenarios are drawn until one has the faults that a planted bug needs: guided by
coverage, and at random.

    python -m benchmarks.planted_drawn [seeds]

Nothing is run: a scenario counts as if all its faults struck as intended. So the number is a lower
bound for a suite that finds the bug (see `benchmarks.planted_bugs`). Both draw on a pair with the
shadow mirror, with the same seeds, at most LONGEST scenarios.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from linkflap.chaos.generator import Coverage, GeneratorBounds, cells_of, generate
from linkflap.chaos.triggers import condition
from linkflap.harness.model.scenario import Scenario

LONGEST: Final = 40
CUTTING: Final = ("link-cut", "link-flap", "link-half-open", "link-reset")
ENDING: Final = ("failover-forced", "failover-planned")
Need = Callable[[Scenario], bool]


def has(*names: str) -> Need:
    """Whether there is a fault of these kinds."""
    return lambda made: any(fault.fault in names for fault in made.schedule)


def waiting(trigger: str, least: int | None, *names: str) -> Need:
    """Whether there is a fault of these kinds that waits for a log state."""
    return lambda made: any(
        f.fault in names and (trigger, least) in condition(f.when).triggers for f in made.schedule
    )


def behind(first: tuple[str, ...], then: str) -> Need:
    """Whether there is a fault of one kind that follows one of other kinds."""

    def holds(made: Scenario) -> bool:
        kinds = [fault.fault for fault in made.schedule]
        return any(kind in first and then in kinds[n + 1 :] for n, kind in enumerate(kinds))

    return holds


def tail_then_back(made: Scenario) -> bool:
    """Whether there is a forced failover during a fault of its link, so that the source has a tail
    that was never mirrored, and a reversal after it."""
    ids = {fault.id: fault.fault for fault in made.schedule}
    for n, fault in enumerate(made.schedule):
        during = [ids[other] for other in condition(fault.when).during]
        if fault.fault == "failover-forced" and any(kind in CUTTING for kind in during):
            return any(later.fault == "mirror-reverse" for later in made.schedule[n + 1 :])
    return False


def twice_and_over(made: Scenario) -> bool:
    """Whether one mirror is killed twice, with a failover afterwards."""
    kills = Counter(fault.target for fault in made.schedule if fault.fault == "mirror-kill")
    return max(kills.values(), default=0) > 1 and any(
        behind(("mirror-kill",), ending)(made) for ending in ENDING
    )


NEEDS: Final[Mapping[str, Need]] = {
    "reconnect-drops-batch": has("link-cut", "link-reset", "link-flap"),
    "restart-drops-backlog": has("mirror-kill"),
    "second-restart-rewinds-groups": twice_and_over,
    "one-of-two-left-open": waiting("open-transactions", 2, "failover-forced"),
    "failback-truncates-short": tail_then_back,
    "failback-lowers-epochs": has("mirror-reverse"),
    "new-partition-begins-late": has("partitions-added"),
    "unknown-commit-is-ok": waiting(
        "commit-in-flight", None, "failover-forced", "broker-kill", "broker-pause"
    ),
    "purged-is-acknowledged": has("failover-forced", "broker-kill"),
    "reader-skips-after-death": lambda made: any(
        fault.fault == "client-kill" and fault.options.get("workload") == "readers"
        for fault in made.schedule
    ),
}
"""Bug -> what its schedule needs. Other bugs of reconnects need the same as the first one."""


def drawn(seed: int, *, guided: bool) -> dict[str, int]:
    """Bug -> number of the first scenario with what it needs; LONGEST + 1 if there is none."""
    coverage, found = Coverage(), dict[str, int]()
    for number in range(1, LONGEST + 1):
        made = generate(seed, number, coverage, GeneratorBounds(), guided=guided)
        coverage = coverage.with_run(cells_of(made))
        for bug, needs in NEEDS.items():
            if bug not in found and needs(made):
                found[bug] = number
    return {bug: found.get(bug, LONGEST + 1) for bug in NEEDS}


def words(numbers: list[int]) -> str:
    """The median and the maximum."""
    most = max(numbers)
    median = statistics.median(numbers)
    return (
        f"{f'over {LONGEST}' if median > LONGEST else f'{median:g}'} | "
        f"{f'over {LONGEST}' if most > LONGEST else most}"
    )


def main() -> int:
    """Draws, and prints the table."""
    seeds = range(1, int(sys.argv[1] if len(sys.argv) > 1 else 24) + 1)
    guided = [drawn(seed, guided=True) for seed in seeds]
    uniform = [drawn(seed, guided=False) for seed in seeds]
    sys.stdout.write(
        "| bug | guided: median | longest | at random: median | longest |\n|---|---|---|---|---|\n"
    )
    for bug in NEEDS:
        sys.stdout.write(
            f"| {bug} | {words([one[bug] for one in guided])} | "
            f"{words([one[bug] for one in uniform])} |\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
