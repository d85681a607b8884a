"""The line of a value in a TOML file. TOML parsers report lines only for syntax errors, but an
error about a value needs a line too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and indices from the root of the file: ("fault", 1, "options", "latency")."""
_HEADER = re.compile(r"^\s*(\[\[|\[)\s*(.+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLines:
    """The lines of a file's tables and keys, from 1."""

    lines: Sequence[tuple[Path, int]]

    def line(self, path: Path) -> int:
        """The line on which a value begins; for a missing or nested value, the line of the nearest
        enclosing table."""
        for length in range(len(path), 0, -1):
            begins = [line for known, line in self.lines if known[:length] == path[:length]]
            if begins:
                return begins[0]
        return 1


def value_lines(text: str) -> ValueLines:
    """The lines of a file without syntax errors. Keys in inline tables, and in values of several
    lines, have the line of the outer key."""
    found: list[tuple[Path, int]] = []
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            table = _table(_split(header[2]), counts, repeated=header[1] == "[[")
            found.append((table, number))
        elif key := _KEY.match(line):
            found.append(((*table, *_split(key[1])), number))
    return ValueLines(lines=found)


def _table(names: Sequence[str], counts: dict[Path, int], *, repeated: bool) -> Path:
    """The path of a header: tables of an array are counted, and `[fault.options]` belongs to the
    last `[[fault]]`."""
    path: Path = ()
    for index, name in enumerate(names):
        path = (*path, name)
        last = index == len(names) - 1
        if last and repeated:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _split(dotted: str) -> list[str]:
    return [
        next(part for part in found.groups() if part is not None)
        for found in _PART.finditer(dotted)
    ]
