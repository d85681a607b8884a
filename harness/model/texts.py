"""Texts for people: the known name nearest to a misspelt one, and other texts made printable."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_MIRROR_MAKER: Final = re.compile(r"mirror.?maker.*", re.IGNORECASE)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'link-flap'?)` if a known name is similar enough, else empty; for the end of
    an error's clause.
    """
    by_lower = {each.lower(): each for each in known}
    asked = "mm2" if _MIRROR_MAKER.fullmatch(name) else name.lower()
    near = difflib.get_close_matches(asked, by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""


_IN_BRACES: Final = re.compile(r"(?<![${])\{([A-Za-z]\w*)\}")


def names_in(text: str) -> Sequence[str]:
    """The names in braces in a text: `port` in `--port={port}`. `${NAME}` is a shell's."""
    return _IN_BRACES.findall(text)


def filled(text: str, names: Mapping[str, str]) -> str:
    """The text with the values of these names in braces."""
    return _IN_BRACES.sub(lambda found: names.get(found[1], found[0]), text)


def counted(number: float, thing: str) -> str:
    """`1 run`, `2 runs`: a number, rounded, and its noun."""
    whole = round(number)
    return f"{whole:,} {thing}{'s' * (whole != 1)}"


_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_MARKED: Final = re.compile(r"[\\`*_\[\]<>|#&~]")


_COMMAND: Final = re.compile(r":(?=:[A-Za-z-]+(?: [^\n]*)?::)|#(?=#\[)")


def printable(text: str) -> str:
    """The text with certain characters replaced: those that control a terminal, change the writing
    direction, or are illegal in XML 1.0.
    """
    return _CONTROL.sub("\ufffd", text)


def for_terminal(text: str) -> str:
    """The printable text without workflow commands: GitHub Actions executes those that a step
    prints (`::name …::`, `##[name]`).
    """
    return _COMMAND.sub(r"\g<0> ", printable(text))


def all_printable(value: object) -> object:
    """A JSON value with every text in it printable."""
    match value:
        case str():
            return for_terminal(value)
        case Mapping():
            return {for_terminal(str(k)): all_printable(v) for k, v in value.items()}
        case list() | tuple():
            return [all_printable(each) for each in value]
    return value


def in_one_line(text: str) -> str:
    return " ".join(for_terminal(text).split())


def in_markdown(text: str, *, code: bool = False) -> str:
    """The text as one line of Markdown, also within a table; `code`: between backticks."""
    line = in_one_line(text)
    if code:
        return line.replace("`", "'").replace("|", r"\|")
    return _MARKED.sub(r"\\\g<0>", line)
