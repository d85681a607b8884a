"""What a suite is to do: written into its directory before it starts, and never changed, so that it
goes on as it began."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from linkflap.chaos.generator import Bounds
from linkflap.harness.model.errors import InputError

FORMAT: Final = 1
RUN_MEBIBYTES: Final = 60
"""What one run directory may take while it is recorded and judged: for the bound on the disk that
is printed. Runs of some seconds took 3 to 25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What became of a suite before this one: runs by verdict, and how many cells it hit, `new` of
    them before all others."""

    name: str
    linkflap: str
    verdicts: Mapping[str, int]
    per_hour: float
    cells: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`seconds` of generated runs (`runs` at most, 0: no limit), then `shrink_seconds` for each new
    kind of failure.

    `until_fail` ends the first part with the first failure. `shard` (k, n): of all numbers those
    that leave k when divided by n. `keep` failed runs are kept in full, no more. `given` is the
    text of a scenario file that is run again and again, each time with a seed of its own, instead
    of generated ones. `merged`: the shards of `shards` that it was merged of, if it was. `before`
    is how many runs of the suites of `nights` hit each cell: the coverage that this one begins
    with. `reach` are patterns of cells (`chaos.generator.coverage`), or of parts of cells, each of
    which some run has to hit.
    """

    name: str
    seed: int
    seconds: float
    runs: int = 0
    jobs: int = 2
    bounds: Bounds = field(default_factory=Bounds)
    shard: tuple[int, int] = (0, 1)
    guided: bool = True
    until_fail: bool = False
    keep: int = 20
    replays: int = 3
    shrink_seconds: float = 0.0
    given: str = ""
    reach: tuple[str, ...] = ()
    merged: tuple[int, ...] = ()
    shards: int = 0
    before: Mapping[str, int] = field(default_factory=dict)
    nights: tuple[Night, ...] = ()
    format: int = FORMAT
    linkflap: str = ""

    def check(self) -> None:
        """Raises InputError for what makes no suite."""
        part, of = self.shard
        if not 0 <= part < of:
            raise InputError(
                f"--shard {part + 1}/{of} is no shard; give one from 1/{of} to {of}/{of}"
            )
        if self.jobs < 1 or self.seconds <= 0:
            raise InputError(
                "a suite needs at least one job and some time; give --jobs 1 or more and --for 60 "
                "or more"
            )
        self.bounds.check()

    @property
    def disk(self) -> int:
        """Bytes that the suite directory may take at most: of runs under way, of those without a
        verdict, and of failed ones."""
        return (2 * self.jobs + self.batch + self.keep) * RUN_MEBIBYTES << 20

    @property
    def batch(self) -> int:
        """Runs that wait for one Spark job at most, before no more are started."""
        return 8 * self.jobs


def usual_jobs() -> int:
    """As many runs at once as the machine has processors."""
    return max(1, os.cpu_count() or 1)


def shard(text: str) -> tuple[int, int]:
    """`2/4` as (1, 4). Raises InputError."""
    part, slash, of = text.partition("/")
    if not slash or not part.isdecimal() or not of.isdecimal() or not 1 <= int(part) <= int(of):
        raise InputError(
            f"--shard {text!r} is not of the form K/N with K from 1 to N, for example 2/4"
        )
    return int(part) - 1, int(of)


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "": 1}


def seconds(text: str) -> float:
    """`90`, `30s`, `20m` or `8h` as seconds. Raises InputError."""
    number = text.rstrip("smh")
    unit = text[len(number) :]
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(
            f"--for {text!r} is no time; give seconds, or a number with s, m or h, for example 8h"
        ) from None
    if not 1 <= value <= 14 * 86400:
        raise InputError(
            f"--for {text} is not between a second and 14 days; give a time within that"
        )
    return value
