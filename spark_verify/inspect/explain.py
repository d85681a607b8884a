"""Explains one anomaly to a Kafka engineer: the promise, what is there instead, and the bytes and
operations that show it.

It needs only the run directory and its verdict.json, and no Spark. An anomaly is named by its
number in the document (from 1), or by its location: `check:cluster:topic-partition@offset`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from linkflap.harness.log import batches
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Event
from linkflap.harness.model.history import GroupOffset, Operation, Poll, Watermark
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunReader, with_current_kinds
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect import anomaly_context, evidence
from linkflap.spark_verify.inspect.evidence import Shown
from linkflap.spark_verify.read.captures import CapturedReplica
from linkflap.spark_verify.read.plan import RunPlan, plan

MOST: Final = 20
"""Operations and polls that are shown."""
_NAMED: Final = re.compile(
    r"(?P<check>[a-z-]+):(?P<cluster>[^:]*):(?P<topic>.+)-(?P<partition>-?\d+)@(?P<offset>-?\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One log around the place: the batches there, and the records of the one that holds the
    offset. Without an offset (-1) the last batches."""

    cluster: str
    broker: int
    moment: str
    offset: int
    there: str
    batches: Sequence[Shown]
    records: Sequence[Shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything about one anomaly; `sentence` is all in one. Of `total` operations and polls the
    first are shown.

    A `total` of -1: the history was not gone through.
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


def explain(root: Path, name: str) -> Explanation:
    """The explanation. Raises InputError when the folder was not judged, or has no such anomaly."""
    root, anomalies = _anomalies(root)
    number = _number(anomalies, name, root)
    return _explained(anomalies, number, plan(root), RunReader(root))


def anomalies_of(root: Path) -> Sequence[Anomaly]:
    """The anomalies of a folder's verdict, in the order in which they are numbered. Raises
    InputError when there is no verdict."""
    return _anomalies(root)[1]


def recorded(root: Path) -> Path:
    """The run directory whose verdict is in a folder, which may be one of its own. Raises
    InputError when there is no verdict."""
    return _anomalies(root)[0]


def explain_several(
    root: Path, anomalies: Sequence[Anomaly], numbers: Sequence[int], *, history: bool = True
) -> Sequence[Explanation]:
    """Explanations of some of a document's anomalies, by number, from 1; the run directory is read
    once for all. Without `history` from the logs alone: a long history would need all its rows in
    memory.
    """
    planned, log_of = plan(root), cache(evidence.log_of)
    rows = anomaly_context.Held(RunReader(root)) if history else anomaly_context.Unread()
    found = [_explained(anomalies, number - 1, planned, rows, log_of) for number in numbers]
    return found if history else [replace(each, total=-1) for each in found]


def bytes_of_history(root: Path) -> int:
    """How much there is to go through for an explanation."""
    return sum(
        path.lstat().st_size
        for name in ("operations", "polls", "watermarks")
        for path in untrusted_files.listed(root, root / name, ".jsonl")
    )


def _explained(
    anomalies: Sequence[Anomaly],
    number: int,
    planned: RunPlan,
    rows: anomaly_context.Rows,
    log_of: Callable[[CapturedReplica], batches.ReplicaLog] = evidence.log_of,
) -> Explanation:
    anomaly = anomalies[number]
    check = REGISTRY.get(anomaly.check)
    sides = [_side(c, log_of(c), offset) for c, offset in _captures_of(planned, anomaly)]
    at = {
        record["uid"]
        for side in sides
        for record in side.records
        if record["offset"] == side.offset
    }
    subject = anomaly_context.Subject(
        cluster=anomaly.cluster, topic=anomaly.topic, partition=anomaly.partition,
        offset=anomaly.offset,
        uids=anomaly_context.uids_of(anomaly.evidence, at), evidence=anomaly.evidence,
    )  # fmt: skip
    operations, polls = (
        anomaly_context.operations(rows, subject),
        anomaly_context.polls(rows, subject),
    )
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
        watermarks=anomaly_context.watermarks(rows, subject),
        groups=anomaly_context.near(anomaly_context.groups(rows, subject), subject.time, most=MOST),
        of_mirrors=anomaly_context.of_mirrors(rows, subject),
    )  # fmt: skip


def _sentence(anomaly: Anomaly, promised: str, meaning: str, there: str) -> str:
    """What was promised and what is there, for a person."""
    where = f"{anomaly.topic}-{anomaly.partition} on {anomaly.cluster}" + (
        f" at offset {anomaly.offset}" if anomaly.offset >= 0 else ""
    )
    return (
        f"Expected: {promised.rstrip('.')}. Found for {where}: {meaning.rstrip('.')}: "
        f"{there or 'no log of it was captured'}."
    )


def _anomalies(root: Path) -> tuple[Path, list[Anomaly]]:
    """The run directory, and what was found in it: its verdict.json may be in a folder of its own
    (`verify --out`)."""

    class Found(msgspec.Struct):
        run: str = ""
        anomalies: list[Anomaly] = []

    try:
        content = untrusted_files.content(root / "verdict.json")
        document = untrusted_files.decoded(with_current_kinds(content), Found)
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
    """The logs that speak, its cluster's first, and where to look in each."""
    mine = [
        c
        for c in (*planned.replicas, *planned.earlier)
        if (c.bounds.topic, c.bounds.partition) == (anomaly.topic, anomaly.partition)
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


def _side(captured: CapturedReplica, log: batches.ReplicaLog, offset: int) -> Side:
    bounds = captured.bounds
    of = f"{bounds.cluster}/{bounds.broker}" + ("" if captured.last else f" {captured.moment}")
    near = offset if offset >= 0 else sys.maxsize
    rows = evidence.once([*evidence.nearby(log, near), *evidence.of_producer(log, offset)])
    at = evidence.holding(log, offset)
    return Side(
        cluster=bounds.cluster, broker=bounds.broker, moment=captured.moment, offset=offset,
        there=f"{of} has {_said(log, at, offset)}",
        batches=[evidence.header(log, row, of) for row in rows],
        records=evidence.records(log, at, near=offset) if at is not None else (),
    )  # fmt: skip


def _said(log: batches.ReplicaLog, row: int | None, offset: int) -> str:
    if row is None:
        end = int(log.headers.last_offset[-1]) + 1 if len(log.headers) else 0
        return (
            f"nothing at offset {offset}, and ends at {end}"
            if offset >= 0
            else f"a log that ends at {end}"
        )
    shown = evidence.header(log, row)
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
