"""The data of the page's script, as one JSON document, escaped for a script element.

The document of a big run has only the operations around anomalies, promotions and faults, and those
that did not end well. All other operations are one letter per bin and client. Batches are chosen in
the same way (`spark_verify.inspect.log_lanes`).

The document also has the rows that the report's search covers: anomalies, events, operations that
did not end well, and acknowledged commits with their markers. The page's script (search.js) has the
grammar of the search; docs/report.md explains the grammar.

`of` names the subjects of a row. Two rows have the same subject if every name in both has the same
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from linkflap.harness.model.events import Event
from linkflap.harness.model.payload import PROCESS_SHIFT, process_of
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.report.document import in_short
from linkflap.report.timeline import DrawnWindow, Floats, Ints, Series, in_words

if TYPE_CHECKING:
    from linkflap.spark_verify.inspect.log_lanes import Commits

MOST_EVENTS: Final = 3_000
MOST_TEXT: Final = 500_000
"""The largest number of characters in the texts of all events together."""
MOST_FOUND_OPERATIONS: Final = 1_000
_NAMES: Final = {
    "link": "link",
    "cluster": "cluster",
    "client": "client",
    "process": "process",
    "id": "fault",
    "broker": "broker",
}
"""The fields of events that name a subject -> the name of that subject in the search."""


def searched(
    series: Series,
    judged: Document,
    events: Sequence[Event],
    anomalies: Sequence[Mapping[str, Any]],
    commits: Commits | None,
) -> Mapping[str, object]:
    """The rows of the search, and the number of rows that are left out."""
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
    yield from _found_operations(series)


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


def _found_operations(series: Series) -> Iterator[Mapping[str, object]]:
    """The operations that failed or whose outcome is unknown."""
    done, clusters = series.done, list(series.done.clusters)
    for n in np.flatnonzero(np.array(done.outcome) != 0)[:MOST_FOUND_OPERATIONS].tolist():
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


def _commits(commits: Commits, series: Series, judged: Document) -> Mapping[str, object]:
    """Acknowledged commits as columns. `n` is the number of the anomaly of each commit, or 0."""
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
    """(operation, topic, partition) -> the number of its first anomaly."""
    return {
        (anomaly.evidence.get("operation"), anomaly.topic, anomaly.partition): number
        for number, anomaly in reversed(list(enumerate(judged.anomalies, start=1)))
    }


def _since(time: int, series: Series) -> float | None:
    at = (time - series.began) / 1e9
    return round(at, 3) if -1e6 < at < 1e7 else None


Lane = Mapping[str, Any]
MOST_OPERATIONS: Final = 12_000
MOST_MARKS: Final = 1_000
"""Failovers and promotions come first. The search covers the events of the marks left out."""
_NEAR: Final = 1.5
_STRIP: Final = 200
_LETTERS: Final = np.array(list(".oif"))
"""The states of a bin: nothing, all ok, one of unknown outcome, one that failed."""
_TIMES: Final = ("returned", "time", "invoked")


def script_safe(value: object) -> str:
    """The value as JSON for a script element. No string in the value can end the element or begin a
    comment."""
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def payload(
    series: Series,
    judged: Document,
    lanes: Sequence[Lane],
    events: Sequence[Event],
    clusters: Sequence[str],
    commits: Commits | None = None,
) -> object:
    """The data of the whole page. Times count from the first moment, in seconds; those of
    operations and batches in milliseconds."""
    drawn = [_lane(lane, series) for lane in lanes]
    anomalies = [
        _anomaly(number, each, judged, series, lanes)
        for number, each in enumerate(judged.anomalies, start=1)
    ]
    return {
        "length": round(series.length, 3),
        "clusters": list(clusters),
        "at": _rounded(series.at),
        "panels": _panels(series, clusters),
        "windows": [_window(window) for window in series.windows],
        "marks": [
            {"at": round(mark.at, 3), "label": mark.label, "kind": mark.kind}
            for mark in series.marks[:MOST_MARKS]
        ],
        "anomalies": anomalies,
        **_operations(series, [a["at"] for a in anomalies]),
        "lanes": drawn,
        "producers": sorted({label for lane in drawn for label in lane["labels"] if label}),
        **searched(series, judged, events, anomalies, commits),
    }


def _rounded(values: Floats, digits: int = 3) -> list[float | None]:
    return [None if np.isnan(v) else round(float(v), digits) for v in values]


def _panels(series: Series, clusters: Sequence[str]) -> list[Mapping[str, object]]:
    own = {name: f"--c{n % 6}" for n, name in enumerate(clusters)}
    plain = {"p50": "--c0", "p99": "--c1", "fail": "--fail", "info": "--info"}
    others = {name: f"--c{(n + 2) % 6}" for n, name in enumerate(series.lag)}
    panels = (
        ("acknowledged records per second", "acknowledged / s", series.acknowledged, own),
        ("records read per second", "read / s", series.read, own),
        ("latency of operations that succeeded, ms", "latency, ms", series.latency, plain),
        (
            "operations per second that failed or whose outcome is unknown (info)",
            "errors / s",
            series.errors,
            plain,
        ),
        ("lag in offsets, markers included", "lag, offsets", series.lag, others),
    )
    return [
        {
            "title": title,
            "short": short,
            "lines": {name: _rounded(v, 2) for name, v in lines.items()},
            "colors": colors,
        }
        for title, short, lines, colors in panels
        if any(np.nan_to_num(values).any() for values in lines.values())
    ]


def _window(window: DrawnWindow) -> Mapping[str, object]:
    bit = {None: "not measured", True: "bit", False: "did not bite"}[window.bit]
    return {
        "start": round(window.start, 3),
        "end": round(window.end, 3),
        "bite": None if window.bite is None else round(window.bite, 3),
        "heal": None if window.heal is None else round(window.heal, 3),
        "lasting": window.lasting,
        "bit": window.bit,
        "label": f"{window.fault} {window.target}"
        + ("" if window.bit is not False else " (did not bite)"),
        "title": f"{window.fault} {window.target} ({window.id}): {bit}",
    }


def _lane(lane: Lane, series: Series) -> dict[str, Any]:
    """A lane with times since the first moment. Each producer id is named by the cluster that
    handed the id out."""
    began = series.began // 1_000_000
    times, high, stable = series.levels.get(
        (lane["cluster"], lane["topic"], lane["partition"]), ([], [], [])
    )
    bins = lane["bins"] and {
        **lane["bins"],
        "time": [time - began if time else 0 for time in lane["bins"]["time"]],
    }
    who, labels = _named(lane, series)
    return {
        **lane,
        "time": [time - began for time in lane["time"]],
        "who": who,
        "labels": [label for _, label in labels],
        "producers": [list(producer) for producer, _ in labels],
        "bins": bins,
        "samples": {
            "at": [round(float(t), 3) for t in times],
            "high": [int(v) for v in high],
            "stable": [int(v) for v in stable],
        },
    }


def _named(lane: Lane, series: Series) -> tuple[list[int], list[tuple[tuple[int, int], str]]]:
    """The producer of each batch, and the producers. An id that two clusters handed out counts as
    two producers."""
    starts = [era["start"] for era in lane["eras"]] or [0]
    owners = [era["owner"] for era in lane["eras"]] or [lane["cluster"]]
    eras: list[int] = np.clip(
        np.searchsorted(starts, np.array(lane["base"], np.int64), side="right") - 1,
        0,
        len(owners) - 1,
    ).tolist()
    found: dict[tuple[int, str], int] = {}
    labels: list[tuple[tuple[int, int], str]] = []
    who = []
    for producer, era in zip(lane["who"], eras, strict=True):
        key = (producer, owners[era])
        if key not in found:
            found[key] = len(labels)
            pid, epoch = lane["producers"][producer]
            labels.append(((pid, epoch), _label(owners[era], pid, epoch, series)))
        who.append(found[key])
    return who, labels


def _label(owner: str, pid: int, epoch: int, series: Series) -> str:
    if pid == -1:
        return ""
    process = series.done.ids.get((owner, pid, epoch))
    return (
        f"{series.done.clients[process]} (id {pid})"
        if process in series.done.clients
        else f"id {pid}, epoch {epoch}"
    )


def _anomaly(
    number: int, each: Anomaly, judged: Document, series: Series, lanes: Sequence[Lane]
) -> dict[str, Any]:
    there = each.evidence.get("source_offset")
    at = _moment(each, series, lanes)
    return {
        "n": number,
        "kind": each.kind,
        "check": each.check,
        "cluster": each.cluster,
        "topic": each.topic,
        "partition": each.partition,
        "offset": each.offset,
        "allowed": each.allowed,
        "sentence": in_short(each.sentence),
        "first": bool(judged.causes) and judged.causes[0].anomaly == number,
        "source": str(each.evidence.get("source", "")),
        "there": there if isinstance(there, int) and there >= 0 else each.offset,
        "at": at,
    }


def _moment(each: Anomaly, series: Series, lanes: Sequence[Lane]) -> float | None:
    """When the anomaly happened: by its evidence, else the return of its operation, else the
    timestamp of its batch."""
    times = (value for name in _TIMES if isinstance(value := each.evidence.get(name), int))
    time = next(times, None)
    operation = each.evidence.get("operation")
    if time is None and isinstance(operation, int):
        time = series.done.ends(operation)
    if time is None and each.offset >= 0:
        key = (each.cluster, each.topic, each.partition)
        for lane in (
            lane for lane in lanes if (lane["cluster"], lane["topic"], lane["partition"]) == key
        ):
            row = int(np.searchsorted(lane["base"], each.offset, side="right")) - 1
            if row >= 0 and each.offset < lane["base"][row] + lane["count"][row]:
                time = lane["time"][row] * 1_000_000
                break
    if time is None:
        return None
    return round(min(max((time - series.began) / 1e9, 0.0), series.length), 3)


def _operations(series: Series, moments: Sequence[float | None]) -> Mapping[str, object]:
    """The operations of each client; all incarnations of a client share one row."""
    done = series.done
    names = sorted({label.partition("/")[0] for label in done.clients.values()})
    row_of = np.zeros(max(done.clients, default=0) + 1, np.int64)
    for process, label in done.clients.items():
        row_of[process] = names.index(label.partition("/")[0])
    columns = {
        name: np.array(getattr(done, name), np.int64)
        for name in ("start", "took", "process", "outcome", "ending")
    }
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["start"] = (columns["start"] - series.began) // 1_000_000
    columns["took"] = columns["took"] // 1_000_000
    client = (
        row_of[np.clip(columns["process"], 0, len(row_of) - 1)] if len(order) else columns["start"]
    )
    kept = _kept(columns["start"], columns["outcome"], series, moments)
    rows = {
        "start": columns["start"][kept],
        "took": columns["took"][kept],
        "client": client[kept],
        "outcome": columns["outcome"][kept],
    }
    return {
        "clients": names,
        "strips": _strips(columns["start"], client, columns["outcome"], len(names), series.length),
        "operations": {name: column.tolist() for name, column in rows.items()},
        "operations_left_out": len(order) - len(kept),
    }


def _kept(start: Ints, outcome: Ints, series: Series, moments: Sequence[float | None]) -> Ints:
    if len(start) <= MOST_OPERATIONS:
        return np.arange(len(start))
    points = [m for m in moments if m is not None] + [mark.at for mark in series.marks]
    points += [edge for w in series.windows for edge in (w.start, w.end)]
    edges = np.array([-np.inf, *sorted(points), np.inf])
    after = np.searchsorted(edges, start / 1000)
    away = np.minimum(start / 1000 - edges[after - 1], edges[after] - start / 1000)
    found = np.flatnonzero((outcome != 0) | (away < _NEAR))
    if len(found) <= MOST_OPERATIONS:
        return found
    # Rows are spread over the entire run, failures first.
    bad = found[outcome[found] != 0]
    bad, good = _spread(bad, MOST_OPERATIONS // 2), found[outcome[found] == 0]
    return np.sort(np.concatenate((bad, _spread(good, MOST_OPERATIONS - len(bad)))))


def _spread(rows: Ints, most: int) -> Ints:
    """At most `most` rows, evenly spread from the first to the last."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64))]


def _strips(start: Ints, client: Ints, outcome: Ints, clients: int, length: float) -> list[str]:
    """One letter per bin for each client: the worst outcome of the operations that began then."""
    worst = np.zeros((clients, _STRIP), np.int64)
    at = np.clip(start / 1000 / max(length, 1e-9) * _STRIP, 0, _STRIP - 1).astype(np.int64)
    rank = np.array([1, 3, 2])[outcome] if len(outcome) else outcome
    if len(at):
        np.maximum.at(worst, (client, at), rank)
    return ["".join(_LETTERS[row]) for row in worst]
