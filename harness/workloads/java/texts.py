"""Texts of Java's values: the JVM returns a poll's records and outcomes as texts in one answer."""

from __future__ import annotations

from typing import Final

from linkflap.harness.jvm.handles import Handles

STRING: Final = "Ljava/lang/String;"
OBJECT: Final = "Ljava/lang/Object;"
THROWABLE: Final = "Ljava/lang/Exception;"
BETWEEN: Final = "\x01"
"""Separates rows."""
WITHIN: Final = "\x02"
"""Separates the columns of a row."""


def descriptor(name: str) -> str:
    """A class in the notation of method descriptors."""
    return f"L{name.replace('.', '/')};"


class Texts:
    """Method handles that build texts."""

    def __init__(self, h: Handles) -> None:
        self.concat = h.method("java.lang.String", "concat", f"({STRING}){STRING}")
        self.of = h.static("java.lang.String", "valueOf", f"({OBJECT}){STRING}")
        self.of_long = h.static("java.lang.String", "valueOf", f"(J){STRING}")
