"""report.html: one self-contained page about a run: the cause, its evidence, and all details.

The page fetches nothing. All text of a run is escaped, and the page allows its one script by the
hash of that script. Damaged and empty runs get a page too. Their page names the missing parts, so
that an absence never looks like a quiet run.

The page shows the output of a run's processes around a moment: a few lines of each log, and a link
to the log.

Brokers print local time without a zone. The zone follows from the run's own clock: the log begins
when the run did.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from jinja2 import (
    Environment,
    FileSystemBytecodeCache,
    PackageLoader,
    StrictUndefined,
    Template,
)
from jinja2.bccache import Bucket
from markupsafe import Markup

from linkflap.harness.machine import untrusted_files
from linkflap.harness.machine.cache import optional
from linkflap.harness.model.texts import printable
from linkflap.harness.model.verdict import Anomaly, Cause, CheckResult, Document
from linkflap.harness.rundir import Damage, RunReader, write_whole
from linkflap.report import evidence
from linkflap.report.document import era_lines, in_short, read
from linkflap.report.page_data import payload, script_safe
from linkflap.report.timeline import Series, label, series
from linkflap.topologies.notation import rows

if TYPE_CHECKING:
    from linkflap.spark_verify.inspect.explain import Explanation
    from linkflap.spark_verify.inspect.log_lanes import Commits

MOST_LINES: Final = 14
_MOST_LOGS: Final = 60
_AROUND: Final = 2.0
_MOST_BYTES: Final = 16 << 20
_WIDEST: Final = 300
_TIME: Final = re.compile(r"\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
_QUARTER: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of one log around the moment. `path` is the log's in the run directory; `line` is the
    number of the first line, 0 if there is none."""

    path: str
    lines: Sequence[str]
    line: int = 0


def excerpts(folder: Path, started: int, moment: int | None) -> Sequence[Excerpt]:
    """An excerpt of every log of a process. The excerpt has lines if there is a moment
    (nanoseconds) and the log has times."""
    found = []
    for path in sorted(folder.glob("logs/**/*.log"))[:_MOST_LOGS]:
        try:
            with untrusted_files.opened(path, root=folder) as file:
                size = os.fstat(file.fileno()).st_size
                numbered = (
                    list(_around(file, started, moment))
                    if moment is not None and size <= _MOST_BYTES
                    else []
                )
            if size:
                first, lines = numbered[0][0] if numbered else 0, [line for _, line in numbered]
                found.append(
                    Excerpt(path=path.relative_to(folder).as_posix(), lines=lines, line=first)
                )
        except OSError:
            continue  # of an application that still has it
    return found


def _around(file: BinaryIO, started: int, moment: int) -> Iterator[tuple[int, str]]:
    """The lines around the moment, with their numbers."""
    zone: float | None = None
    taken = 0
    for number, content in enumerate(untrusted_files.lines(file), start=1):
        line = content.decode(errors="replace")
        seconds = _seconds(line)
        if seconds is None:
            continue
        if zone is None:
            zone = round((seconds - started / 1e9) / _QUARTER) * _QUARTER
        if abs(seconds - zone - moment / 1e9) <= _AROUND:
            yield number, line.rstrip("\n")[:_WIDEST]
            taken += 1
            if taken == MOST_LINES:
                return


def _seconds(line: str) -> float | None:
    found = _TIME.match(line)
    if found is None:
        return None
    try:
        return (
            datetime.fromisoformat(f"{found[1]}T{found[2]}.{found[3]}")
            .replace(tzinfo=UTC)
            .timestamp()
        )
    except ValueError:
        return None


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates in linkflap's cache folder: compiling one takes a fifth of the time that
    the command line spends on a verdict."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def environment_of() -> Environment:
    compiled = optional("templates")
    environment = Environment(
        loader=PackageLoader("linkflap.report"),
        bytecode_cache=_Compiled(str(compiled)) if compiled else None,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": in_short, "number": _number, "moment": _moment}
    return environment


def surroundings_of(reader: RunReader, shown: Series) -> Mapping[str, str]:
    """The environment of the run: versions, clusters and their settings, the mirror's options, host
    stalls."""
    run = reader.run
    found = {
        "linkflap": run.linkflap,
        **{name: str(value) for name, value in run.versions.items()},
        **run.environment,
    }
    for cluster in run.scenario.topology.clusters:
        brokers = f"{cluster.brokers} broker{'s' if cluster.brokers != 1 else ''}"
        found[f"cluster {cluster.name}"] = (
            f"not started by linkflap, at {cluster.bootstrap}"
            if cluster.bootstrap
            else f"Kafka {cluster.kafka}, {brokers}, {_settings(cluster.config)}"
        )
    topics, mirror = run.scenario.topics, run.scenario.mirror
    found["topics"] = (
        f"{topics.partitions} partitions, {topics.replicas} replicas at most, "
        f"{_settings(topics.config)}"
    )
    for number, each in enumerate(run.scenario.workloads, start=1):
        found[f"workload {number}"] = (
            f"{each.clients} {each.kind} at {each.home}, {_settings(each.options)}"
        )
    for name, value in (mirror.resolved or mirror.options).items():
        found[f"{mirror.kind} {name}"] = f"{value}" + (
            " (set)" if name in mirror.options else " (default)"
        )
    stalls = [mark.label for mark in shown.marks if mark.kind == "host-stall"]
    found["host stalls"] = "; ".join(stalls) or "none was seen"
    return found


def _settings(given: Mapping[str, object]) -> str:
    """The settings that differ from their defaults, as text."""
    return (
        ", ".join(f"{name}={value}" for name, value in given.items())
        or "no settings but those of linkflap"
    )


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "unknown"
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".strip()


def _moment(nanoseconds: int) -> str:
    """UTC, to the second; a time outside the calendar, as a number."""
    try:
        return (
            datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            if nanoseconds
            else "never"
        )
    except (OverflowError, OSError, ValueError):
        return f"{nanoseconds:.4g} ns after 1970, which is in no calendar"


NAME: Final = "report.html"
MOST_ROWS: Final = 300
"""The largest number of rows in a table of partitions or faults; verdict.json and events.jsonl have
all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The page's content beside the document; every part may be missing.

    `meanings` has the meaning of each kind of anomaly. `promises` has the guarantee of each check,
    `facts` its other facts from docs/checks.md, and `kinds` its anomalies with their meaning and
    smallest example. `lanes` are the logs, `explained` is the first anomaly of each kind, and
    `commits` are the acknowledged commits with their markers.
    """

    meanings: Mapping[str, str] = field(default_factory=dict)
    promises: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    lanes: Sequence[Mapping[str, Any]] = ()
    explained: Sequence[Explanation] = ()
    commits: Commits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Anomalies of one kind. `shown` are those in the document with their numbers, `count` is the
    number of all."""

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
    write_whole(path, printable(page(folder, document, about)).encode())
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
            clusters=rows(reader.run.scenario.topology),
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
    """The stylesheet of all pages."""
    return _file("report.css")


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
    """Groups the anomalies by kind, in the order of the document."""
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


def _explained(explanations: Sequence[Explanation], shown: Series) -> Mapping[int, str]:
    """The number of an anomaly -> the text of `linkflap explain`, with payloads named by their
    clients."""
    found = {}
    for each in explanations:
        text = io.StringIO()
        evidence.write_explanation(
            each, text, name=lambda number: label(shown.done.clients, number) or str(number)
        )
        found[each.number] = text.getvalue()
    return found


def _by_verdict(judged: Document) -> Mapping[str, list[CheckResult]]:
    """The checks by verdict; the page folds the valid ones and those not due."""
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
    """The time of the first cause, in nanoseconds; None if it is not known."""
    first: Cause | None = next(iter(judged.causes), None)
    rows = drawn["anomalies"] if isinstance(drawn, dict) else []
    at = rows[first.anomaly - 1]["at"] if first and 0 < first.anomaly <= len(rows) else None
    return None if at is None else shown.began + int(at * 1e9)


def _damage(reader: RunReader, shown: Series) -> list[Damage]:
    """All damage of the run directory, each piece once."""
    bounds = [damage for moment in reader.moments() for damage in reader.bounds(moment)[1]]
    return list(
        {(d.path, d.reason): d for d in (*reader.damage(), *shown.damage, *bounds)}.values()
    )


def _total(judged: Document) -> Mapping[str, int]:
    return {
        "anomalies": max(sum(c.anomalies for c in judged.checks), len(judged.violations)),
        "allowed": max(sum(c.allowed for c in judged.checks), len(judged.departures)),
    }


SUITE_PAGE: Final = "suite.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure: its runs, its cause and other facts, the command that reproduces it, and its
    files by name."""

    kind: str
    runs: Sequence[str]
    command: str
    cause: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: its verdict, name and path, and the other columns."""

    verdict: str
    name: str
    cells: Sequence[str]
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTable:
    """A table of counts; 0 is shown as never, None as not due."""

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[int | None]]
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of the page. `columns` are the headings of `rows`; the first two are verdict and
    run."""

    verdict: str
    title: str
    about: str
    lines: Sequence[str]
    failures: Sequence[Failure]
    columns: Sequence[str]
    rows: Sequence[Row]
    tables: Sequence[CountTable] = ()


def text(page: Page) -> str:
    """The file's text."""
    return template("suite.html").render(page=page, style=Markup(stylesheet()))
