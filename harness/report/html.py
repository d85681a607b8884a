"""report.html: one self-contained page about a run: the cause, its evidence, and all details.

Nothing is fetched, everything that comes from a run is escaped, and the one script is allowed by
its hash alone. Damaged and empty runs get a page too: it names what is missing, so that an absence
never looks like a quiet run.
"""

from __future__ import annotations

import hashlib
import io
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup

from linkflap.harness.model.topology import Topology
from linkflap.harness.model.verdict import Anomaly, Cause, CheckResult, Document
from linkflap.harness.report import evidence
from linkflap.harness.report.broker_logs import Excerpt, excerpts
from linkflap.harness.report.document import era_lines, read
from linkflap.harness.report.operations import label
from linkflap.harness.report.payload import payload, script_safe
from linkflap.harness.report.searched import ShownCommits
from linkflap.harness.report.series import Series, series
from linkflap.harness.report.surroundings import environment_of, surroundings_of
from linkflap.harness.rundir import Damage, RunReader, write_whole

NAME: Final = "report.html"
MOST_ROWS: Final = 300
"""The maximum of rows in a table of partitions or faults; verdict.json and events.jsonl have them
all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The page's content beside the document; all of it may be missing.

    `drawing` is the topology's (topologies.draw); `meanings` says what each kind of anomaly means.
    Of each check, `promises` is its guarantee, `facts` what else docs/checks.md says of it, and
    `kinds` its anomalies, what they mean and their smallest example. `lanes` are the logs
    (`lanes`), `explained` the first anomaly of each kind, `commits` the acknowledged commits with
    their markers.
    """

    drawing: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    promises: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    lanes: Sequence[Mapping[str, Any]] = ()
    explained: Sequence[evidence.ShownExplanation] = ()
    commits: ShownCommits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Anomalies of one kind: those in the document with their numbers, and how many were found."""

    check: str
    kind: str
    meaning: str
    citation: str
    shown: Sequence[tuple[int, Anomaly]]
    count: int


def write(
    folder: Path,
    document: Mapping[str, object],
    about: About | None = None,
    *,
    into: Path | None = None,
) -> Path:
    """Writes the page into the run directory, or another folder, and returns its path.

    Raises InputError when the folder is no run directory or the document is no verdict.
    """
    path = (into or folder) / NAME
    write_whole(path, page(folder, document, about).encode("utf-8", "backslashreplace"))
    return path


def page(folder: Path, document: Mapping[str, object], about: About | None = None) -> str:
    """The page's text."""
    about, judged, reader = about or About(), read(document), RunReader(folder)
    shown, events = series(reader), reader.events()[0]
    script = _file("search.js") + _file("report.js")
    clusters = [cluster.name for cluster in reader.run.scenario.topology.clusters]
    drawn = payload(shown, judged, about.lanes, events, clusters, about.commits)
    return (
        environment_of()
        .get_template("report.html")
        .render(
            judged=judged,
            run=reader.run,
            folder=str(folder),
            drawing=about.drawing or _links(reader.run.scenario.topology),
            series=shown,
            style=Markup(_file("report.css")),
            script=Markup(script),
            script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=Markup(script_safe(drawn)),
            has_lanes=bool(about.lanes),
            causes=[
                (cause, _caused(number, judged, about.meanings))
                for number, cause in enumerate(judged.causes, start=1)
            ],
            more=_groups(
                [(n, a) for n, a in _numbered(judged) if a.cause > len(judged.causes)],
                judged,
                about.meanings,
            ),
            most=MOST_ROWS,
            unproven=_groups(
                [(n, a) for n, a in _numbered(judged) if not a.allowed and not a.cause],
                judged,
                about.meanings,
            ),
            allowed=_groups(
                [(n, a) for n, a in _numbered(judged) if a.allowed],
                judged,
                about.meanings,
                _citations(reader),
            ),
            explained=_explained(about.explained, shown),
            checks=_by_verdict(judged),
            promises=about.promises,
            facts=about.facts,
            kinds=about.kinds,
            described={check.name for check in judged.checks} & set(about.promises),
            firsts=_firsts(judged),
            logs=excerpts(folder, reader.run.started, _first_moment(drawn, judged, shown)),
            environment=surroundings_of(reader, shown),
            eras=era_lines(judged),
            damage=_damage(reader, shown),
            verify=f"linkflap verify {quote(str(folder))}",
            explain=f"linkflap explain {quote(str(folder))}",
            total=_total(judged),
        )
    )


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """A template of this package: everything that is put into it is escaped."""
    return environment_of().get_template(name)


def stylesheet() -> str:
    """What all pages look like."""
    return _file("report.css")


def _links(topology: Topology) -> str:
    """Clusters and links in words, for readers without the drawing."""
    clusters = [
        f"{c.name}  {c.brokers} broker{'s' if c.brokers != 1 else ''}  Kafka {c.kafka}"
        for c in topology.clusters
    ]
    return "\n".join([*clusters, "", *(link.name for link in topology.links)])


def _numbered(judged: Document) -> list[tuple[int, Anomaly]]:
    return list(enumerate(judged.anomalies, start=1))


def _caused(number: int, judged: Document, meanings: Mapping[str, str]) -> list[Group]:
    return _groups([(n, a) for n, a in _numbered(judged) if a.cause == number], judged, meanings)


def _groups(
    rows: Sequence[tuple[int, Anomaly]],
    judged: Document,
    meanings: Mapping[str, str],
    citations: Mapping[str, str] | None = None,
) -> list[Group]:
    """By kind, in the order of the document."""
    found: dict[tuple[str, str], list[tuple[int, Anomaly]]] = defaultdict(list)
    for number, anomaly in rows:
        found[anomaly.check, anomaly.kind].append((number, anomaly))
    counts = {
        (check.name, kind): count for check in judged.checks for kind, count in check.kinds.items()
    }
    alike = {
        (anomaly.check, anomaly.kind, anomaly.allowed, anomaly.cause)
        for anomaly in judged.anomalies
    }
    return [
        Group(
            check=check,
            kind=kind,
            meaning=meanings.get(kind, ""),
            citation=(citations or {}).get(kind, ""),
            shown=mine,
            # The document counts a kind as a whole; where it is in several sections, what it lists
            # is all that is known of each.
            count=(
                len(mine)
                if sum((c, k) == (check, kind) for c, k, _, _ in alike) > 1
                else max(len(mine), counts.get((check, kind), 0))
            ),
        )
        for (check, kind), mine in found.items()
    ]


def _citations(reader: RunReader) -> Mapping[str, str]:
    """The source in the mirror's guarantee that allows a kind of anomaly."""
    declared = reader.run.scenario.mirror.declared
    return (
        {line.kind: f"{line.citation} ({line.window}; {line.bound})" for line in declared.allowed}
        if declared
        else {}
    )


def _explained(
    explanations: Sequence[evidence.ShownExplanation], shown: Series
) -> Mapping[int, str]:
    """By number of the anomaly, what `linkflap explain` shows of it, with payloads named by who
    made them."""
    found = {}
    for each in explanations:
        text = io.StringIO()
        evidence.write_explanation(
            each, text, name=lambda number: label(shown.done.clients, number) or str(number)
        )
        found[each.number] = text.getvalue()
    return found


def _by_verdict(judged: Document) -> Mapping[str, list[CheckResult]]:
    """Checks that are invalid or unknown; those that are valid or not due, which are folded."""
    found: dict[str, list[CheckResult]] = {"invalid": [], "unknown": [], "valid": [], "not due": []}
    for check in judged.checks:
        found[check.verdict.value].append(check)
    return found


def _firsts(judged: Document) -> Mapping[str, int]:
    """Check -> the number of its first anomaly."""
    found: dict[str, int] = {}
    for number, anomaly in _numbered(judged):
        found.setdefault(anomaly.check, number)
    return found


def _first_moment(drawn: object, judged: Document, shown: Series) -> int | None:
    """When the first cause was, in nanoseconds."""
    first: Cause | None = next(iter(judged.causes), None)
    rows = drawn["anomalies"] if isinstance(drawn, dict) else []
    at = rows[first.anomaly - 1]["at"] if first and 0 < first.anomaly <= len(rows) else None
    return None if at is None else shown.began + int(at * 1e9)


def _damage(reader: RunReader, shown: Series) -> list[Damage]:
    """Everything that cannot be trusted, each once."""
    bounds = [damage for moment in reader.moments() for damage in reader.bounds(moment)[1]]
    return list(
        {(d.path, d.reason): d for d in (*reader.damage(), *shown.damage, *bounds)}.values()
    )


def _total(judged: Document) -> Mapping[str, int]:
    return {
        "anomalies": max(sum(c.anomalies for c in judged.checks), len(judged.violations)),
        "allowed": max(sum(c.allowed for c in judged.checks), len(judged.departures)),
    }


__all__ = ["About", "Excerpt", "Group", "page", "script_safe", "stylesheet", "template", "write"]
