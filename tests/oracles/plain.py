"""A partition's view turned into lists of plain values: what the references of the checks look at.

One value per batch, record, send, poll and sample, with the same field names as the columns of
`spark_verify.facts.view`. What becomes of a record is said once, here, in the obvious way: look for
the next marker of its producer id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

from linkflap.spark_verify.facts.view import DATA, OTHER_CONTROL, PartitionView, Replica

NEVER = 2**62
"""After everything: higher than any offset and any time."""
KEEP_OFFSETS = ("shadow", "exact")

Anomaly = tuple[str, str, str, int, int]
"""Kind, cluster, topic, partition, offset."""


@dataclass(slots=True, eq=False)
class PlainLog:
    """One replica. Records have their batch; batches have the marker that ends them (`marker`; None
    if there is none)."""

    cluster: str
    broker: int
    leader: bool
    canonical: bool
    log_start: int
    high_watermark: int
    high_watermark_from: str
    moment: str
    captured: int
    torn: bool
    torn_from: int
    unread: list[tuple[int, int]]
    last_stable: int
    stable_above: int
    batches: list[Any]
    records: list[Any]
    parts: list[Any]

    @property
    def begins(self) -> int:
        """The first offset of which there are bytes, which may be below the log start."""
        first = self.batches[0].base_offset if self.batches else self.log_start
        return int(min(first, self.log_start))

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start

    def at(self, offset: int) -> Any:
        """The record at an offset, or None."""
        return next((r for r in self.records if r.offset == offset), None)

    def of(self, uid: int) -> Any:
        """The first record with a payload id, or None."""
        return next((r for r in self.records if r.uid == uid), None)


@dataclass(slots=True, eq=False)
class Plain:
    """One partition of one run."""

    view: PartitionView
    topic: str
    partition: int
    home: str
    mirror: str
    options: dict[str, Any]
    hops: list[tuple[str, str]]
    replicas: list[PlainLog]
    earlier: list[PlainLog]
    sends: list[Any]
    reads: list[Any]
    shares: list[Any]
    marks: dict[str, list[Any]]
    groups: list[Any]
    ended: int
    compacted: dict[str, int]
    found: list[Anomaly] = field(default_factory=list)

    @property
    def windows(self) -> list[Any]:
        """The windows of faults that broke brokers, links or mirrors, and not clients or topics
        alone."""
        alone = ("client-", "program-", "partitions-added", "records-deleted")
        return [w for w in self.view.windows if not w.fault.startswith(alone)]

    @property
    def keeps(self) -> bool:
        """Whether the mirror of the partition keeps offsets."""
        return self.mirror in KEEP_OFFSETS

    def final(self, cluster: str) -> PlainLog | None:
        """The log that represents a cluster at the end."""
        return next(
            (r for r in reversed(self.replicas) if r.cluster == cluster and r.canonical), None
        )

    @property
    def torn(self) -> bool:
        """Whether any log that represents a cluster ends in the middle of a batch."""
        return any(log.torn for log in (*self.replicas, *self.earlier) if log.canonical)

    def cleaned(self, log: PlainLog) -> int:
        """The offset below which the log cleaner may have removed records: as recorded, or for
        copied logs, derived from batches with missing offsets."""
        thin = [
            b
            for b in log.batches
            if b.data and b.crc_ok and b.count < b.last_offset - b.base_offset + 1
        ]
        above = [b.last_offset + 1 for b in thin if not self.view.recorded]
        return int(max([self.compacted.get(log.cluster, 0), *above]))

    def anomaly(self, kind: str, cluster: str, offset: int) -> Anomaly:
        return kind, cluster, self.topic, self.partition, offset


def plain(view: PartitionView) -> Plain:
    return Plain(
        view=view,
        topic=view.topic,
        partition=view.partition,
        home=view.home,
        mirror=view.mirror.kind,
        options=dict(view.mirror.options),
        hops=list(view.hops()),
        replicas=[_log(r) for r in view.replicas],
        earlier=[_log(r) for r in view.earlier],
        sends=[_listed(s) for s in view.sends],
        reads=[_listed(r) for r in view.reads],
        shares=[_listed(r) for r in view.shares],
        marks={cluster: list(_rows(marks)) for cluster, marks in view.watermarks.items()},
        groups=list(view.groups),
        ended=view.ended,
        compacted=dict(view.compacted),
    )


def _rows(columns: object) -> Iterator[Any]:
    names = [f.name for f in fields(columns)]  # type: ignore[arg-type]
    for values in zip(*(getattr(columns, name).tolist() for name in names), strict=True):
        yield SimpleNamespace(**dict(zip(names, values, strict=True)))


def _listed(one: object) -> Any:
    """A row whose arrays are lists."""
    pairs = ((f.name, getattr(one, f.name)) for f in fields(one))  # type: ignore[arg-type]
    return SimpleNamespace(
        **{name: value.tolist() if hasattr(value, "tolist") else value for name, value in pairs}
    )


def _log(replica: Replica) -> PlainLog:
    batches, records = list(_rows(replica.batches)), list(_rows(replica.records))
    for record in records:
        record.batch = batches[record.batch]
    names = [
        "cluster",
        "broker",
        "leader",
        "canonical",
        "log_start",
        "high_watermark",
        "high_watermark_from",
        "moment",
        "captured",
        "torn_from",
        "unread",
    ]
    names += ["last_stable", "stable_above"]
    log = PlainLog(
        **{name: getattr(replica, name) for name in names},
        torn=bool(replica.damage), batches=batches, records=records,
        parts=list(_rows(replica.parts)),
    )  # fmt: skip
    for index, batch in enumerate(batches):
        batch.row = index
        batch.data = batch.control == DATA
        batch.reset = batch.control == OTHER_CONTROL
        batch.ends = not batch.data and not batch.reset
    pair(log)
    return log


def pair(log: PlainLog, *, untracked: bool = False) -> None:
    """Gives each batch its marker and each record its state. Brokers do not track negative producer
    ids; with `untracked`, they are treated as tracked."""
    for index, batch in enumerate(log.batches):
        tracked = batch.producer_id != -1 if untracked else batch.producer_id >= 0
        batch.inside = batch.data and batch.transactional and tracked and batch.crc_ok
        batch.marker = None
        if batch.inside:
            after = list(takewhile(lambda b: not (b.reset and b.crc_ok), log.batches[index + 1 :]))
            batch.marker = next(
                (b for b in after if b.ends and b.producer_id == batch.producer_id), None
            )
    for record in log.records:
        record.state = _state(record.batch)
        record.visible = record.state in ("plain", "committed")


def _state(batch: Any) -> str:
    if not batch.data:
        return "control"
    if not batch.inside:
        return "plain"
    if batch.marker is None:
        return "open"
    return "committed" if batch.marker.control == 1 else "aborted"


@dataclass(slots=True)
class Transaction:
    """Data batches of one producer id up to its next marker (None if there is none)."""

    pid: int
    batches: list[Any]
    marker: Any

    @property
    def first(self) -> int:
        return int(self.batches[0].base_offset)

    @property
    def epochs(self) -> list[int]:
        return [b.producer_epoch for b in self.batches]


def transactions(log: PlainLog) -> list[Transaction]:
    """Transactions in the order of their first batches, as `pair` has matched them. None spans a
    reset of the producer state."""
    found: list[Transaction] = []
    since = 0
    for batch in log.batches:
        if batch.reset and batch.crc_ok:
            since = len(found)
        if not batch.inside:
            continue
        mine = next(
            (t for t in found[since:] if t.pid == batch.producer_id and t.marker is batch.marker),
            None,
        )
        if mine is None:
            mine = Transaction(pid=batch.producer_id, batches=[], marker=batch.marker)
            found.append(mine)
        mine.batches.append(batch)
    return found


def of_send(send: Any) -> Iterator[tuple[int, int, bool]]:
    """(payload id, acknowledged offset or -1, refused) of each record of a send."""
    for i, (offset, refused) in enumerate(zip(send.offsets, send.refused, strict=True)):
        yield send.first_uid + i, offset, refused


def incarnation(uid: int) -> int:
    """The producer that made a payload id."""
    return uid >> 40


def starts(rows: Sequence[int]) -> list[int]:
    """The first number of each run of consecutive numbers."""
    return [n for i, n in enumerate(rows) if i == 0 or rows[i - 1] != n - 1]
