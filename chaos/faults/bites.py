"""Measures the bite of a fault: on the broken object, and never from the answer of the API that
broke it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.wait import until

BITES_WITHIN: Final = 10.0

Measure = Callable[[], tuple[bool, object]]
"""(whether the fault bit, the measurement as plain JSON values)."""


def watch(
    world: World,
    observable: str,
    expected: object,
    measure: Measure,
    *,
    within: float = BITES_WITHIN,
    falling: bool = False,
) -> Bite:
    """Measures until the fault bites, `within` seconds have passed, or the run ends. The last
    measurement is the evidence. `falling`: the measurement is a number that falls until the fault
    bites; the seconds count from the last time it fell (`until`)."""
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
    """Milliseconds, rounded; None if there was no answer."""
    return None if seconds is None else round(seconds * 1000, 3)
