"""The line of an error in a scenario file: msgspec's sentence, with the line and the nearest
name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NoReturn, TypeGuard, get_args

import msgspec

from linkflap.chaos.scenario_file import value_lines
from linkflap.chaos.scenario_file.reader import Reader
from linkflap.chaos.scenario_file.schema import ScenarioFile
from linkflap.harness.model.spelling import nearest

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


def _path(text: str, content: object) -> value_lines.Path:
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


def _fields(at: value_lines.Path) -> list[str]:
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
