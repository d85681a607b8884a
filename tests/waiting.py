"""Waits of tests: for conditions, with one deadline that only a test that fails reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from linkflap.harness.model.wait import until

T = TypeVar("T")


def eventually(
    what: str,
    condition: Callable[[], T | None],
    *,
    state: Callable[[], object] | None = None,
    within: float = 120,
) -> T:
    """Waits until `condition` returns something truthy, and returns that. `what` and the last
    `state` are in the error."""
    return until(condition, within=within, what=what, every=0.05, state=state)
