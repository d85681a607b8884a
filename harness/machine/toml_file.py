"""Reads a TOML file that a user wrote: scenario files, and the manifests of mirrors.

Every error is one sentence with the file, the line, what is wrong, and what was expected. TOML
parsers report lines only for syntax errors; an error about a value needs a line too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeGuard, TypeVar, get_args

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

KeyPath = tuple[str | int, ...]
"""Keys and indices from the root of the file: ("fault", 1, "options", "latency")."""
LARGEST: Final = 1 << 20
"""The largest file in bytes, far above any real one."""
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
            asked = _dotted(path[:length])
            for each, line in self.lines:
                if f"{_dotted(each)}.".startswith(f"{asked}."):
                    return line
        return 1


def _dotted(path: KeyPath) -> str:
    """A name with dots is one key, or several."""
    return ".".join(map(str, path))


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


_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_NO_CHOICE: Final = re.compile(r"Invalid enum value '(?P<value>[^']*)'")
_EXPECTED: Final = re.compile(
    r"Expected `(?P<kinds>[^`]*)`(?P<limit>(?: of length)? ?(?:(?P<sign>[<>]=) (?P<most>[\d.]+)"
    r"|matching .*)?)(?:, got `.*`)?"
)
_KINDS: Final = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_SHOWN: Final = 60
UNIT: Final = "unit"
"""In the `extra` of a field's msgspec.Meta: the unit of a number."""
_SYNTAX: Final = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)")
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]|\[(\.\.\.)\]")
Table = TypeVar("Table", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """`content`: as it was parsed; `where`: its lines."""

    path: Path
    content: Mapping[str, object]
    where: ValueLines

    def fail(self, at: KeyPath, sentence: str) -> NoReturn:
        """Raises InputError with the file and the line."""
        raise InputError(f"{self.path}, line {self.where.line(at)}: {sentence}")

    def known(
        self, at: KeyPath, what: str, name: str, known: Iterable[str], listed: str = ""
    ) -> None:
        """Raises InputError for a name that is not in a registry; `listed`: where all names are, if
        there are too many for a sentence."""
        names = sorted(known)
        if name not in names:
            every = listed or f"known: {', '.join(names)}"
            self.fail(at, f"there is no {what} {name!r}{nearest(name, names)}; {every}")

    def placed(self, at: KeyPath, check: Callable[[], object]) -> None:
        """Runs a check that does not know the file, and adds the file and line to its error."""
        try:
            check()
        except InputError as error:
            self.fail(at, str(error))

    def check_schema(self, version: int) -> None:
        """Raises InputError unless the file is of this version of its format."""
        given = self.content.get("schema")
        if given != version:
            says = f"schema is {given!r}" if given is not None else "schema is missing"
            self.fail(
                ("schema",),
                f"{says}; this linkflap reads schema = {version}: write that as the file's first "
                "line",
            )

    def to(self, table: type[Table]) -> Table:
        """The content as a table. Raises InputError: with the line, and for an unknown name with
        the nearest known one."""
        try:
            return msgspec.convert(self.content, table)
        except msgspec.ValidationError as error:
            self._explain(table, error)

    def missing(self, at: KeyPath, name: str) -> str:
        """An addition to the error about a required field that is missing."""
        del at, name
        return ""

    def _explain(self, root: type[msgspec.Struct], error: msgspec.ValidationError) -> NoReturn:
        found = _AT.match(str(error))
        what = found["what"] if found else str(error)
        at = self._path(root, found["path"] or "$", str(error)) if found else ()
        if unknown := _UNKNOWN.match(what):
            names = [field.name for field in msgspec.structs.fields(_table_at(root, at))]
            sentence = (
                f"there is no {unknown['name']!r} here{nearest(unknown['name'], names)}; known: "
                f"{', '.join(names)}"
            )
            self.fail((*at, unknown["name"]), sentence)
        if missing := _MISSING.match(what):
            why = self.missing(at, missing["name"])
            self.fail(at, f"{missing['name']!r} is missing{why}; add {missing['name']} = …")
        if other := _NO_CHOICE.match(what):
            known = [repr(each) for each in _choices(root, at) if each]
            self.fail(at, f"{at[-1]} is {other['value']!r}; it can be {' or '.join(known)}")
        name = ".".join(step for step in at if isinstance(step, str))
        self.fail(at, f"{name} is {self._shown(at)}; it must be {_expected(root, at, what)}")

    def _shown(self, at: KeyPath) -> str:
        """The value at this path, short."""
        value: Any = self.content
        for step in at:
            value = value[step]
        if isinstance(value, dict):
            return "a table"
        shown = repr(value)
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"

    def _path(self, root: type[msgspec.Struct], text: str, error: str) -> KeyPath:
        """msgspec's path (`$.fault[1].at`) as keys and indices. msgspec writes a key of a mapping
        as `[...]`: it is the one that alone gives the same error."""
        path: list[str | int] = []
        content: object = self.content
        for name, index, some in _STEP.findall(text):
            step: str | int = name or (int(index) if index else "")
            if some and isinstance(content, dict):
                alone = (key for key in content if self._error_with(root, path, key) == error)
                step = next(alone, "")
            path.append(step)
            if isinstance(content, dict):
                content = content.get(step)
            elif isinstance(content, list) and isinstance(step, int):
                content = content[step]
        return tuple(path)

    def _error_with(
        self, root: type[msgspec.Struct], path: Sequence[str | int], key: str
    ) -> str | None:
        """The error of the content if the mapping at this path had no other key than this one."""
        try:
            msgspec.convert(_with_one(self.content, path, key), root)
        except msgspec.ValidationError as error:
            return str(error)
        return None


def _with_one(content: object, path: Sequence[str | int], key: str) -> object:
    if isinstance(content, list):
        own = [_with_one(content[int(path[0])], path[1:], key)]
        return content[: int(path[0])] + own + content[int(path[0]) + 1 :]
    assert isinstance(content, dict)
    if not path:
        return {key: content[key]}
    return content | {path[0]: _with_one(content[path[0]], path[1:], key)}


def _expected(root: type[msgspec.Struct], at: KeyPath, what: str) -> str:
    """The type that msgspec expected (Expected `float | null` >= 1.0, got `str`), in words."""
    found = _EXPECTED.fullmatch(what)
    if not found:
        return f"another value ({what[:1].lower()}{what[1:]})"
    unit = _unit(root, at)
    numbers = f"a number of {unit}" if unit else "a number"
    kinds = {**_KINDS, "float": numbers}
    names = [kind for kind in found["kinds"].split(" | ") if kind != "null"]
    if "float" in names:
        names = [name for name in names if name != "int"]  # it is a number, too
    limit = found["limit"]
    if found["sign"]:
        number = f"{float(found['most']):g}"
        limit = f"{number} or more" if found["sign"] == ">=" else f"at most {number}"
        limit = f" of {limit}" if "length" in found["limit"] else f", {limit}"
    return f"{' or '.join(kinds.get(name, name) for name in reversed(names))}{limit}"


def _unit(root: type[msgspec.Struct], at: KeyPath) -> str:
    """The unit of a number, as the type of its field has it; empty if there is none."""
    fields = msgspec.structs.fields(_table_at(root, at))
    return next((_unit_of(field.type) for field in fields if field.name in at[-2:]), "")


def _unit_of(kind: object) -> str:
    for meta in getattr(kind, "__metadata__", ()):
        if unit := (meta.extra or {}).get(UNIT):
            return str(unit)
    return next(filter(None, map(_unit_of, get_args(kind))), "")


def _choices(root: type[msgspec.Struct], at: KeyPath) -> Sequence[str]:
    """The values of a field that has only some."""
    fields = msgspec.structs.fields(_table_at(root, at))
    return next((get_args(field.type) for field in fields if field.name == at[-1]), ())


def _table_at(root: type[msgspec.Struct], at: KeyPath) -> type[msgspec.Struct]:
    """The table at this path, or that has the value there."""
    table = root
    for step in at:
        inner = next(
            (field.type for field in msgspec.structs.fields(table) if field.name == step), None
        )
        table = next(filter(_is_table, (inner, *get_args(inner))), table)
    return table


def _is_table(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _not_toml(path: Path, error: str) -> str:
    found = _SYNTAX.fullmatch(error)
    if not found:
        return f"{path} is not TOML: {error}; correct it there"
    what = re.sub(r"\(('\w+')(?:, ('\w+'))*,?\)", lambda keys: keys[0].strip("(),"), found["what"])
    return (
        f"{path}, line {found['line']}: this is not TOML: {what[:1].lower()}{what[1:]} at column "
        f"{found['column']}; correct it there"
    )


def content_and_lines(
    path: Path,
    what: str,
    made_by: str,
    joined: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda content: content,
) -> tuple[Mapping[str, object], ValueLines]:
    """The parsed file, with keys that belong together `joined`, and its lines. `what` it is, for
    errors, and how one is `made_by` a user who has none. Raises InputError."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(
                f"{path} is larger than {LARGEST >> 20} MiB, which no {what} is; name a {what}"
            )
        text = path.read_text("utf-8-sig")  # editors on Windows begin a file with a BOM
        return joined(tomllib.loads(text)), value_lines(text)
    except FileNotFoundError:
        raise InputError(f"there is no {what} {path}; {made_by}") from None
    except OSError as error:
        raise InputError(
            f"the {what} {path} cannot be read ({error.strerror}); name one that can"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 (byte {error.start}), as TOML has to be; save it as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(_not_toml(path, str(error))) from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for a {what}; correct it there") from None
