"""Plain text for people: batch headers and records as tables, the findings of `linkflap forensics`,
and the explanations of `linkflap explain`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, Final, TextIO

from linkflap.harness.model.events import Event
from linkflap.harness.model.history import Fetched, Operation, Poll, SendGroup
from linkflap.harness.model.texts import counted
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir.process_logs import Logged
from linkflap.report.document import first_of, in_short

if TYPE_CHECKING:
    from linkflap.spark_verify.inspect.explain import Explanation
    from linkflap.spark_verify.inspect.forensics import ForensicCase
    from linkflap.spark_verify.read.logged_around import LoggedAround

Row = Mapping[str, object]


Name = Callable[[object], str]
"""Names a payload or an operation: by its number, or by its client."""


_WHEN: Final = "%Y-%m-%d %H:%M:%S.%f"


def headers(rows: Sequence[Row], *, at: int = -1) -> list[str]:
    """Batch headers as lines. `>` marks the batch with offset `at`."""
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
    """Records as lines. `>` marks the record at offset `at`."""
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
    """Aligned columns, without the empty ones."""
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


_NAMED: Final = frozenset({"uid", "holds", "operation", "after_uid", "after_operation"})
_WIDTH, _INDENT = 128, 10
_CASES: Final = 20
_LINES: Final = 50
_MOMENTS: Final = 10**18
"""Numbers from here on are nanoseconds since 1970."""


def tell(
    cases: Sequence[ForensicCase],
    unreadable: Sequence[str],
    looked: Mapping[str, int],
    notes: Sequence[str],
    *,
    unknown: Sequence[str] = (),
    listed: str = "",
) -> None:
    """Writes one section for each finding, then the parts that may have one, then `listed`: the
    files that were read, and those that were left out."""
    stream = sys.stdout
    shown = first_of([_section(n, case) for n, case in enumerate(cases, start=1)], _CASES)
    stream.writelines(f"{section}\n" for section in shown)
    for line in first_of([f"cannot be read: {each}" for each in unreadable], _CASES):
        stream.write(f"{line}\n")
    for line in first_of([f"cannot be known: {each}" for each in unknown], _CASES):
        stream.write(f"{line}\n")
    for line in first_of([f"not counted: {each}" for each in notes], _CASES):
        stream.write(f"{line}\n")
    stream.write(listed)
    counted = ", ".join(f"{count:,} {name}" for name, count in looked.items())
    stream.write(f"{len(cases)} things found, {len(unreadable)} parts unreadable, in {counted}\n")


def _section(number: int, case: ForensicCase) -> str:
    facts = ", ".join(f"{name} {in_short(value, 100)}" for name, value in case.evidence.items())
    lines = [
        f"{number}. {case.kind}  {case.cluster} {case.topic}-{case.partition} @ {case.offset}",
        f"   {case.meaning}",
        *([f"   {facts}"] if facts else []),
        *(f"   {line}" for line in first_of(headers(case.batches, at=case.offset), _LINES)),
    ]
    return "".join(f"{line}\n" for line in lines)


def list_anomalies(anomalies: Sequence[Anomaly]) -> None:
    """Writes a line for each anomaly of a verdict, with the number that `linkflap explain`
    takes."""
    stream = sys.stdout
    width = len(str(len(anomalies)))
    lines = []
    for number, anomaly in enumerate(anomalies, start=1):
        allowed = " (allowed)" if anomaly.allowed else ""
        sentence = f": {in_short(anomaly.sentence, 200)}" if anomaly.sentence else ""
        lines.append(f"{number:{width}}  {anomaly.kind}  {anomaly.address}{allowed}{sentence}")
    stream.writelines(f"{line}\n" for line in first_of(lines, _LINES))
    if not anomalies:
        stream.write("the verdict has no anomaly\n")


def write_explanation(
    explanation: Explanation, stream: TextIO | None = None, *, name: Name = str
) -> None:
    """Writes the promise, the anomaly, and its evidence."""
    stream = sys.stdout if stream is None else stream
    anomaly = explanation.anomaly
    allowed = ", which the mirror's guarantee allows" if anomaly.allowed else ""
    stream.write(
        f"{anomaly.kind}  {anomaly.address}  (anomaly {explanation.number} of "
        f"{explanation.of}{allowed})\n\n"
    )
    there = explanation.there or "no log of that partition was captured"
    for title, text in (
        ("promised", explanation.promised),
        ("", explanation.source),
        ("found", explanation.meaning),
        ("there", there),
        *(
            ("", f"{fact}: {name(value) if fact in _NAMED else _said(value)}")
            for fact, value in anomaly.evidence.items()
        ),
    ):
        stream.write(_paragraph(title, text))
    show_sides(explanation, stream, name)


def _paragraph(title: str, text: str) -> str:
    """The text beside its title, wrapped for a terminal."""
    lines = textwrap.wrap(
        text, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False
    ) or [""]
    return "".join(
        f"{word:<{_INDENT}}{line}".rstrip() + "\n"
        for word, line in zip_longest([title], lines, fillvalue="")
    )


def _said(value: object) -> str:
    """A fact as text: times as UTC, mappings without the marks of JSON."""
    if isinstance(value, int) and value >= _MOMENTS:
        return f"{moment(value // 1_000_000)} UTC"
    if isinstance(value, Mapping):
        return in_short(", ".join(f"{name} {_said(each)}" for name, each in value.items()), 2000)
    return in_short(value, 200)


def show_sides(explanation: Explanation, stream: TextIO, name: Name = str) -> None:
    """Writes the evidence: bytes of both sides, operations and polls, samples, events of mirrors,
    and logged lines."""
    for side in explanation.sides:
        log = f"{side.cluster}/{side.broker} in capture {side.moment}"
        stream.write(
            f"\nbatches of {log} around offset {side.offset}\n"
            if side.offset >= 0
            else f"\nlast batches of {log}\n"
        )
        batches = first_of(headers(side.batches, at=side.offset), _LINES)
        stream.writelines(f"  {line}\n" for line in batches)
        if side.records:
            stream.write("  records there\n")
            stream.writelines(
                f"    {line}\n" for line in records(side.records, at=side.offset, name=name)
            )
    _history(explanation, stream, name)
    _beside(explanation, stream)
    _logged(explanation.logged, stream)


def _history(explanation: Explanation, stream: TextIO, name: Name) -> None:
    """Writes the operations and polls, one line each."""
    if explanation.total < 0:
        stream.write(
            "\nthe history is long: its operations and polls are shown by linkflap explain RUNDIR "
            f"{explanation.number}\n"
        )
        return
    if not explanation.total:
        if explanation.anomaly.offset >= 0:
            stream.write("\nno operation of the history touches it\n")
        return
    every = explanation.total == len(explanation.operations) + len(explanation.polls)
    stream.write(f"\noperations that touch it{'' if every else ', the first'}\n")
    for row in explanation.operations:
        stream.write(f"  {moment(row.time // 1_000_000)}  {_operation(row, name)}\n")
        batches = first_of([_send(row, group, name) for group in row.sends], _LINES)
        stream.writelines(f"      {line}\n" for line in batches)
    for poll in explanation.polls:
        answered = moment(poll.returned // 1_000_000).rpartition(" ")[2]
        group = f" in group {poll.group}" if poll.group else ""
        stream.write(
            f"  {moment(poll.time // 1_000_000)}  {poll.reader} {poll.kind} on {poll.cluster} "
            f"{poll.isolation}{group}, answered {answered}"
            f"{f': {poll.error}' if poll.error else ''}\n"
        )
        parts = first_of([_got(poll, fetched, name) for fetched in poll.fetched], _LINES)
        stream.writelines(f"      {line}\n" for line in parts)


def _operation(row: Operation, name: Name) -> str:
    """A client's request or answer, without the batches."""
    answered = row.phase == "return" or any(group.acks or group.refused for group in row.sends)
    outcome = row.outcome if row.phase == "return" else "answered" if answered else "requested"
    ended = f" (requested {moment(row.ended_at // 1_000_000).rpartition(' ')[2]})"
    ending = {"none": "", "open": "still open, "}.get(
        row.ending, f"{row.ending}{ended if row.ended_at and answered else ''} "
    )
    facts = [
        f"{row.kind} {name(row.number)} of {row.client} on {row.cluster}",
        f"transactional.id {row.transactional_id}" if row.transactional_id else "",
        f"producer {row.producer_id} epoch {row.producer_epoch}" if row.producer_id >= 0 else "",
        f"{ending}{outcome}",
    ]
    return ", ".join(filter(None, facts)) + (f": {row.error}" if row.error else "")


def _send(row: Operation, group: SendGroup, name: Name) -> str:
    """The records of one partition, what identifies their batch, and their acknowledgements."""
    acknowledged = ", ".join(_span(offset, offset + count - 1) for _, count, offset in group.acks)
    alone = " by the leader alone" if group.by_leader else ""
    refused = sum(count for _, count in group.refused)
    rest = group.count - refused - sum(count for _, count, _ in group.acks)
    facts = [
        f"{_run(group.first_uid, group.count, name)} to {group.topic}-{group.partition}",
        f"sequence {group.sequence}" if group.sequence >= 0 else "",
        f"CRC {group.crc:08x}" if group.crc >= 0 else "",
        f"acknowledged{alone} at {in_short(acknowledged, 200)}" if acknowledged else "",
        f"{refused} refused" if refused else "",
        f"{rest} not acknowledged" if rest and row.phase == "return" else "",
    ]
    return ", ".join(filter(None, facts))


def _run(first: int, count: int, name: Name) -> str:
    """Consecutive records of one client, by the first; of no known client, by their number."""
    known = f" from {name(first)}" if count > 1 else name(first)
    if first < 0:
        return counted(count, "record")
    return f"{count} records{known}" if count > 1 else known


_POSITIONS: Final = {
    "commit": "committed offset", "acquire": "delivery count", "settled": "start offset"
}  # fmt: skip


def _got(poll: Poll, fetched: Fetched, name: Name) -> str:
    """The records of one partition, and the reader's position after them."""
    crcs = (f" (CRC {crc:08x})" for crc in fetched.crcs)
    runs = ", ".join(
        f"{_run(uid, count, name)} at {_span(offset, offset + count - 1)}{crc}"
        for (uid, offset, count), crc in zip(fetched.runs, chain(crcs, repeat("")), strict=False)
    )
    position = f"{_POSITIONS.get(poll.kind, 'position')} {fetched.position}"
    facts = [
        in_short(runs, 400) or ("nothing" if poll.kind == "poll" else ""),
        position if fetched.position >= 0 else "",
    ]
    return f"{fetched.topic}-{fetched.partition} " + ", ".join(filter(None, facts))


def _beside(explanation: Explanation, stream: TextIO) -> None:
    """Writes the samples of the partition, and the events of its mirrors."""
    stream.write("\nsampled bounds\n" if explanation.watermarks else "")
    for mark in explanation.watermarks:
        stream.write(
            f"  {moment(mark.time // 1_000_000)}  {mark.cluster}/{mark.leader} leader epoch "
            f"{mark.leader_epoch}: "
        )
        stream.write(
            f"log start {mark.log_start}, LSO {mark.last_stable}, high watermark "
            f"{mark.high_watermark}\n"
        )
    stream.write("\ncommitted offsets\n" if explanation.groups else "")
    for row in explanation.groups:
        stream.write(
            f"  {moment(row.time // 1_000_000)}  {row.group} on {row.cluster} at {row.offset}\n"
        )
    stream.write("\nevents of mirrors\n" if explanation.of_mirrors else "")
    stream.writelines(
        f"  {line}\n" for line in first_of(list(map(_event, explanation.of_mirrors)), _LINES)
    )


def _logged(logged: LoggedAround, stream: TextIO) -> None:
    """Writes each kind of warning and error of processes once, with the log that has it first."""
    lines = list(map(_line, logged.lines))
    if logged.left_out:
        lines.append(f"... and {logged.left_out:,} other kinds of lines")
    lines += [f"not looked at: {each}" for each in logged.unread]
    stream.write(
        f"\nwarnings and errors of brokers and mirrors, {moment(logged.begin // 1_000_000)} to "
        f"{moment(logged.end // 1_000_000)}\n"
    )
    lines = lines or ["none"]
    stream.writelines(f"  {line}\n" for line in lines)


def _line(line: Logged) -> str:
    before = f", {line.before:,} times before" if line.before else ""
    more = f" and {len(line.where) - 1} more logs" if len(line.where) > 1 else ""
    return (
        f"{moment(line.first // 1_000_000) if line.first else 'at no known time'}  "
        f"{line.count:,} x {line.level} {in_short(line.text, 400)} ({line.where[0]}{more}{before})"
    )


def _event(event: Event) -> str:
    facts = ", ".join(f"{name} {in_short(value, 200)}" for name, value in event.row.data.items())
    return f"{moment(event.time // 1_000_000)}  {event.subject} {event.kind}: {facts}"
