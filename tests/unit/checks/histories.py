"""Shorthand for the smallest histories: logs, operations of clients, and what else the run knows.

a = Log("A").txn(1, 2, pid=7).txn(3, pid=7, end="abort")
view([a, Log("B").data(1, 2)], sends=[commit(1, 2, acked=0)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from linkflap.harness.guarantees import declared
from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.faults import REVERSE
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.spark_verify.facts.partition_facts import (
    ChangedBytes,
    Comparison,
    Deletion,
    Description,
    Disagreement,
    LogPromotion,
    LogTruncation,
    MirrorStop,
    PartitionFacts,
    ReplicaSample,
    RunFacts,
    Window,
)
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    OTHER_CONTROL,
    WHOLE,
    Batches,
    PartitionView,
    Parts,
    Records,
    Replica,
    Watermarks,
)
from linkflap.topologies import parse

SECOND = 1_000_000_000


ENDED = 1000 * SECOND
"""The end of every history that sets no other."""


INTEGERS = (
    "base_offset",
    "last_offset",
    "length",
    "count",
    "crc",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
)


SEQUENCES = ("base_sequence", "last_sequence", "control", "coordinator_epoch")
TIMES = ("base_timestamp", "max_timestamp", "attributes")


def uid(process: int, n: int) -> int:
    return process << PROCESS_SHIFT | n


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


class Log:
    """One replica's log, written batch by batch."""

    def __init__(
        self,
        cluster: str,
        *,
        broker: int = 1,
        start: int = 0,
        leader: bool = True,
        canonical: bool = True,
    ) -> None:
        self.cluster, self.broker, self.start, self.leader, self.canonical = (
            cluster,
            broker,
            start,
            leader,
            canonical,
        )
        self.end = start
        self.batches: list[dict[str, int | bool]] = []
        self.records: list[tuple[int, int, int, int, int]] = []
        self.keys: dict[int, int] = {}
        self.sequences: dict[tuple[int, int], int] = {}
        self.damage: tuple[str, ...] = ()
        self.torn_from = WHOLE
        self.high_watermark: int | None = None
        self.moment, self.captured = "", 0
        self.last_stable = self.stable_above = -1

    def data(
        self,
        *uids: int,
        pid: int = -1,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = False,
        at: int | None = None,
        digest: Mapping[int, int] | None = None,
        written: int = ENDED,
        operation: int | None = None,
        keys: Mapping[int, int] | None = None,
        **header: int | bool,
    ) -> Log:
        """A batch of records of one operation, numbered as its first payload unless `operation`
        says otherwise.

        `digest` gives payloads another content, `header` other header fields, `at` another offset,
        `keys` keys (else 0).
        """
        base = self.end if at is None else at
        first = self.sequences.get((pid, epoch), 0) if sequence is None else sequence
        last = (first + len(uids) - 1) % 2**31
        self.sequences[pid, epoch] = (last + 1) % 2**31
        self.keys |= keys or {}
        for i, each in enumerate(uids):
            content = (digest or {}).get(each, each * 31 + 7)
            self.records.append(
                (
                    base + i,
                    each,
                    content,
                    len(self.batches),
                    uids[0] if operation is None else operation,
                )
            )
        self._batch(
            base, len(uids), pid=pid, epoch=epoch if pid >= 0 else -1,
            first=first if pid >= 0 else -1,
            last=last if pid >= 0 else -1, transactional=transactional, control=DATA,
            written=written, **header,
        )  # fmt: skip
        return self

    def _batch(
        self, base: int, size: int, *, pid: int, epoch: int, first: int, last: int,
        transactional: bool, control: int, written: int, **header: int | bool,
    ) -> None:  # fmt: skip
        self.end = max(self.end, base + size)
        self.batches.append(
            {
                "base_offset": base, "last_offset": base + size - 1, "length": 61 + 10 * size,
                "count": size,
                "crc": 1000 + base, "crc_ok": True, "leader_epoch": 0, "producer_id": pid,
                "producer_epoch": epoch,
                "base_sequence": first, "last_sequence": last, "transactional": transactional,
                "control": control,
                "coordinator_epoch": 0 if control in (ABORT, COMMIT) else -1,
                "written": written // 1_000_000,
                "base_timestamp": written // 1_000_000,
                "max_timestamp": written // 1_000_000,
                "log_append_time": False,
                "attributes": 0,
            }
            | header
        )  # fmt: skip

    def txn(
        self,
        *uids: int,
        pid: int,
        epoch: int = 0,
        end: str | None = "commit",
        marker_epoch: int | None = None,
    ) -> Log:
        """A transaction in one batch, and its marker unless `end` is None."""
        self.data(*uids, pid=pid, epoch=epoch, transactional=True)
        return (
            self.marker(end, pid=pid, epoch=epoch if marker_epoch is None else marker_epoch)
            if end
            else self
        )

    def marker(self, kind: str, *, pid: int, epoch: int = 0, **header: int | bool) -> Log:
        control = {"commit": COMMIT, "abort": ABORT, "reset": OTHER_CONTROL}[kind]
        self._batch(
            self.end,
            1,
            pid=pid,
            epoch=epoch,
            first=-1,
            last=-1,
            transactional=True,
            control=control,
            written=ENDED,
            **header,
        )
        return self

    def skip(self, offsets: int) -> Log:
        """Skips offsets, as if a batch had been removed."""
        self.end += offsets
        return self

    def torn(self, reason: str = "half a batch") -> Log:
        """The log is torn here: what follows cannot be read."""
        self.damage, self.torn_from = (reason,), min(self.torn_from, self.end)
        return self

    def answered(self, last_stable: int, *, above: int) -> Log:
        """The leader returned a high watermark, and then a last stable offset."""
        self.last_stable, self.stable_above = last_stable, above
        return self

    def taken(self, moment: str, *, at: int) -> Log:
        """Captured at this second, before the cluster's last capture."""
        self.moment, self.captured = moment, at * SECOND
        return self

    def replica(self) -> Replica:
        columns: dict[str, Any] = {
            name: np.array([b[name] for b in self.batches], np.int64)
            for name in (*INTEGERS, *SEQUENCES, *TIMES)
        }
        flags: dict[str, Any] = {
            name: np.array([b[name] for b in self.batches], np.bool_)
            for name in ("crc_ok", "transactional", "log_append_time")
        }
        offsets, uids, digests, batch, operations = (
            np.array(self.records, np.int64).reshape(-1, 5).T
        )
        return Replica(
            cluster=self.cluster,
            broker=self.broker,
            leader=self.leader,
            canonical=self.canonical,
            log_start=self.start,
            high_watermark=self.end if self.high_watermark is None else self.high_watermark,
            high_watermark_from="sampled",
            batches=Batches(**columns, **flags),
            records=Records(
                offset=offsets,
                uid=uids,
                operation=operations,
                digest=digests,
                content=digests,
                timestamp=np.array([self.batches[b]["written"] for b in batch], np.int64),
                batch=batch,
            ),
            damage=self.damage,
            moment=self.moment,
            captured=self.captured,
            torn_from=self.torn_from,
            unread=((self.torn_from, WHOLE),) if self.damage else (),
            last_stable=self.last_stable,
            stable_above=self.stable_above,
            parts=Parts(
                offset=offsets, uid=uids, timestamp=np.zeros_like(offsets), value=digests,
                key=np.array([self.keys.get(u, 0) for u in uids.tolist()], np.int64),
                headers=np.zeros_like(offsets),
            ),
        )  # fmt: skip


class Header(TypedDict, total=False):
    """Fields of a batch, as `Log.data` and `Log.marker` take them."""

    leader_epoch: int
    crc: int
    crc_ok: bool
    length: int
    last_offset: int
    count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    coordinator_epoch: int
    base_timestamp: int
    max_timestamp: int
    log_append_time: bool
    attributes: int


class History(TypedDict, total=False):
    """The parts of a history besides its logs: the arguments of `view`."""

    topology: str
    mirror: Mapping[str, str] | None
    mirror_kind: str
    topic: str
    promotions: Sequence[LogPromotion]
    sends: Sequence[Send]
    reads: Sequence[Read]
    watermarks: Mapping[str, Watermarks] | None
    windows: Sequence[Window]
    groups: Sequence[GroupOffset]
    ended: int
    earlier: Sequence[Log]
    truncations: Sequence[LogTruncation]
    stops: Sequence[MirrorStop]
    budgets: Budgets | None
    compacted: Mapping[str, int] | None
    deaths: Mapping[str, int] | None
    refusals: Sequence[FailoverRefused]
    drained: frozenset[str]
    descriptions: Sequence[Description]
    disagreements: Sequence[Disagreement]
    comparisons: Sequence[Comparison]
    replica_samples: Sequence[ReplicaSample]
    deletions: Sequence[Deletion]
    changed_bytes: Sequence[ChangedBytes]


class WholeHistory(History, total=False):
    """A history with its logs."""

    logs: Sequence[Log]


def but(seen: PartitionView, **changes: Any) -> PartitionView:
    """The same rows with other facts: `changes` are of the run or of the partition."""
    of_run = {name: changes.pop(name) for name in {f.name for f in fields(RunFacts)} & {*changes}}
    facts = replace(seen.partition_facts.facts, **of_run)
    return replace(seen, partition_facts=replace(seen.partition_facts, facts=facts, **changes))


def promoted(
    offset: int,
    *,
    kind: str = "forced",
    source: str = "A",
    cluster: str = "B",
    at: int = 500 * SECOND,
) -> LogPromotion:
    return LogPromotion(
        link=f"{source}->{cluster}",
        kind="planned" if kind == "planned" else "forced",
        source=source,
        cluster=cluster,
        offset=offset,
        time=at + SECOND,
        fault_time=at,
    )


def mirror_stop(
    mirrored: int,
    promoted: int,
    *appended: tuple[int, str],
    link: str = "A->B",
    time: int = 500 * SECOND,
    truncated: Sequence[tuple[int, int]] = (),
    epochs: Sequence[tuple[int, int]] = (),
) -> MirrorStop:
    """A mirror's report of its end: how far it had mirrored, the promotion offset, and what it
    truncated and appended."""
    return MirrorStop(
        link=link, cluster=link[-1], time=time, mirrored=mirrored, promoted=promoted,
        truncated=truncated, appended=appended, epochs=epochs,
    )  # fmt: skip


def reversed_(link: str, *, at: int) -> Window:
    """The fault that makes a link's former source follow its destination, within a second. `at` is
    in seconds."""
    return Window(
        id=f"reverse-{at}", fault=REVERSE, target=link, start=at * SECOND, end=(at + 1) * SECOND
    )


def samples(
    *rows: tuple[int, int], epochs: Sequence[int] | None = None, every: int = SECOND
) -> Watermarks:
    """Samples of (LSO, high watermark), one each second from second 1 on."""
    n = len(rows)
    time = np.arange(1, n + 1, dtype=np.int64) * every
    return Watermarks(
        time=time,
        returned=time + 1000,
        leader=np.ones(n, np.int64),
        log_start=np.zeros(n, np.int64),
        last_stable=ints(*(r[0] for r in rows)),
        high_watermark=ints(*(r[1] for r in rows)),
        leader_epoch=ints(*(epochs or [0] * n)),
    )


def view(logs: Sequence[Log], **given: Unpack[History]) -> PartitionView:
    """The partition of a run of MirrorMaker 2 from A to B, unless something else is given."""
    rest: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    kind = rest.pop("mirror_kind", "mm2")
    usual = {"delivery": "at-least-once", "isolation": "read_committed"} if kind == "mm2" else {}
    mirror = MirrorSpec(kind=kind, options=dict(rest.pop("mirror", {}) or usual))
    rest |= {
        "run": "run",
        "topology": parse(rest.get("topology", "A->B")),
        "mirror": declared(mirror),
        "ended": rest.get("ended", ENDED),
        "topic": rest.get("topic", "A.t"),
        "partition": 0,
        "replicas": [log.replica() for log in logs],
        "earlier": [log.replica() for log in rest.get("earlier", ())],
    }

    def of(fact: type) -> dict[str, Any]:
        return {field.name: rest.pop(field.name) for field in fields(fact) if field.name in rest}

    rest["facts"] = RunFacts(**of(RunFacts))
    return PartitionView(partition_facts=PartitionFacts(**of(PartitionFacts)), **rest)


class Sent(TypedDict, total=False):
    """The optional fields of a `send`."""

    cluster: str
    outcome: str
    process: int
    producer_id: int
    producer_epoch: int
    returned: int
    invoked: int
    offsets: Sequence[int] | None
    refused: Sequence[int]


class Committed(Sent, total=False):
    """The optional fields of a `commit`."""

    acked: int
    ending: str
    transactional_id: str
    asked: int
    kind: str


class Polled(TypedDict, total=False):
    """The optional fields of a `poll`."""

    cluster: str
    reader: str
    group: str
    isolation: str


def commit(
    *uids: int,
    acked: int = -1,
    cluster: str = "A",
    ending: str = "commit",
    outcome: str = "ok",
    process: int = 1,
    transactional_id: str = "t",
    producer_id: int = -1,
    producer_epoch: int = -1,
    asked: int = 10 * SECOND,
    returned: int = 20 * SECOND,
    kind: str = "transaction",
    invoked: int = SECOND,
    offsets: Sequence[int] | None = None,
    refused: Sequence[int] = (),
) -> Send:
    """The records of a transaction in one partition, acknowledged from offset `acked` on (-1: not
    acknowledged); `refused` are payloads."""
    acks = (
        offsets
        if offsets is not None
        else [acked + i if acked >= 0 else -1 for i in range(len(uids))]
    )
    return Send(
        number=uids[0],
        client="client",
        process=process,
        cluster=cluster,
        kind=kind,
        ending=ending,
        outcome=outcome,
        transactional_id=transactional_id,
        invoked=invoked,
        ended_at=asked,
        returned=returned,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        first_uid=uids[0],
        offsets=ints(*acks),
        refused=np.array([each in refused for each in uids], np.bool_),
    )


def send(*uids: int, acked: int = -1, **rest: Unpack[Sent]) -> Send:
    """Records sent without a transaction."""
    return commit(
        *uids, acked=acked, kind="send", ending="none", transactional_id="", asked=0, **rest
    )


def poll(
    *pairs: tuple[int, int],
    cluster: str = "A",
    reader: str = "r",
    group: str = "",
    isolation: str = "read_committed",
    at: int = 100 * SECOND,
    position: int | None = None,
    kind: str = "poll",
) -> Read:
    """One poll that returned (offset, uid) pairs, or another step of a reader."""
    offsets, uids = [p[0] for p in pairs], [p[1] for p in pairs]
    return Read(
        reader=reader,
        process=0,
        cluster=cluster,
        isolation=isolation,
        kind=kind,
        group=group,
        time=at - 1,
        returned=at,
        position=(offsets[-1] + 1 if offsets else -1) if position is None else position,
        uids=ints(*uids),
        offsets=ints(*offsets),
    )


def kept(
    logs: Sequence[Log], *, options: Mapping[str, str] | None = None, **rest: Unpack[History]
) -> PartitionView:
    """A history of a mirror that keeps offsets."""
    return but(
        view(logs, **rest), mirror=declared(MirrorSpec(kind="shadow", options=options or {}))
    )
