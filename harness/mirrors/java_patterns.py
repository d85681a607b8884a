"""Checks whether Java accepts a regular expression (java.util.regex.Pattern). Needs no Java, so
that wrong input fails before a run starts anything.

It only handles patterns without backslashes, which no option allows. Java rejects everything that
this module rejects, with three exceptions: the flag x, a look-behind with `*`, `+` or `{n,}` in it,
and `{n}` without anything before it to repeat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_COUNTED: Final = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_NAME: Final = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_FLAGS: Final = re.compile(r"[dimsuU]*(?:-[dimsuU]*)?([:)])")
_MOST: Final = 1 << 31


class _Refused(Exception):
    """Why Java rejects the pattern, in a few words."""


@dataclass(slots=True)
class _PatternReader:
    """A cursor over a pattern, and the group names so far."""

    text: str
    at: int = 0
    names: set[str] = field(default_factory=set)

    def peek(self, ahead: int = 0) -> str:
        return self.text[self.at + ahead : self.at + ahead + 1]

    def takes(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found


def reason_against(pattern: str) -> str:
    """Why Java rejects a pattern, in a few words; empty if it accepts it."""
    reader = _PatternReader(pattern)
    try:
        _alternatives(reader, behind=False)
        if reader.peek():
            raise _Refused("a ')' without its '('")
    except _Refused as reason:
        return str(reason)
    return ""


def _alternatives(reader: _PatternReader, *, behind: bool) -> None:
    """Reads to the end of the pattern, or to the `)` of the surrounding group. `behind`: inside a
    look-behind."""
    while (character := reader.peek()) not in ("", ")"):
        if character == "|":
            reader.at += 1
            continue
        if character in "*+?{":
            raise _Refused(f"nothing before {character!r} to repeat")
        if _one(reader, behind=behind):
            _repetition(reader, behind=behind)


def _one(reader: _PatternReader, *, behind: bool) -> bool:
    """Reads a character, class or group. False for flags, which cannot be repeated."""
    if reader.takes("["):
        _class(reader)
    elif reader.takes("("):
        return _group(reader, behind=behind)
    else:
        reader.at += 1
    return True


def _repetition(reader: _PatternReader, *, behind: bool) -> None:
    sign = reader.peek()
    if sign == "{":
        endless = _counted(reader)
    elif sign and sign in "*+?":
        reader.at += 1
        endless = sign != "?"
    else:
        return
    if endless and behind:
        raise _Refused("a look-behind of unlimited length")
    if reader.peek() and reader.peek() in "?+":
        reader.at += 1


def _counted(reader: _PatternReader) -> bool:
    """Whether the repetition has no upper bound."""
    found = reader.match(_COUNTED)
    if not found or (found[3] and not found[2]):
        raise _Refused("a '{' that does not begin {n}, {n,} or {n,m}")
    least, most = int(found[1]), int(found[3] or found[1])
    if most < least or most >= _MOST:
        raise _Refused(f"{found[0]}, which is an impossible number of times")
    return bool(found[2]) and not found[3]


def _group(reader: _PatternReader, *, behind: bool) -> bool:
    """Reads a group after its `(`. False when it only sets flags."""
    if reader.takes("?"):
        if reader.takes("<=") or reader.takes("<!"):
            behind = True
        elif reader.peek() == "<":
            _named(reader)
        elif not (reader.peek() and reader.peek() in ":=!>"):
            flags = reader.match(_FLAGS)
            if not flags:
                raise _Refused(f"'(?{reader.peek()}', which does not begin a group")
            if flags[1] == ")":
                return False
        else:
            reader.at += 1
    _alternatives(reader, behind=behind)
    if not reader.takes(")"):
        raise _Refused("a '(' without its ')'")
    return True


def _named(reader: _PatternReader) -> None:
    name = reader.match(_NAME)
    if not name:
        raise _Refused("'(?<' without a name of letters and digits and '>'")
    if name[1] in reader.names:
        raise _Refused(f"two groups with the name {name[1]}")
    reader.names.add(name[1])


def _class(reader: _PatternReader) -> None:
    """Reads a class after its `[`. A `]` as its first character is part of it, and classes may be
    nested."""
    reader.takes("^")
    empty = True
    while reader.peek():
        if reader.peek() == "]" and not empty:
            reader.at += 1
            return
        if reader.takes("["):
            _class(reader)
        elif reader.takes("&&"):
            if empty and reader.peek() in ("]", "&"):
                raise _Refused("'&&' without operands")
        else:
            _range(reader)
        empty = False
    raise _Refused("a '[' without its ']'")


def _range(reader: _PatternReader) -> None:
    first = reader.peek()
    reader.at += 1
    if reader.peek() == "-" and (last := reader.peek(1)) not in ("", "[", "]"):
        if last < first:
            raise _Refused(f"the range {first}-{last}, which ends before it begins")
        reader.at += 2
