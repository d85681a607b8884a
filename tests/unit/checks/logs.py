"""A replica's log written batch by batch, and how histories number payloads and seconds.

    Log("A").txn(1, 2, pid=7).txn(3, pid=7, end="abort")

Payload ids are small numbers; `uid(process, n)` makes one that belongs to a producer incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.spark_verify.facts.view import (
    ABORT,
    COMMIT,
    DATA,
    OTHER_CONTROL,
    WHOLE,
    Batches,
    Parts,
    Records,
    Replica,
)

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
        self, base: int, count: int, *, pid: int, epoch: int, first: int, last: int,
        transactional: bool, control: int, written: int, **header: int | bool,
    ) -> None:  # fmt: skip
        self.end = max(self.end, base + count)
        self.batches.append(
            {
                "base_offset": base, "last_offset": base + count - 1, "length": 61 + 10 * count,
                "count": count,
                "crc": 1000 + base, "crc_ok": True, "leader_epoch": 0, "producer_id": pid,
                "producer_epoch": epoch,
                "base_sequence": first, "last_sequence": last, "transactional": transactional,
                "control": control,
                "coordinator_epoch": 0 if control in (ABORT, COMMIT) else -1,
                "written": written // 1_000_000,
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
            for name in (*INTEGERS, *SEQUENCES)
        }
        flags: dict[str, Any] = {
            name: np.array([b[name] for b in self.batches], np.bool_)
            for name in ("crc_ok", "transactional")
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
