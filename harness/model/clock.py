"""One clock for an entire run: nanoseconds since the Unix epoch that never step back.

Wall clocks step; a history that mixes them before and after a step is worthless. The anchor is
taken once per process.
"""

from __future__ import annotations

import time

_ANCHOR = time.time_ns() - time.monotonic_ns()


def now() -> int:
    """Nanoseconds since the Unix epoch, monotonic within this process."""
    return _ANCHOR + time.monotonic_ns()
