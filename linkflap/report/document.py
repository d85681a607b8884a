"""The verdict document (`harness.model.verdict.Document`) read from JSON, with any of its parts
missing, and its eras in lines.

A check that crashed, a run without failovers or an older linkflap leaves parts out. Each missing
part has an empty value, because a report must never hide a verdict. Only a document of another kind
raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import all_printable
from linkflap.harness.model.verdict import ORDER, Document, EraResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EraLine:
    """One era of a cluster, all partitions together."""

    cluster: str
    what: str
    partitions: int
    offsets: str
    compared: Mapping[str, int]
    anomalies: int
    allowed: int
    verdict: Verdict


def era_lines(judged: Document) -> list[EraLine]:
    """The eras, one line per cluster and era. Partitions share a line if their logs began alike and
    the era has the same words."""
    groups: dict[tuple[object, ...], list[EraResult]] = {}
    begun: dict[tuple[str, int, str, int], tuple[str, ...]] = {}
    ordinals: dict[tuple[object, ...], int] = {}
    for row in judged.eras:
        log, whose = (
            (row.topic, row.partition, row.cluster, row.generation),
            (row.origin, row.source, row.owner),
        )
        # A cluster's own topics and those that it took over are both native, and have own lines.
        same = begun.setdefault(log, whose), *whose
        ordinals[log, same] = ordinals.get((log, same), -1) + 1
        groups.setdefault(
            (row.cluster, row.generation, row.truncated, same, ordinals[log, same]), []
        ).append(row)
    # In the order of offsets, truncated eras before their replacements.
    ordered = sorted(
        groups.values(), key=lambda rows: (rows[0].cluster, rows[0].start, not rows[0].truncated)
    )
    return [_line(rows) for rows in ordered]


def _line(rows: list[EraResult]) -> EraLine:
    first = rows[0]
    what = "native" if first.origin == "native" else f"from {first.source}"
    owner = f", written on {first.owner}" if first.source not in ("", first.owner) else ""
    compared: dict[str, int] = {}
    for row in rows:
        for unit, count in row.compared.items():
            compared[unit] = compared.get(unit, 0) + count
    spans = [f"{row.start:,}-{'' if row.end is None else format(row.end, ',')}" for row in rows]
    return EraLine(
        cluster=first.cluster,
        what=f"{what}{owner}{', truncated' if first.truncated else ''}",
        partitions=len(rows),
        offsets=f"{spans[0]}" + (f" and {len(spans) - 1} more" if len(spans) > 1 else ""),
        compared=compared,
        anomalies=sum(row.anomalies for row in rows),
        allowed=sum(row.allowed for row in rows),
        verdict=max((row.verdict for row in rows), key=ORDER.index),
    )


def read(document: Mapping[str, object]) -> Document:
    """The typed document, its texts printable. Raises InputError when it is not one."""
    known = {name: all_printable(v) for name, v in document.items() if v is not None}
    try:
        return msgspec.convert(known, Document, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(
            f"the verdict document cannot be read ({error}); judge the run directory again with "
            "linkflap verify"
        ) from None


def in_short(value: object, limit: int = 400) -> str:
    """Evidence on one line: strings unchanged, other values as JSON."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def first_of(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, and the number of the others."""
    more = len(lines) - most
    return [
        *lines[:most],
        *([f"... and {more:,} more, in the document of --json"] if more > 0 else []),
    ]
