"""Parses a workload's choice of client library: `librdkafka`, `java`, `java@3.9.2`, or several that
take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

LIBRDKAFKA: Final = "librdkafka"
JAVA: Final = "java"
OWN_PRODUCER: Final = "own-producer"
"""The kind of `linkflap.Producer`, with which a caller writes in its own process."""
LIBRARIES: Final = {
    LIBRDKAFKA: "librdkafka's producer and consumer, through confluent-kafka (the default)",
    JAVA: (
        "Kafka's own producer and consumer, of the clusters' newest release; java@3.9.2: of that "
        "release"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One client library. `release` is empty for librdkafka, and for Java's where it follows the
    clusters."""

    name: str
    release: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.release}" if self.release else self.name


def libraries(text: str) -> tuple[Library, ...]:
    """What a user wrote. Raises InputError."""
    return tuple(_library(word.strip()) for word in text.split(","))


def _library(word: str) -> Library:
    name, at, release = word.partition("@")
    if name not in LIBRARIES:
        near = nearest(name, LIBRARIES)
        raise InputError(
            f"there are no clients {word!r}{near}; known: {', '.join(LIBRARIES)}, and java@3.9.2"
            " for a release"
        )
    if at and (name == LIBRDKAFKA or not release):
        raise InputError(
            f"clients {word!r} name no release; write librdkafka without one, and Java's as "
            "java@3.9.2"
        )
    return Library(name=name, release=release)
