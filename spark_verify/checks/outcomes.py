"""What the clients of a cluster were told in one life of its log: which records must be there, and which must never be seen.

A record must be committed (Jepsen's rule) when its transaction's commit returned ok, or returned nothing but a read_committed
reader got one of its records all the same; or when it was sent without a transaction and acknowledged. A record must never be
seen when its transaction was ended by abort, or its commit was refused for certain. What was read counts here where it was read;
that the other partitions of the transaction must have it too is torn-transaction's to see, which looks across partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_verify.checks.lives import lives, log_of, number_at, reads_in
from spark_verify.checks.logs import PLAIN, Log, among, distinct, locate
from spark_verify.eras import Life
from spark_verify.view import Bools, Ints, PartitionView, Read, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Records that clients sent to one cluster, as columns. `acked` is an offset or -1, `send` an index into `sends`."""

    sends: Sequence[Send]
    uid: Ints
    acked: Ints
    refused: Bools
    must: Bools
    never: Bools
    send: Ints

    def __len__(self) -> int:
        return len(self.uid)


def told(view: PartitionView, life: Life, *, earlier: bool = True) -> Told:
    """What clients were told in this life of a cluster's log; and before it, of what all cuts since then have left there.

    What was acknowledged below a cut lives on, unless its transaction was ended behind it: then the next owner ended it.
    """
    mine = lives(view)[life.cluster]
    number = {s.number: number_at(mine, s.invoked) for s in view.sends if s.cluster == life.cluster}
    chosen = [s for s in view.sends if s.cluster == life.cluster and number[s.number] <= life.number]
    if not earlier or life.number == 0:
        return _told(view, life, [s for s in chosen if number[s.number] == life.number])
    what = _told(view, life, chosen)
    since = np.array([number[s.number] for s in chosen], np.int64)[what.send] if len(what) else what.send
    keep = since == life.number
    for before in mine[: life.number]:
        log = log_of(view, before)
        cut = min(life.earlier[before.number :])
        keep |= (since == before.number) & (what.acked >= 0) & (what.acked < cut) & _settled(log, what.uid, cut)
    return Told(
        sends=what.sends,
        uid=what.uid[keep],
        acked=what.acked[keep],
        refused=what.refused[keep],
        must=what.must[keep],
        never=what.never[keep],
        send=what.send[keep],
    )


def _settled(log: Log | None, uids: Ints, cut: int) -> Bools:
    """Per record, whether what became of it in an earlier life was decided below the cut."""
    if log is None or not len(log.replica.records):
        return np.ones(len(uids), np.bool_)
    at = locate(log.replica.records.uid, uids)
    batch = log.replica.records.batch[at]
    return np.asarray((at >= 0) & ((log.record_state[at] == PLAIN) | (log.marker[batch] < cut)))


def _told(view: PartitionView, life: Life, sends: Sequence[Send]) -> Told:
    sizes = np.array([len(s.offsets) for s in sends], np.int64)
    send = np.repeat(np.arange(len(sends), dtype=np.int64), sizes)
    starts = np.cumsum(sizes) - sizes
    firsts = np.array([s.first_uid for s in sends], np.int64)
    uid = firsts[send] + np.arange(len(send)) - starts[send] if len(sends) else np.empty(0, np.int64)
    acked = np.concatenate([s.offsets for s in sends]) if sends else np.empty(0, np.int64)
    refused = np.concatenate([s.refused for s in sends]) if sends else np.empty(0, np.bool_)
    seen = among(uid, read_uids(view, life, "read_committed"))
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


def reads_of(view: PartitionView, life: Life, isolation: str | None = None) -> list[Read]:
    """Polls on a cluster in one life that returned something, of one isolation level or of any, in time order."""
    chosen = (r for r in reads_in(view, life) if r.kind == "poll" and len(r.uids))
    return sorted((r for r in chosen if isolation in (None, r.isolation)), key=lambda r: r.returned)


def read_uids(view: PartitionView, life: Life, isolation: str | None = None) -> Ints:
    """Every payload id that readers of a cluster got in one life, once."""
    parts = [r.uids for r in reads_of(view, life, isolation)]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.int64)
