"""How much memory something takes, by Python's own account (numpy's arrays are in it)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak(action: Callable[[], object]) -> int:
    """The most bytes that are held while something is done, beyond what was held before."""
    action()  # what is imported, compiled and remembered for good
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
