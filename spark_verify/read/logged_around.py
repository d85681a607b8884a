"""The log lines of brokers, mirrors and coordinators between the last good sample of an anomaly's
partition and the anomaly.

The last good sample is the last watermark before the anomaly began: before the anomaly's time, or
else before the high watermark passed its offset. The interval ends at the anomaly's time, or at the
first sample above its offset. It extends to the last sample if readers stood still from then on,
and always includes the failovers and truncations after the good sample. Without samples the
interval is the whole run. Nothing is judged here: a line that names the partition or has a matching
time need not be the cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from linkflap.harness.model.events import Event, Failover, Promotion, Truncation
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunReader
from linkflap.harness.rundir.process_logs import Logged, ProcessLogs, read

TIMES: Final = ("time", "returned", "invoked")
_LATE: Final = 2_000_000_000
"""Nanoseconds by which a process may log an action after its effect was visible."""
_QUOTED: Final = 300
_LOST: Final = re.compile(
    r"disconnected before|Connection to .* could not be established|TimeoutException"
)
"""Messages about a peer that does not answer. Faults cause them, so they explain least."""
_THREW: Final = re.compile(r": (?:\w+\.)*\w+(?:Exception|Error)\b")
MOST: Final = 12
"""Lines that are shown of an anomaly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAround:
    """Lines of one anomaly, those that name it first: `begin` and `end` in nanoseconds. `left_out`
    are kinds of lines that are not among them; `unread`, what of the logs was not looked at.

    `quoted`, for a sentence about the anomaly: of the lines that name its partition or producer,
    were not logged before, and are not of another cluster's process, the first error with an
    exception, else the first error, else the first line; empty without one. Lines about peers that
    did not answer are the last choice.
    """

    begin: int
    end: int
    lines: Sequence[Logged] = ()
    left_out: int = 0
    unread: Sequence[str] = ()
    quoted: str = ""


class RunLogs:
    """The logs of a run directory, read once, when they are first asked for."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    @cached_property
    def _logs(self) -> ProcessLogs:
        run = self._reader.run
        return read(self._reader.root, run.started, run.ended)

    def around(
        self,
        anomaly: Anomaly,
        samples: Sequence[Watermark],
        events: Sequence[Event],
    ) -> LoggedAround:
        """The log lines around an anomaly; `samples` are those of its partition, in any order."""
        run = self._reader.run
        begin, end = _window(anomaly, samples, events, run.started, run.ended or 1 << 62)
        lines = self._logs.between(begin, end, named_by(anomaly))
        missing = [] if self._logs.logs else ["logs/ has no log of a broker or mirror"]
        return LoggedAround(
            begin=begin,
            end=end,
            lines=lines[:MOST],
            left_out=max(0, len(lines) - MOST),
            unread=(*self._logs.unread, *missing),
            quoted=self._quoted(lines, anomaly.cluster),
        )

    def _quoted(self, lines: Sequence[Logged], cluster: str) -> str:
        others = {c.name for c in self._reader.run.scenario.topology.clusters} - {cluster}
        mine = [
            line
            for line in lines
            if line.names and not line.before and line.first
            if line.process.partition("/")[0] not in others
        ]
        if not mine:
            return ""
        line = min(mine, key=_says_least)
        half = _QUOTED // 2
        text = line.text if len(line.text) <= _QUOTED else f"{line.text[:half]}…{line.text[-half:]}"
        often = f" {line.count:,} times" if line.count > 1 else ""
        return f'meanwhile {line.process} logged {line.level} "{text}"{often}'


def _says_least(line: Logged) -> tuple[bool, bool, bool]:
    """The order in which lines are quoted: the highest explains an anomaly least."""
    return (
        _LOST.search(line.text) is not None,
        line.level != "ERROR",
        _THREW.search(line.text) is None,
    )


def named_by(anomaly: Anomaly) -> re.Pattern[str] | None:
    """A pattern for lines that name the partition, producer id or transactional id of an anomaly;
    None if it has none of these."""
    evidence, found = anomaly.evidence, []
    if anomaly.topic and anomaly.partition >= 0:
        topic = re.escape(anomaly.topic)
        found.append(
            rf"(?<![\w.-]){topic}(?:-|,? partition[ =]){anomaly.partition}(?!\d|[\w-]*\w\.)"
        )
    pid = evidence.get("producer_id")
    if isinstance(pid, int) and pid >= 0:
        found.append(rf"(?i:\b(?:producer[ _-]?id|pid)\b[ =:]*){pid}(?!\d)")
    name = evidence.get("transactional_id")
    if isinstance(name, str) and name:
        found.append(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
    return re.compile("|".join(found)) if found else None


def _window(
    anomaly: Anomaly, samples: Sequence[Watermark], events: Sequence[Event], began: int, ended: int
) -> tuple[int, int]:
    mine, seen = _samples_of(anomaly, samples), _seen(anomaly)
    if not mine or (seen is None and anomaly.offset < 0):
        return began, (ended if seen is None else seen + _LATE)
    first = next((n for n, row in enumerate(mine) if _there(row, anomaly.offset, seen)), len(mine))
    begin = mine[first - 1].time if first else began
    changed = [event.time for event in events if event.time >= begin and _changes(event, anomaly)]
    return begin, max([*changed, seen or 0, _reached(mine, first, anomaly.offset, ended)]) + _LATE


def _samples_of(anomaly: Anomaly, samples: Sequence[Watermark]) -> Sequence[Watermark]:
    """The samples of the anomaly's log, in time order."""
    log = (anomaly.cluster, anomaly.topic, anomaly.partition)
    mine = [row for row in samples if (row.cluster, row.topic, row.partition) == log]
    return sorted(mine, key=lambda row: row.time)


def _seen(anomaly: Anomaly) -> int | None:
    """When an anomaly was seen, where its evidence says so."""
    times = (anomaly.evidence.get(name) for name in TIMES)
    return next((at for at in times if isinstance(at, int)), None)


def _reached(mine: Sequence[Watermark], first: int, offset: int, ended: int) -> int:
    """The end of an anomaly's interval: its first sample, or the last sample if readers stand still
    at it until then; without samples, the run's end."""
    if first == len(mine):
        return ended
    last = mine[-1]
    stuck = last.last_stable <= offset < last.high_watermark
    return last.returned if stuck else mine[first].returned


def _there(row: Watermark, offset: int, seen: int | None) -> bool:
    """Whether an anomaly was there when a sample was taken."""
    return row.time >= seen if seen is not None else row.high_watermark > offset


def _changes(event: Event, anomaly: Anomaly) -> bool:
    """Whether an event changed the owner of the partition's offsets."""
    match event:
        case Promotion() | Truncation():
            return event.tp == (anomaly.topic, anomaly.partition)
        case Failover():
            return True
    return False


def samples_of(
    reader: RunReader, anomalies: Sequence[Anomaly]
) -> Mapping[tuple[str, str, int], Sequence[Watermark]]:
    """(cluster, topic, partition) -> samples, of the partitions of some anomalies."""
    found: dict[tuple[str, str, int], list[Watermark]] = {
        (each.cluster, each.topic, each.partition): [] for each in anomalies
    }
    if found:
        for row in reader.each(Watermark, []):
            if (mine := found.get((row.cluster, row.topic, row.partition))) is not None:
                mine.append(row)
    return found
