"""Shrinks a failing scenario: tries smaller ones until none of them fails in the same way, or the
budget of time is spent.

An oracle runs the candidates, several in parallel, because parallel runs cost little more than one.
Failures of real clusters are intermittent, so the oracle counts failed runs. At the end the
smallest scenario is measured again (`_settled`). If it fails too seldom, the one before it is taken
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import sqrt
from typing import Final, Protocol

from linkflap.chaos import scenario_file
from linkflap.chaos.generator.generate import playable
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.suite.reductions import PASSES

OFTEN: Final = 0.5
"""The share of runs in which the shrunk scenario must fail when it is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`failed` of `tries` runs failed in the same way."""

    failed: int
    tries: int

    @property
    def share(self) -> float:
        return self.failed / self.tries if self.tries else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share (Wilson score interval)."""
        if not self.tries:
            return 0.0, 1.0
        z, n, p = 1.96, self.tries, self.share
        middle, width = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - width) / (1 + z * z / n)), min(
            1.0, (middle + width) / (1 + z * z / n)
        )

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.failed} of {self.tries} ({100 * low:.0f} to {100 * high:.0f} %)"

    def __add__(self, other: Rate) -> Rate:
        return Rate(failed=self.failed + other.failed, tries=self.tries + other.tries)


class Oracle(Protocol):
    """Runs each scenario `times` times, and counts how often it fails with the failure that is
    being shrunk."""

    width: int
    """How many scenarios run in parallel."""

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]: ...
    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest scenario found, how often it fails, and how many steps led to it.
    `without_last` is the rate without its last fault, or None if that was not tried."""

    scenario: Scenario
    rate: Rate
    steps: int
    without_last: Rate | None = None


@dataclass(slots=True, kw_only=True)
class Shrinker:
    """Shrinks one failure. `accepted` is called with each smaller scenario that still fails."""

    fails: Oracle
    accepted: Callable[[Scenario], None] = lambda scenario: None
    times: int = 2
    measures: int = 4
    _tried: dict[str, Rate] = field(default_factory=dict)

    def shrink(self, scenario: Scenario, known: Rate | None = None) -> Shrunk:
        """The smallest scenario that fails like `scenario`, or `scenario` itself if nothing smaller
        fails. `known` is its measured rate."""
        if known is not None:
            self._tried[_key(scenario)] = known
        history = [scenario]
        smaller = True
        while smaller and not self.fails.spent:
            smaller = False
            for reduce in PASSES:
                while (found := self._step(list(reduce(history[-1])))) is not None:
                    history.append(found)
                    self.accepted(found)
                    smaller = True
        return self._settled(history)

    def _step(self, candidates: Sequence[Scenario]) -> Scenario | None:
        """The first candidate that fails often enough; None if none does or the budget is spent."""
        new = [
            made
            for made in candidates
            if made.schedule and playable(made) and _key(made) not in self._tried
        ]
        for group in _groups(
            list({_key(made): made for made in new}.values()),
            max(1, self.fails.width // self.times),
        ):
            if self.fails.spent:
                return None
            rates = self.fails(group, times=self.times)
            self._tried |= {_key(made): rate for made, rate in zip(group, rates, strict=True)}
            for made, rate in zip(group, rates, strict=True):
                if rate.share >= OFTEN:
                    return made
        return None

    def _settled(self, history: list[Scenario]) -> Shrunk:
        """The last step that fails often enough when it is measured again. If none does, the step
        that fails most often."""
        best: tuple[Scenario, Rate] | None = None
        for made in reversed(history):
            rate = self._tried.get(_key(made), Rate(failed=0, tries=0))
            if rate.tries < self.measures:
                rate += self.fails([made], times=self.measures)[0]
            if best is None or rate.share > best[1].share:
                best = (made, rate)
            if rate.share >= OFTEN:
                break
        scenario, rate = best or (history[0], Rate(failed=0, tries=0))
        return Shrunk(
            scenario=scenario,
            rate=rate,
            steps=len(history) - 1,
            without_last=self._without_last(scenario),
        )

    def _without_last(self, scenario: Scenario) -> Rate | None:
        from linkflap.harness.suite.reductions import fewer_faults

        last = [
            made
            for made in fewer_faults(scenario)
            if len(made.schedule) == len(scenario.schedule) - 1
        ]
        rates = [rate for made in last if (rate := self._tried.get(_key(made)))]
        return rates[-1] if rates else None


def _key(scenario: Scenario) -> str:
    return scenario_file.render(scenario)


def _groups(every: Sequence[Scenario], size: int) -> Iterator[list[Scenario]]:
    left = iter(every)
    while group := list(islice(left, size)):
        yield group
