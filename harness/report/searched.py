"""The rows that the report's search covers: anomalies, events, operations that did not end well,
and acknowledged commits with their markers. The page's script (search.js) has the grammar;
docs/report.md explains it.

`of` names the subjects of a row. Two rows are about the same thing when every name that both have
has one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np

from linkflap.harness.model.events import Event
from linkflap.harness.model.payload import PROCESS_SHIFT, process_of
from linkflap.harness.model.verdict import Document
from linkflap.harness.report.document import in_short
from linkflap.harness.report.operations import in_words
from linkflap.harness.report.series import Series

MOST_EVENTS: Final = 3_000
MOST_TEXT: Final = 500_000
"""Characters of all their texts together."""
MOST_OPERATIONS: Final = 1_000
_NAMES: Final = {
    "link": "link",
    "cluster": "cluster",
    "client": "client",
    "process": "process",
    "id": "fault",
    "broker": "broker",
}
"""The fields of events that name their subjects, and their names in the search."""


class ShownCommit(Protocol):
    """An acknowledged commit in one partition (`spark_verify.inspect.commits.Commit`)."""

    @property
    def operation(self) -> int: ...
    @property
    def cluster(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def ending(self) -> str: ...
    @property
    def marker(self) -> int: ...
    @property
    def written(self) -> int: ...


class ShownCommits(Protocol):
    """All of them (`spark_verify.inspect.commits.Commits`)."""

    @property
    def listed(self) -> Sequence[ShownCommit]: ...
    @property
    def counted(self) -> Mapping[str, int]: ...


def searched(
    series: Series,
    judged: Document,
    events: Sequence[Event],
    anomalies: Sequence[Mapping[str, Any]],
    commits: ShownCommits | None,
) -> Mapping[str, object]:
    """Rows of the search, and how many of them are left out."""
    rows = list(_rows(series, judged, events, anomalies))
    room = [
        row
        for row, length in zip(rows, accumulate(len(str(row["text"])) for row in rows), strict=True)
        if length <= MOST_TEXT
    ]
    listed = room[:MOST_EVENTS]
    return {
        "events": listed,
        "events_left_out": len(rows) - len(listed),
        "commits": _commits(commits, series, judged) if commits else None,
    }


def _rows(
    series: Series,
    judged: Document,
    events: Sequence[Event],
    anomalies: Sequence[Mapping[str, Any]],
) -> Iterator[Mapping[str, object]]:
    for each, row in zip(anomalies, judged.anomalies, strict=True):
        text = f"{each['n']}. {row.kind}: {each['sentence'] or row.where}"
        of = (
            {"cluster": row.cluster, "partition": f"{row.topic}-{row.partition}"}
            if row.topic
            else {"cluster": row.cluster}
        )
        yield {
            "at": each["at"],
            "kind": "allowed" if row.allowed else "anomaly",
            "text": text,
            "n": each["n"],
            "of": of,
        }
    for event in events:
        facts = ", ".join(
            f"{name} {in_short(in_words(value), 160)}" for name, value in event.row.data.items()
        )
        yield {
            "at": _since(event.time, series),
            "kind": event.kind,
            "text": f"{event.subject}{': ' if facts else ''}{in_short(facts)}",
            "of": _about(event),
        }
    yield from _operations(series)


def _about(event: Event) -> Mapping[str, str]:
    found = {
        label: str(value)
        for name, label in _NAMES.items()
        if isinstance(value := getattr(event, name, None), int | str)
    }
    topic, partition = getattr(event, "topic", None), getattr(event, "partition", None)
    return found | (
        {"partition": f"{topic}-{partition}"} if topic is not None and partition is not None else {}
    )


def _operations(series: Series) -> Iterator[Mapping[str, object]]:
    """Operations that did not end well: that failed, or whose outcome is unknown."""
    done, clusters = series.done, list(series.done.clusters)
    for n in np.flatnonzero(np.array(done.outcome) != 0)[:MOST_OPERATIONS].tolist():
        client, outcome = (
            done.clients.get(done.process[n], "?"),
            ("ok", "failed", "outcome unknown")[done.outcome[n]],
        )
        ending, cluster = (
            ("commit", "abort", "open", "send")[done.ending[n]],
            clusters[done.cluster[n]],
        )
        number = f"{client} #{done.number[n] & ((1 << PROCESS_SHIFT) - 1)}"
        yield {
            "at": _since(done.start[n], series),
            "kind": "operation",
            "text": f"{number} ({ending}) on {cluster}: {outcome} after {done.took[n] / 1e9:.2f} s",
            "of": {"client": client.partition("/")[0], "cluster": cluster, "operation": number},
        }


def _commits(commits: ShownCommits, series: Series, judged: Document) -> Mapping[str, object]:
    """Acknowledged commits as columns; `n` is the anomaly of each, 0 of most."""
    rows = commits.listed
    clients = sorted({process_of(row.operation) for row in rows})
    logs = sorted({(row.cluster, row.topic, row.partition) for row in rows})
    wrong = _first_anomalies(judged)
    return {
        "counted": dict(commits.counted),
        "clients": [series.done.clients.get(process, f"producer {process}") for process in clients],
        "logs": [list(log) for log in logs],
        "client": [clients.index(process_of(row.operation)) for row in rows],
        "number": [row.operation & ((1 << PROCESS_SHIFT) - 1) for row in rows],
        "log": [logs.index((row.cluster, row.topic, row.partition)) for row in rows],
        "at": [_since(row.returned, series) for row in rows],
        "written": [
            _since(row.written * 1_000_000, series) if row.written >= 0 else None for row in rows
        ],
        **{name: [getattr(row, name) for row in rows] for name in ("first", "ending", "marker")},
        "n": [wrong.get((row.operation, row.topic, row.partition), 0) for row in rows],
    }


def _first_anomalies(judged: Document) -> Mapping[tuple[object, str, int], int]:
    """(operation, topic, partition) -> the number of the first anomaly about it."""
    return {
        (anomaly.evidence.get("operation"), anomaly.topic, anomaly.partition): number
        for number, anomaly in reversed(list(enumerate(judged.anomalies, start=1)))
    }


def _since(time: int, series: Series) -> float | None:
    at = (time - series.began) / 1e9
    return round(at, 3) if -1e6 < at < 1e7 else None
