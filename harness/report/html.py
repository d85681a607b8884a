"""report.html: one self-contained page that a person reads after a run. No script, nothing fetched, everything escaped.

It is written for damaged and empty runs too: what is missing is named, and never left to look like nothing happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.harness.report.document import era_lines, in_short, read
from linkflap.harness.report.series import Series, series
from linkflap.harness.report.timeline import svg
from linkflap.harness.rundir import Damage, RunReader, write_whole

NAME: Final = "report.html"
_MOST_OF_A_KIND: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Anomalies of one check and kind: those shown, and how many were found."""

    check: str
    kind: str
    meaning: str
    shown: tuple[Anomaly, ...]
    count: int


def write(
    folder: Path,
    document: Mapping[str, object],
    *,
    drawing: str = "",
    meanings: Mapping[str, str] | None = None,
    into: Path | None = None,
) -> Path:
    """Writes the page into the run directory, or another folder, and returns its path.

    `drawing` is the topology's (topologies.draw); `meanings` says what each kind of anomaly means. Raises InputError when the
    folder is no run directory or the document is no verdict.
    """
    path = (into or folder) / NAME
    write_whole(path, page(folder, document, drawing=drawing, meanings=meanings).encode("utf-8", "backslashreplace"))
    return path


def page(folder: Path, document: Mapping[str, object], *, drawing: str = "", meanings: Mapping[str, str] | None = None) -> str:
    """The page's text."""
    judged, reader = read(document), RunReader(folder)
    shown = series(reader)
    environment = Environment(
        loader=PackageLoader("linkflap.harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": in_short, "number": _number, "moment": _moment}
    return environment.get_template("report.html").render(
        judged=judged,
        eras=era_lines(judged),
        run=reader.run,
        folder=str(folder),
        drawing=drawing or _links(reader.run.scenario.topology),
        series=shown,
        timeline=Markup(svg(shown)),  # matplotlib escapes its texts
        violations=_groups(judged, meanings or {}, allowed=False),
        allowed=_groups(judged, meanings or {}, allowed=True),
        damage=_damage(reader, shown),
        verify=f"linkflap verify {quote(str(folder))}",
        total=_total(judged),
    )


def _links(topology: Topology) -> str:
    """Clusters and links in words, for whoever has no drawing."""
    clusters = [f"{c.name}  {c.brokers} broker{'s' if c.brokers != 1 else ''}  Kafka {c.kafka}" for c in topology.clusters]
    return "\n".join([*clusters, "", *(link.name for link in topology.links)])


def _groups(judged: Document, meanings: Mapping[str, str], *, allowed: bool) -> list[Group]:
    found: dict[tuple[str, str], list[Anomaly]] = defaultdict(list)
    for anomaly in judged.departures if allowed else judged.violations:
        found[anomaly.check, anomaly.kind].append(anomaly)
    others = {(anomaly.check, anomaly.kind) for anomaly in judged.anomalies if anomaly.allowed is not allowed}
    counts = {(check.name, kind): count for check in judged.checks for kind, count in check.kinds.items()}
    return [
        Group(
            check=check,
            kind=kind,
            meaning=meanings.get(kind, ""),
            shown=tuple(rows[:_MOST_OF_A_KIND]),
            # The document counts a kind as a whole; where it was allowed here and not there, what it lists is all that is known.
            count=len(rows) if (check, kind) in others else max(len(rows), counts.get((check, kind), 0)),
        )
        for (check, kind), rows in found.items()
    ]


def _damage(reader: RunReader, shown: Series) -> list[Damage]:
    """Everything that cannot be trusted, each once."""
    bounds = [damage for moment in reader.moments() for damage in reader.bounds(moment)[1]]
    return list({(d.path, d.reason): d for d in (*reader.damage(), *shown.damage, *bounds)}.values())


def _total(judged: Document) -> Mapping[str, int]:
    return {
        "anomalies": max(sum(c.anomalies for c in judged.checks), len(judged.violations)),
        "allowed": max(sum(c.allowed for c in judged.checks), len(judged.departures)),
    }


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "unknown"
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def _moment(nanoseconds: int) -> str:
    """UTC, to the second; what no calendar has, as a number."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if nanoseconds else "never"
    except (OverflowError, OSError, ValueError):
        return f"{nanoseconds:.4g} ns after 1970, which is in no calendar"
