"""Watches for a fault's bite: measured on the broken object, never taken from the answer of the API
that broke it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.wait import until

BITES_WITHIN: Final = 10.0

Measure = Callable[[], tuple[bool, object]]
"""Whether it bit, and what was seen (plain JSON values)."""


def watch(
    world: World,
    observable: str,
    expected: object,
    measure: Measure,
    *,
    within: float = BITES_WITHIN,
    falling: bool = False,
) -> Bite:
    """Measures until it bites, `within` seconds have passed, or the run ends; the last measurement
    is the evidence.

    `falling`: the measurement is a number that falls until the fault bites; the seconds count from
    the last time that it fell (`until`).
    """
    seen: tuple[bool, object] = (False, "nothing")

    def over() -> bool:
        nonlocal seen
        seen = measure()
        return seen[0] or world.stopping

    def left() -> float | None:
        return seen[1] if isinstance(seen[1], int | float) else None

    with contextlib.suppress(DeadlineExceeded):
        until(
            over,
            within=within,
            what=f"{observable} to show the fault",
            left=left if falling else None,
        )
    return Bite(bit=seen[0], observable=observable, measured=seen[1], expected=expected)


def milliseconds(seconds: float | None) -> float | None:
    """Rounded; None where there was no answer."""
    return None if seconds is None else round(seconds * 1000, 3)
