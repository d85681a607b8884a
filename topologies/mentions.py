"""Clusters as a topology's notation mentions them, each once or several times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec

_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A cluster as it stands at one place of the text; what is not given there is None."""

    at: int
    name: str
    brokers: int | None
    kafka: str | None
    security: str | None


class Text:
    """A cursor over the text; `fail` names the place."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def fail(self, sentence: str, at: int | None = None) -> NoReturn:
        raise InputError(
            f"topology {self.text!r}, character {(self.at if at is None else at) + 1}: {sentence}"
        )


def clusters_of(cursor: Text, mentions: list[Mention]) -> Iterator[ClusterSpec]:
    """One ClusterSpec per name, in the order of first mention."""
    for name in dict.fromkeys(m.name for m in mentions):
        of_it = [m for m in mentions if m.name == name]
        yield ClusterSpec(
            name=name,
            brokers=_agreed(cursor, of_it, "brokers", [m.brokers for m in of_it], usual=1),
            kafka=_agreed(cursor, of_it, "Kafka", [m.kafka for m in of_it], usual=DEFAULT_KAFKA),
            security=_agreed(cursor, of_it, "security", [m.security for m in of_it], usual=""),
        )


def _agreed(
    cursor: Text, of_it: list[Mention], what: str, given: list[_Value | None], *, usual: _Value
) -> _Value:
    """What the mentions of a cluster say of it, which must be the same in all that say it."""
    distinct = list(dict.fromkeys(value for value in given if value is not None))
    if len(distinct) > 1:
        values = " and ".join(sorted(map(str, distinct)))
        cursor.fail(
            f"cluster {of_it[-1].name} is given twice with different {what} ({values}); say it "
            "once",
            of_it[-1].at,
        )
    return distinct[0] if distinct else usual


def refuse_duplicates(cursor: Text, links: list[tuple[int, LinkSpec]]) -> None:
    seen: set[LinkSpec] = set()
    for at, link in links:
        if link in seen:
            cursor.fail(
                f"the link {link.name} is there twice; leave one out (A<->B already holds both "
                "directions)",
                at,
            )
        seen.add(link)
