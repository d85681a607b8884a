"""Rates: k of n, with the interval that contains the true rate with 95 % confidence (Wilson
1927)."""

from __future__ import annotations

import math
from typing import Final

_Z: Final = 1.959963984540054
"""Quantile of the normal distribution for 95 %, two-sided."""


def interval(shown: int, runs: int) -> tuple[float, float]:
    """Bounds of the true rate after `shown` of `runs`; of no runs at all nothing is known: (0,
    1)."""
    if not 0 <= shown <= runs:
        raise ValueError(f"{shown} of {runs}")
    if runs == 0:
        return 0.0, 1.0
    rate, square = shown / runs, _Z * _Z
    centre = rate + square / (2 * runs)
    spread = _Z * math.sqrt(rate * (1 - rate) / runs + square / (4 * runs * runs))
    low, high = (centre - spread) / (1 + square / runs), (centre + spread) / (1 + square / runs)
    return (0.0 if shown == 0 else max(0.0, low)), (1.0 if shown == runs else min(1.0, high))


def words(shown: int, runs: int) -> str:
    """For example: 3 of 3 (44 to 100 %)."""
    low, high = interval(shown, runs)
    return f"{shown} of {runs} ({100 * low:.0f} to {100 * high:.0f} %)"


def too_few(runs: int, needed: int) -> str:
    """The note on runs that showed nothing, where they are too few for a NOT REPRODUCED of their
    case."""
    return f"not shown in {words(0, runs)}; a NOT REPRODUCED takes {needed} runs"
