"""The memory that a function takes, according to Python's tracemalloc (numpy's arrays included)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak(action: Callable[[], object]) -> int:
    """The peak of allocated bytes during a block, beyond what was allocated before."""
    action()  # the first call imports, compiles and caches things for good
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
