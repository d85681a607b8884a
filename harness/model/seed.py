"""The seed of a run: one number gives the schedule, the payloads and every random choice."""

from __future__ import annotations

import secrets


def drawn_seed(seed: int | None) -> int:
    """The seed that was given, or one drawn now."""
    return secrets.randbits(32) if seed is None else seed
