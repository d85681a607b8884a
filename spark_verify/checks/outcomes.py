"""What the clients were told: which records must be there, and which must never be seen.

A record must be committed (Jepsen's rule) when its transaction's commit returned ok, or returned nothing but a read_committed
reader got one of its records all the same; or when it was sent without a transaction and acknowledged. A record must never be
seen when its transaction was ended by abort, or its commit was refused for certain. What was read counts here where it was read;
that the other partitions of the transaction must have it too is torn-transaction's to see, which looks across partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_verify.checks.logs import among, distinct
from spark_verify.view import Bools, Ints, PartitionView, Read, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All records that clients sent to one cluster, as columns. `acked` is an offset or -1, `send` an index into `sends`."""

    sends: Sequence[Send]
    uid: Ints
    acked: Ints
    refused: Bools
    must: Bools
    never: Bools
    send: Ints

    def __len__(self) -> int:
        return len(self.uid)


def told(view: PartitionView, cluster: str) -> Told:
    """What clients of a cluster were told of their records in this partition."""
    sends = [s for s in view.sends if s.cluster == cluster]
    sizes = np.array([len(s.offsets) for s in sends], np.int64)
    send = np.repeat(np.arange(len(sends), dtype=np.int64), sizes)
    starts = np.cumsum(sizes) - sizes
    firsts = np.array([s.first_uid for s in sends], np.int64)
    uid = firsts[send] + np.arange(len(send)) - starts[send] if len(sends) else np.empty(0, np.int64)
    acked = np.concatenate([s.offsets for s in sends]) if sends else np.empty(0, np.int64)
    refused = np.concatenate([s.refused for s in sends]) if sends else np.empty(0, np.bool_)
    seen = among(uid, read_uids(view, cluster, "read_committed"))
    return Told(
        sends=sends,
        uid=uid,
        acked=acked,
        refused=refused,
        must=_must(sends, send, seen, acked) & ~refused,
        never=np.array([never_committed(s) for s in sends], np.bool_)[send] if sends else np.empty(0, np.bool_),
        send=send,
    )


def _must(sends: Sequence[Send], send: Ints, seen: Bools, acked: Ints) -> Bools:
    if not sends:
        return np.empty(0, np.bool_)
    commits = np.array([s.kind == "transaction" and s.ending == "commit" for s in sends], np.bool_)
    ok = np.array([s.outcome == "ok" for s in sends], np.bool_)
    info = np.array([s.outcome == "info" for s in sends], np.bool_)
    shown = np.zeros(len(sends), np.bool_)
    np.logical_or.at(shown, send, seen)
    alone = np.array([s.kind == "send" for s in sends], np.bool_)
    return (commits & (ok | (info & shown)))[send] | (alone[send] & (acked >= 0))


def never_committed(send: Send) -> bool:
    """Whether no record of this operation may ever be visible: it was aborted, or its commit refused for certain."""
    return send.kind == "transaction" and (send.ending == "abort" or (send.ending == "commit" and send.outcome == "fail"))


def reads_of(view: PartitionView, cluster: str, isolation: str | None = None) -> list[Read]:
    """Polls on a cluster that returned something, of one isolation level or of any, in time order."""
    chosen = (r for r in view.reads if r.cluster == cluster and r.kind == "poll" and len(r.uids))
    return sorted((r for r in chosen if isolation in (None, r.isolation)), key=lambda r: r.returned)


def read_uids(view: PartitionView, cluster: str, isolation: str | None = None) -> Ints:
    """Every payload id that readers of a cluster got, once."""
    parts = [r.uids for r in reads_of(view, cluster, isolation)]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.int64)
