"""The reader's position in a scenario file, and errors with file, line and the nearest name.

TOML parsers report lines only for syntax errors; an error about a value needs a line too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TypeGuard, get_args

import msgspec

from linkflap.chaos.scenario_file.schema import ScenarioFile
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

KeyPath = tuple[str | int, ...]
"""Keys and indices from the root of the file: ("fault", 1, "options", "latency")."""
_HEADER = re.compile(r"^\s*(\[\[|\[)\s*(.+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLines:
    """The lines of a file's tables and keys, from 1."""

    lines: Sequence[tuple[KeyPath, int]]

    def line(self, path: KeyPath) -> int:
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
    found: list[tuple[KeyPath, int]] = []
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            table = _table(_split(header[2]), counts, repeated=header[1] == "[[")
            found.append((table, number))
        elif key := _KEY.match(line):
            found.append(((*table, *_split(key[1])), number))
    return ValueLines(lines=found)


def _table(names: Sequence[str], counts: dict[KeyPath, int], *, repeated: bool) -> KeyPath:
    """The path of a header: tables of an array are counted, and `[fault.options]` belongs to the
    last `[[fault]]`."""
    path: KeyPath = ()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    path: Path
    where: ValueLines

    def fail(self, at: KeyPath, sentence: str) -> NoReturn:
        raise InputError(f"{self.path}, line {self.where.line(at)}: {sentence}")

    def known(self, at: KeyPath, what: str, name: str, known: Iterable[str]) -> None:
        """Raises InputError for a name that is not in a registry."""
        names = sorted(known)
        if name not in names:
            self.fail(
                at,
                f"there is no {what} {name!r}{nearest(name, names)}; known: {', '.join(names)}",
            )

    def placed(self, at: KeyPath, check: Callable[[], object]) -> None:
        """Runs a check that does not know the file, and adds the file and line to its error."""
        try:
            check()
        except InputError as error:
            self.fail(at, str(error))


_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$")


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`")


_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]|\[(\.\.\.)\]")


def explain(
    reader: Reader, content: Mapping[str, object], error: msgspec.ValidationError
) -> NoReturn:
    """msgspec's message with the line, and for an unknown name with the nearest known one."""
    found = _AT.match(str(error))
    what, at = (found["what"], _path(found["path"] or "$", content)) if found else (str(error), ())
    if unknown := _UNKNOWN.match(what):
        names = _fields(at)
        sentence = (
            f"there is no {unknown['name']!r} here{nearest(unknown['name'], names)}; known: "
            f"{', '.join(names)}"
        )
        reader.fail((*at, unknown["name"]), sentence)
    if missing := _MISSING.match(what):
        reader.fail(at, f"{missing['name']!r} is missing; add {missing['name']} = …")
    dotted = ".".join(map(str, at))
    reader.fail(at, f"{dotted} is wrong: {what[:1].lower()}{what[1:]}")


def _path(text: str, content: object) -> KeyPath:
    """msgspec's path (`$.fault[1].at`) as keys and indices. msgspec writes a key of a mapping as
    `[...]`; if there are several keys, the first one is taken."""
    path: list[str | int] = []
    for name, index, some in _STEP.findall(text):
        step: str | int = name or (int(index) if index else "")
        if some and isinstance(content, dict):
            step = next(
                (
                    key
                    for key, value in content.items()
                    if not isinstance(value, str | int | float | bool)
                ),
                "",
            )
        path.append(step)
        if isinstance(content, dict) and isinstance(step, str):
            content = content.get(step)
        elif isinstance(content, list) and isinstance(step, int):
            content = content[step]
    return tuple(path)


def _fields(at: KeyPath) -> list[str]:
    """The allowed names in the table at this path."""
    table: type[msgspec.Struct] = ScenarioFile
    for step in at:
        inner = next(
            (field.type for field in msgspec.structs.fields(table) if field.name == step), None
        )
        table = next(filter(_is_table, (inner, *get_args(inner))), table)
    return [field.name for field in msgspec.structs.fields(table)]


def _is_table(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
