"""Formats events and measurements for people: no brackets, no quotation marks, and moments as
UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

_MOMENTS: Final = 10**18
"""Numbers from here on are nanoseconds since 1970."""
_LATEST: Final = 2 * 10**18
"""And from here on they are none that any run had."""


def in_words(value: object) -> str:
    """A value with its parts: names before values, what has parts itself behind semicolons."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        deep = any(isinstance(each, Mapping | list | tuple) for each in value)
        return ("; " if deep else ", ").join(map(in_words, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, int) and _MOMENTS <= value < _LATEST:
        return (
            datetime.fromtimestamp(value / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
        )
    return str(value)
