"""Explains one anomaly to a Kafka engineer: the promise, what is there instead, and the bytes and
operations that show it.

It needs only the run directory and its verdict.json, and no Spark. An anomaly is named by its
number in the document (from 1), or by its location: `check:cluster:topic-partition@offset`.

An explanation has the rows of the partition and offset among operations, polls, samples, committed
offsets and events of mirrors, and their neighbours in time: a reader's records before and after,
and the partition's bounds. Records of programs that were recorded on the wire have the payload ids
of the recorder: a batch is recognised by its CRC and its acknowledged offset. From the logs of
brokers and mirrors it has the warnings and errors of that time. Nothing is judged here.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.log import batches
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import (
    Event,
    Failover,
    FailoverRefused,
    MirrorDescribed,
    MirrorStopped,
    MirrorVerb,
    Promotion,
    Truncation,
)
from linkflap.harness.model.history import (
    Fetched,
    GroupOffset,
    Operation,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import FOREIGN
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunReader, with_current_kinds
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect import forensics
from linkflap.spark_verify.inspect.forensics import Shown
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.logged_around import TIMES, LoggedAround, RunLogs
from linkflap.spark_verify.read.plan import RunPlan, plan

_EACH_WAY: Final = 2
ProducedOnWire = Mapping[tuple[str, int, int], Sequence[SendGroup]]
"""Topic, partition and CRC -> the batches that programs asked to be written, one for each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a run; none if its history is left out."""

    operations: Sequence[Operation] = ()
    polls: Sequence[Poll] = ()
    watermarks: Sequence[Watermark] = ()
    groups: Sequence[GroupOffset] = ()
    events: Sequence[Event] = ()
    on_the_wire: ProducedOnWire = field(default_factory=dict)

    @classmethod
    def of(cls, reader: RunReader) -> Rows:
        """All rows that can be read."""
        operations = reader.operations()[0]
        produced = _produced_on_the_wire(operations)
        return cls(
            operations=operations,
            polls=[_named_poll(row, produced) for row in reader.polls()[0]],
            on_the_wire=produced,
            watermarks=reader.watermarks()[0],
            groups=reader.groups()[0],
            events=reader.events()[0],
        )


def _produced_on_the_wire(rows: Iterable[Operation]) -> ProducedOnWire:
    found: dict[tuple[str, int, int], list[SendGroup]] = defaultdict(list)
    for row in rows:
        for group in row.sends:
            if group.crc >= 0:
                found[group.topic, group.partition, group.crc].append(group)
    return found


def uid_on_the_wire(groups: Sequence[SendGroup], offset: int, count: int) -> int:
    """The payload id of the record at an offset, which begins `count` records of one of these
    batches; FOREIGN where it is not certain."""
    for group in groups:
        for index, size, first in group.acks:
            if first <= offset < first + size:
                return group.first_uid + index + offset - first
    whole = {group.first_uid for group in groups if group.count == count}
    return whole.pop() if len(whole) == 1 else FOREIGN


def _named_poll(row: Poll, produced: ProducedOnWire) -> Poll:
    """The poll; what was fetched on the wire has the payload ids of what programs produced."""
    if not any(fetched.crcs for fetched in row.fetched):
        return row
    return replace(
        row,
        fetched=tuple(
            replace(
                one,
                runs=tuple(
                    (
                        uid_on_the_wire(
                            produced.get((one.topic, one.partition, crc), ()), at, count
                        ),
                        at,
                        count,
                    )
                    for (_, at, count), crc in zip(one.runs, one.crcs, strict=False)
                ),
            )
            if one.crcs
            else one
            for one in row.fetched
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of an explanation: a partition of a cluster, an offset (-1: nowhere), payload
    ids, and the evidence."""

    cluster: str
    topic: str
    partition: int
    offset: int
    uids: Collection[int] = ()
    evidence: Mapping[str, object] = field(default_factory=dict)

    @property
    def time(self) -> int | None:
        """When the anomaly was seen, where the evidence says so."""
        return next((at for name in TIMES if isinstance(at := self.evidence.get(name), int)), None)

    def of(self, topic: str, partition: int) -> bool:
        """Whether this is the subject's partition."""
        return (topic, partition) == (self.topic, self.partition)

    def named(self, name: str) -> Collection[object]:
        """The values of this name in the evidence, one or several."""
        one, several = self.evidence.get(name), self.evidence.get(f"{name}s")
        return [
            *([one] if one is not None else ()),
            *(several if isinstance(several, list) else ()),
        ]


def operations_of(rows: Sequence[Operation], subject: Subject) -> list[Operation]:
    """Both rows of every operation that sent one of the payloads, was acknowledged the offset, or
    is named by the evidence."""
    named = subject.named("operation")
    numbers = {
        row.number
        for row in rows
        if row.number in named or any(_sent(row, group, subject) for group in row.sends)
    }
    return sorted((row for row in rows if row.number in numbers), key=lambda row: row.time)


def _sent(row: Operation, group: SendGroup, subject: Subject) -> bool:
    if any(group.first_uid <= uid < group.first_uid + group.count for uid in subject.uids):
        return True
    here = row.cluster == subject.cluster and subject.of(group.topic, group.partition)
    return here and any(
        offset <= subject.offset < offset + count for _, count, offset in group.acks
    )


def polls_of(rows: Sequence[Poll], subject: Subject) -> list[Poll]:
    """Polls that returned one of the payloads or the offset, and polls next to the anomaly's time
    by a reader or group that the evidence names."""
    mine = sorted((row for row in rows if _here(row, subject)), key=lambda row: row.returned)
    touching = {
        id(row)
        for row in mine
        if any(_got(row, fetched, subject) for fetched in _here(row, subject))
    }
    who = {*subject.named("reader"), *subject.named("group")} - {""}
    for name in {row.reader for row in mine if {row.reader, row.group} & who}:
        touching |= _next_to([row for row in mine if row.reader == name], touching, subject.time)
    return [row for row in mine if id(row) in touching]


def _next_to(own: Sequence[Poll], touching: Collection[int], time: int | None) -> set[int]:
    """The rows of one reader that concern the subject or its time, and their neighbours; else its
    last row (by id)."""
    near = [n for n, row in enumerate(own) if id(row) in touching or row.returned == time] or [
        len(own) - 1
    ]
    return {id(own[n]) for at in near for n in range(max(0, at - 1), min(len(own), at + 2))}


def _here(row: Poll, subject: Subject) -> list[Fetched]:
    return [fetched for fetched in row.fetched if subject.of(fetched.topic, fetched.partition)]


def _got(row: Poll, fetched: Fetched, subject: Subject) -> bool:
    for first, offset, count in fetched.runs:
        if any(first <= uid < first + count for uid in subject.uids):
            return True
        if row.cluster == subject.cluster and offset <= subject.offset < offset + count:
            return True
    return False


def watermarks(rows: Sequence[Watermark], subject: Subject) -> list[Watermark]:
    """Samples of the anomaly's cluster, and of the other end of a link that the evidence names:
    next to the time that the evidence names, else next to when the partition had got as far; and
    the last."""
    link = subject.evidence.get("link")
    ends = LinkSpec.parse(link).ends if isinstance(link, str) and "->" in link else ()
    return [
        row
        for cluster in dict.fromkeys((subject.cluster, *ends))
        for row in _watermarks_of(rows, cluster, subject)
    ]


def _watermarks_of(rows: Sequence[Watermark], cluster: str, subject: Subject) -> list[Watermark]:
    mine = sorted(
        (r for r in rows if r.cluster == cluster and subject.of(r.topic, r.partition)),
        key=lambda row: row.time,
    )
    time = subject.time
    after = [
        n
        for n, row in enumerate(mine)
        if (row.time >= time if time is not None else row.high_watermark > subject.offset)
    ]
    at = after[0] if after else len(mine)
    chosen = {
        *range(max(0, at - _EACH_WAY), min(len(mine), at + _EACH_WAY)),
        *([len(mine) - 1] if mine else ()),
    }
    return [mine[n] for n in sorted(chosen)]


def groups(rows: Sequence[GroupOffset], subject: Subject) -> list[GroupOffset]:
    """Committed offsets of the group that the evidence names, on whatever cluster they were
    sampled; only where they changed."""
    wanted = subject.named("group")
    found: list[GroupOffset] = []
    last: dict[tuple[str, str], int] = {}
    for row in sorted(
        (r for r in rows if r.group in wanted and subject.of(r.topic, r.partition)),
        key=lambda row: row.time,
    ):
        if last.get((row.cluster, row.group)) != row.offset:
            found.append(row)
        last[row.cluster, row.group] = row.offset
    return found


def of_mirrors(rows: Sequence[Event], subject: Subject) -> list[Event]:
    """The events, in time order, by which mirrors changed the partition or refused to: promotions,
    truncations, refused failovers, ends of mirrors, verbs with their answers, and each new state of
    the partition that a mirror reported."""
    ordered = sorted(rows, key=lambda event: event.time)
    found = (_only(event, subject) for event in _new_states(ordered, subject))
    return [event for event in found if event is not None]


def _new_states(events: Iterable[Event], subject: Subject) -> Iterator[Event]:
    """The events, without descriptions that repeat the partition's previous state."""
    states: dict[str, str] = {}
    for event in events:
        if isinstance(event, MirrorDescribed):
            mine = tuple(one for one in event.rows if subject.of(one.topic, one.partition))
            if not mine or states.get(event.link) == mine[0].state:
                continue
            states[event.link] = mine[0].state
        yield event


def _only(event: Event, subject: Subject) -> Event | None:
    match event:
        case MirrorStopped(partitions=tuple() as partitions):
            mine = tuple(one for one in partitions if subject.of(one.topic, one.partition))
            return msgspec.structs.replace(event, partitions=mine) if mine else None
        case Promotion() | Truncation():
            return event if subject.of(*event.tp) else None
        case MirrorDescribed(rows=rows):
            mine = tuple(one for one in rows if subject.of(one.topic, one.partition))
            return msgspec.structs.replace(event, rows=mine)
        case MirrorStopped() | Failover() | FailoverRefused() | MirrorVerb():
            return event
    return None


def near(rows: Sequence[GroupOffset], time: int | None, *, most: int) -> Sequence[GroupOffset]:
    """The rows next to a time, or the last."""
    if time is None:
        return rows[-most:]
    return sorted(
        sorted(rows, key=lambda row: abs(row.time - time))[:most], key=lambda row: row.time
    )


def uids_of(evidence: Mapping[str, object], there: Iterable[object]) -> set[int]:
    """linkflap's payload ids that an anomaly is about: those in the evidence, and those at its
    offset."""
    several = evidence.get("uids")
    found = {*there, evidence.get("uid"), *(several if isinstance(several, list) else ())}
    return {uid for uid in found if isinstance(uid, int) and uid >= 0}


MOST: Final = 20
"""Operations and polls that are shown."""
_NAMED: Final = re.compile(
    r"(?P<check>[a-z-]+):(?P<cluster>[^:]*):(?P<topic>.+)-(?P<partition>-?\d+)@(?P<offset>-?\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One log around the offset: the neighbouring batches, and the records of the batch that holds
    the offset. Without an offset (-1), the last batches."""

    cluster: str
    broker: int
    moment: str
    offset: int
    there: str
    batches: Sequence[Shown]
    records: Sequence[Shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything about one anomaly; `sentence` sums it up. The first of `total` operations and
    polls are shown.

    A `total` of -1: the history was not searched. `logged` are warnings and errors of brokers,
    mirrors and coordinators.
    """

    number: int
    of: int
    anomaly: Anomaly
    promised: str
    source: str
    meaning: str
    there: str
    sentence: str
    sides: Sequence[Side]
    operations: Sequence[Operation]
    polls: Sequence[Poll]
    total: int
    watermarks: Sequence[Watermark]
    groups: Sequence[GroupOffset]
    of_mirrors: Sequence[Event]
    logged: LoggedAround


def explain(root: Path, name: str) -> Explanation:
    """The explanation. Raises InputError when the folder was not judged, or has no such anomaly."""
    root, anomalies = _anomalies(root)
    number = _number(anomalies, name, root)
    reader = RunReader(root)
    return _explained(anomalies, number, plan(root), Rows.of(reader), RunLogs(reader))


def anomalies_of(root: Path) -> Sequence[Anomaly]:
    """The anomalies of a folder's verdict, in the order in which they are numbered. Raises
    InputError when there is no verdict."""
    return _anomalies(root)[1]


def recorded(root: Path) -> Path:
    """The run directory to which the verdict in a folder belongs; `verify --out` writes verdicts to
    other folders. Raises InputError when there is no verdict."""
    return _anomalies(root)[0]


def explain_several(
    root: Path, anomalies: Sequence[Anomaly], numbers: Sequence[int], *, history: bool = True
) -> Sequence[Explanation]:
    """Explanations of some of a document's anomalies, by number, from 1; the run directory is read
    once for all. Without `history` from the logs alone: a long history would need all its rows in
    memory.
    """
    planned, log_of = plan(root), cache(forensics.log_of)
    reader = RunReader(root)
    rows, logs = Rows.of(reader) if history else Rows(), RunLogs(reader)
    found = [_explained(anomalies, number - 1, planned, rows, logs, log_of) for number in numbers]
    return found if history else [replace(each, total=-1) for each in found]


def bytes_of_history(root: Path) -> int:
    """The size in bytes of the history that an explanation searches."""
    return sum(
        path.lstat().st_size
        for name in ("operations", "polls", "watermarks")
        for path in untrusted_files.listed(root, root / name, ".jsonl")
    )


def _explained(
    anomalies: Sequence[Anomaly],
    number: int,
    planned: RunPlan,
    rows: Rows,
    logs: RunLogs,
    log_of: Callable[[CapturedReplica], batches.ReplicaLog] = forensics.log_of,
) -> Explanation:
    anomaly = anomalies[number]
    check = REGISTRY.get(anomaly.check)
    sides = [
        _side(c, log_of(c), offset, rows.on_the_wire)
        for c, offset in _captures_of(planned, anomaly)
    ]
    at = {
        record["uid"]
        for side in sides
        for record in side.records
        if record["offset"] == side.offset
    }
    subject = Subject(
        cluster=anomaly.cluster, topic=anomaly.topic, partition=anomaly.partition,
        offset=anomaly.offset,
        uids=uids_of(anomaly.evidence, at), evidence=anomaly.evidence,
    )  # fmt: skip
    operations, polls = operations_of(rows.operations, subject), polls_of(rows.polls, subject)
    meaning = (
        next((k.meaning for k in check.anomalies if k.name == anomaly.kind), "") if check else ""
    )
    promised, there = check.guarantee if check else "", "; ".join(side.there for side in sides)
    return Explanation(
        number=number + 1, of=len(anomalies), anomaly=anomaly, promised=promised,
        source=check.source if check else "",
        meaning=meaning, there=there, sentence=_sentence(anomaly, promised, meaning, there),
        sides=sides,
        operations=operations[:MOST], polls=polls[:MOST], total=len(operations) + len(polls),
        watermarks=watermarks(rows.watermarks, subject),
        groups=near(groups(rows.groups, subject), subject.time, most=MOST),
        of_mirrors=of_mirrors(rows.events, subject),
        logged=logs.around(anomaly, rows.watermarks, rows.events),
    )  # fmt: skip


def _sentence(anomaly: Anomaly, promised: str, meaning: str, there: str) -> str:
    """The promise and the finding, in one sentence for a person."""
    where = f"{anomaly.topic}-{anomaly.partition} on {anomaly.cluster}" + (
        f" at offset {anomaly.offset}" if anomaly.offset >= 0 else ""
    )
    return (
        f"Expected: {promised.rstrip('.')}. Found for {where}: {meaning.rstrip('.')}: "
        f"{there or 'no log of it was captured'}."
    )


def _anomalies(root: Path) -> tuple[Path, list[Anomaly]]:
    """The run directory, and the anomalies of its verdict.json, which may be in another folder
    (`verify --out`)."""

    class AnomaliesOfRun(msgspec.Struct):
        run: str = ""
        anomalies: list[Anomaly] = []

    try:
        content = untrusted_files.content(root / "verdict.json")
        document = untrusted_files.decoded(with_current_kinds(content), AnomaliesOfRun)
        return (
            root if (root / "run.json").exists() or not document.run else Path(document.run)
        ), document.anomalies
    except OSError as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        why = "" if absent else f" that can be read (it {error.strerror})"
        raise InputError(
            f"{root} has no verdict.json{why}; judge it first: linkflap verify {root}"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(
            f"{root}/verdict.json cannot be read ({error}); judge it again: linkflap verify {root}"
        ) from None


def _number(anomalies: Sequence[Anomaly], name: str, root: Path) -> int:
    if not anomalies:
        raise InputError(f"the verdict on {root} has no anomaly to explain")
    if name.isascii() and name.removeprefix("-").isdigit():
        if not 1 <= int(name) <= len(anomalies):
            raise InputError(
                f"there is no anomaly {name}: the verdict on {root} has {len(anomalies)}, counted "
                "from 1"
            )
        return int(name) - 1
    if not _NAMED.fullmatch(name):
        raise InputError(
            f"{name!r} names no anomaly; give its number, or check:cluster:topic-partition@offset"
        )
    for number, anomaly in enumerate(anomalies):
        if anomaly.address == name:
            return number
    raise InputError(
        f"the verdict on {root} has no anomaly {name}; it has, for example, {anomalies[0].address}"
    )


def _captures_of(planned: RunPlan, anomaly: Anomaly) -> Iterator[tuple[CapturedReplica, int]]:
    """The logs that bear on the anomaly, its own cluster's first, each with the offset to look
    at."""
    mine = [
        c
        for c in (*planned.replicas, *planned.earlier)
        if c.key == (anomaly.topic, anomaly.partition)
    ]
    brokers = anomaly.evidence.get("brokers")
    wanted = brokers if isinstance(brokers, list) else [anomaly.evidence.get("broker")]
    capture = anomaly.evidence.get("capture")
    elsewhere = anomaly.evidence.get("source_offset")
    for captured in sorted(
        mine,
        key=lambda c: (
            c.bounds.cluster != anomaly.cluster,
            c.bounds.cluster,
            c.moment,
            c.bounds.broker,
        ),
    ):
        here = captured.bounds.cluster == anomaly.cluster
        speaks = captured.canonical and (captured.last or (here and captured.moment == capture))
        if speaks or (here and captured.last and captured.bounds.broker in wanted):
            there = elsewhere if isinstance(elsewhere, int) and not here else anomaly.offset
            yield captured, there


def _side(
    captured: CapturedReplica, log: batches.ReplicaLog, offset: int, produced: ProducedOnWire
) -> Side:
    bounds = captured.bounds
    of = f"{bounds.cluster}/{bounds.broker}" + ("" if captured.last else f" {captured.moment}")
    near = offset if offset >= 0 else sys.maxsize
    rows = forensics.once([*forensics.nearby(log, near), *forensics.of_producer(log, offset)])
    at = forensics.holding(log, offset)
    return Side(
        cluster=bounds.cluster, broker=bounds.broker, moment=captured.moment, offset=offset,
        there=f"{of} has {_said(log, at, offset)}",
        batches=[forensics.header(log, row, of) for row in rows],
        records=_records(captured, log, at, offset, produced) if at is not None else (),
    )  # fmt: skip


def _records(
    captured: CapturedReplica,
    log: batches.ReplicaLog,
    row: int,
    offset: int,
    produced: ProducedOnWire,
) -> Sequence[Shown]:
    """The records of a batch next to an offset, with the payload ids that they have on the wire."""
    found, h = forensics.records(log, row, near=offset), log.headers
    groups = produced.get((*captured.key, int(h.crc[row])), ())
    base, count = int(h.base_offset[row]), int(h.count[row])
    first = uid_on_the_wire(groups, base, count)
    if first == FOREIGN:
        return found
    return [
        each | {"uid": first + int(str(each["offset"])) - base}
        if each["uid"] == FOREIGN else each
        for each in map(dict, found)
    ]  # fmt: skip


def _said(log: batches.ReplicaLog, row: int | None, offset: int) -> str:
    if row is None:
        end = int(log.headers.last_offset[-1]) + 1 if len(log.headers) else 0
        return (
            f"nothing at offset {offset}, and ends at {end}"
            if offset >= 0
            else f"a log that ends at {end}"
        )
    shown = forensics.header(log, row)
    span = (
        f"{shown['base_offset']}-{shown['last_offset']}"
        if shown["base_offset"] != shown["last_offset"]
        else f"{offset}"
    )
    whose = (
        f" of producer {shown['producer_id']} epoch {shown['producer_epoch']}"
        if shown["producer_id"] != -1
        else ""
    )
    wrong = "" if shown["crc_ok"] else ", which is wrong"
    return (
        f"{shown['kind']}{whose} at {span} (leader epoch {shown['leader_epoch']}, CRC "
        f"{shown['crc']}{wrong})"
    )
