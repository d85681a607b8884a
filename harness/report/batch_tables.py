"""Batch headers and records as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

Row = Mapping[str, object]


Name = Callable[[object], str]
"""How a payload or an operation is named: by its number, or by the client that made it."""


_WHEN: Final = "%Y-%m-%d %H:%M:%S.%f"


def headers(rows: Sequence[Row], *, at: int = -1) -> list[str]:
    """Batch headers as lines; `>` is the one that holds offset `at`."""
    columns: Mapping[str, Callable[[Row], str]] = {
        "": lambda r: ">" if _holds(r, at) else "",
        "log": lambda r: str(r["log"]),
        "offsets": lambda r: _span(r["base_offset"], r["last_offset"]),
        "records": lambda r: str(r["records"]),
        "kind": lambda r: str(r["kind"]),
        "producer": lambda r: _unless(r["producer_id"]),
        "epoch": lambda r: _unless(r["producer_epoch"]),
        "sequence": lambda r: _unless(r["base_sequence"]),
        "leader epoch": lambda r: str(r["leader_epoch"]),
        "bytes": lambda r: str(r["length"]),
        "CRC": lambda r: str(r["crc"]) + ("" if r["crc_ok"] else " WRONG"),
        "codec": lambda r: str(r["codec"]),
        "time": lambda r: moment(r["timestamp"]),
        "file and byte": lambda r: f"{r['file']} {r['position']}",
    }
    return _table(rows, columns)


def records(rows: Sequence[Row], *, at: int = -1, name: Name = str) -> list[str]:
    """Records as lines; `>` is the one at offset `at`."""
    columns: Mapping[str, Callable[[Row], str]] = {
        "": lambda r: ">" if r["offset"] == at else "",
        "offset": lambda r: str(r["offset"]),
        "uid": lambda r: "-" if r["uid"] == -1 else name(r["uid"]),
        "operation": lambda r: "-" if r["operation"] == -1 else name(r["operation"]),
        "key bytes": lambda r: _unless(r["key_bytes"], "null"),
        "value bytes": lambda r: _unless(r["value_bytes"], "null"),
        "headers": lambda r: str(r["headers"]),
        "digest": lambda r: str(r["digest"]),
        "time": lambda r: moment(r["timestamp"]),
    }
    return _table(rows, columns)


def moment(milliseconds: object) -> str:
    """UTC to the millisecond; a time outside the calendar, as a number."""
    if not isinstance(milliseconds, int):
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(_WHEN)[:-3]
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)


def _table(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]) -> list[str]:
    """Aligned columns; those in which nothing stands are left out."""
    if not rows:
        return []
    cells = {name: [of(row) for row in rows] for name, of in columns.items()}
    kept = {name: values for name, values in cells.items() if any(values)}
    widths = {name: max(len(name), *map(len, values)) for name, values in kept.items()}

    def lines() -> Iterator[str]:
        yield "  ".join(name.ljust(widths[name]) for name in kept)
        for line in zip(*kept.values(), strict=True):
            yield "  ".join(text.ljust(widths[name]) for name, text in zip(kept, line, strict=True))

    return [line.rstrip() for line in lines()]


def _holds(row: Row, at: int) -> bool:
    first, last = row["base_offset"], row["last_offset"]
    return isinstance(first, int) and isinstance(last, int) and first <= at <= last


def _span(first: object, last: object) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _unless(value: object, word: str = "-") -> str:
    return word if value == -1 else str(value)
