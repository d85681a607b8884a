"""Names and texts that others chose (of topics, groups, files, in messages), where people and
programs read them: on a terminal, in XML, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_MARKED: Final = re.compile(r"[\\`*_\[\]<>|#&~]")


def printable(text: str) -> str:
    """The text without characters that steer a terminal, change the direction of writing, or that
    XML 1.0 cannot hold: each is replaced."""
    return _CONTROL.sub("\ufffd", text)


def all_printable(value: object) -> object:
    """A JSON value with every text in it printable."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(k)): all_printable(v) for k, v in value.items()}
        case list() | tuple():
            return [all_printable(each) for each in value]
    return value


def in_markdown(text: str, *, code: bool = False) -> str:
    """The text as one line of Markdown, also within a table; `code`: between backticks."""
    line = " ".join(printable(text).split())
    if code:
        return line.replace("`", "'").replace("|", r"\|")
    return _MARKED.sub(r"\\\g<0>", line)
