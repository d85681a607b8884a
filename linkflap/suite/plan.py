"""The plan of a suite: its options. It is written into the suite directory before the suite starts
and never changed, so that a resumed suite continues with the same options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta

from linkflap.chaos.generator import Coverage, GeneratorBounds, generate
from linkflap.chaos.generator.coverage import check_pattern
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Seconds
from linkflap.suite.observed import STATES

FORMAT: Final = 1
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Few = Annotated[int, Meta(ge=0, le=1000)]
RUN_MEBIBYTES: Final = 60
"""MiB of disk for one run directory while it is recorded and judged. The printed bound on disk
space is computed from it. Measured: runs of some seconds took 3 to 25 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The results of an earlier suite: runs by verdict, and how many cells of the coverage it hit.
    `new` counts the cells that no earlier suite had hit."""

    name: str
    linkflap: str
    verdicts: Mapping[str, int]
    per_hour: Seconds
    cells: Count
    new: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a suite.

    A suite records generated runs for `seconds`, at most `runs` of them (0: no limit). It then
    shrinks each new failure for `shrink_seconds`, at most `alike` failures of one kind.
    `until_fail` stops recording at the first invalid run. `shard` (k, n) selects the runs whose
    number modulo n is k. `keep` limits the failed runs that are kept in full.

    `given` is the text of a scenario file: each run repeats this scenario with another seed, and
    none is generated. `reach` has patterns of cells (`chaos.generator.coverage`), or of parts of
    cells; some run must hit each of them. A merged suite has the numbers of its shards in `merged`,
    and in `shards` how many there should be. `nights` are earlier suites, and `before` is their
    coverage: how many of their runs hit each cell.
    """

    name: str
    seed: int
    seconds: Seconds
    runs: Count = 0
    jobs: Few = 2
    bounds: GeneratorBounds = field(default_factory=GeneratorBounds)
    shard: tuple[Count, Count] = (0, 1)
    guided: bool = True
    until_fail: bool = False
    keep: Count = 20
    replays: Few = 3
    shrink_seconds: Seconds = 0.0
    alike: Few = 3
    given: str = ""
    reach: tuple[str, ...] = ()
    merged: tuple[Count, ...] = ()
    shards: Count = 0
    before: Mapping[str, Count] = field(default_factory=dict)
    nights: tuple[Night, ...] = ()
    format: int = FORMAT
    linkflap: str = ""

    def check(self) -> None:
        """Raises InputError if the options contradict each other or allow no run."""
        part, of = self.shard
        if not 0 <= part < of:
            raise InputError(
                f"--shard {part + 1}/{of} is not a shard; give one from 1/{of} to {of}/{of}"
            )
        if self.jobs < 1 or self.seconds <= 0:
            raise InputError(
                "a suite needs at least one job and some time; give --jobs 1 or more, and --for 60 "
                "or more"
            )
        self.bounds.check()
        for wanted in self.reach:
            check_pattern(wanted, (*STATES, *self.bounds.mirrors))
        if not self.given:
            # Raises InputError if no scenario can be drawn: before the baseline, and not after it.
            generate(self.seed, 1, Coverage(), self.bounds, guided=False)

    @property
    def disk(self) -> int:
        """The most bytes that the suite directory may take: for runs being recorded, runs that
        wait for a verdict, and failed runs."""
        return (2 * self.jobs + self.batch + self.keep) * RUN_MEBIBYTES << 20

    @property
    def batch(self) -> int:
        """How many runs may wait for a Spark job. No run is started while so many wait."""
        return 8 * self.jobs


def usual_jobs() -> int:
    """The default of --jobs: the number of processors."""
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


def seconds(text: str, option: str = "--for", *, most: int = 14 * 86400) -> float:
    """`90`, `30s`, `20m` or `8h`, given as an option, as seconds. Raises InputError."""
    number = text.rstrip("smh")
    unit = text[len(number) :]
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(
            f"{option} {text!r} is not a time; give seconds, or a number with s, m or h, for "
            "example 8h"
        ) from None
    if not 1 <= value <= most:
        raise InputError(
            f"{option} {text} is out of range; give a time from 1 second to {most // 3600} hours"
        )
    return value
