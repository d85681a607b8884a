"""sequence-continuity: a producer's sequence numbers in a partition leave out nothing and repeat nothing (KIP-98, KIP-360).

Per (producer id, epoch) in file order: the first batch begins at 0, every next one where the last ended plus one, modulo 2^31;
epochs of an id never go down, and a batch with an id has a sequence. Brokers check this on append; bytes that break it were
appended without asking, changed, or lost. A
log whose start was deleted may begin anywhere, and so may one after a reset of the partition's producer state (KIP-1279). Of logs
that linkflap did not record nobody knows whether they were compacted: there, and in logs that surely were, a break where offsets
are missing is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from spark_verify.checks.lives import examined, judged, owners_of
from spark_verify.checks.logs import Log
from spark_verify.eras import Life
from spark_verify.view import DATA, OTHER_CONTROL, Batches, Bools, Ints, PartitionView, Replica

WRAP = 2**31


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Follows every producer through every log."""

    def judge(life: Life, log: Log) -> Sequence[Finding]:
        batches = log.replica.batches
        # What a batch with a wrong CRC says of itself proves nothing; that it is wrong is replica-agreement's to tell.
        every = np.flatnonzero((batches.producer_id >= 0) & (batches.control == DATA) & batches.crc_ok)
        known = view.recorded and not view.compacted.get(life.cluster)
        chosen = every[batches.base_sequence[every] >= 0]
        found = _judge(life, log.replica, chosen, whole=known) if len(chosen) else []
        return [*examined(life, batches.base_offset[every]), *_none(log.replica, every), *found]

    return list(judged(view, judge))


def _none(replica: Replica, every: Ints) -> Sequence[Found]:
    batches = replica.batches
    return [
        Found(
            kind="no-sequence",
            cluster=replica.cluster,
            offset=int(batches.base_offset[row]),
            evidence={
                "producer_id": int(batches.producer_id[row]),
                "producer_epoch": int(batches.producer_epoch[row]),
                "sequence": int(batches.base_sequence[row]),
                "records": int(batches.count[row]),
            },
        )
        for row in every[batches.base_sequence[every] < 0].tolist()
    ]


def _judge(life: Life, replica: Replica, chosen: Ints, *, whole: bool) -> Sequence[Finding]:
    batches = replica.batches
    resets = np.cumsum(batches.control == OTHER_CONTROL)
    # Two clusters may hand out one id: each has a sequence of its own (that they did is producer-id-uniqueness' to tell).
    whose = resets * len(life.eras) + owners_of(life, batches.base_offset)
    order = chosen[np.lexsort((chosen, batches.producer_id[chosen], whose[chosen]))]
    era = whose[order]
    pid, epoch = batches.producer_id[order], batches.producer_epoch[order]
    first, last = batches.base_sequence[order], batches.last_sequence[order]
    follows = np.concatenate(([False], (pid[1:] == pid[:-1]) & (era[1:] == era[:-1])))
    before = np.concatenate(([-1], epoch[:-1]))
    same = follows & (epoch == before)
    expected = np.where(same, (np.concatenate(([0], last[:-1])) + 1) % WRAP, 0)
    # An id's first batch in a log that lost its beginning may be anywhere in its sequence.
    anywhere = ~follows & ((replica.log_start > 0) | (resets[order] > 0))
    wrong = (first != expected) & ~anywhere & ~(follows & (epoch < before))
    explained = np.zeros(len(order), np.bool_) if whole else wrong & _missing(replica, order, follows)
    wrong &= ~explained
    behind = (expected - first) % WRAP
    kinds = (
        ("epoch-regression", follows & (epoch < before)),
        ("sequence-start", wrong & ~same),
        ("sequence-repeat", wrong & same & (behind < WRAP // 2)),
        ("sequence-gap", wrong & same & (behind >= WRAP // 2)),
    )
    reason = f"{int(explained.sum())} sequences of {replica.cluster} break where offsets are missing: compaction, or loss"
    return [
        *([Unjudged(reason=reason)] if explained.any() else ()),
        *_breaks(replica, batches, kinds, order, expected, before),
    ]


def _missing(replica: Replica, order: Ints, follows: Bools) -> Bools:
    """Per batch, whether offsets are missing since the one before of its producer id, or, before its first, since the start."""
    b = replica.batches
    start = np.concatenate(([replica.log_start], b.last_offset[:-1] + 1))
    holes = np.cumsum((b.base_offset > start) | (b.count != b.last_offset - b.base_offset + 1))
    earlier = np.where(follows, np.concatenate(([0], holes[order][:-1])), 0)
    return np.asarray(holes[order] > earlier)


def _breaks(
    replica: Replica, batches: Batches, kinds: Sequence[tuple[str, Bools]], order: Ints, expected: Ints, before: Ints
) -> Sequence[Finding]:
    return [
        _found(replica, batches, kind, int(order[i]), int(expected[i]), int(before[i]))
        for kind, mask in kinds
        for i in np.flatnonzero(mask).tolist()
    ]


def _found(replica: Replica, batches: Batches, kind: str, row: int, expected: int, epoch_before: int) -> Found:
    evidence = {
        "producer_id": int(batches.producer_id[row]),
        "producer_epoch": int(batches.producer_epoch[row]),
        "epoch_before": epoch_before,
        "sequence": int(batches.base_sequence[row]),
        "expected": expected,
        "records": int(batches.count[row]),
    }
    return Found(kind=kind, cluster=replica.cluster, offset=int(batches.base_offset[row]), evidence=evidence)


CHECK = Check(
    name="sequence-continuity",
    guarantee="A producer's sequence numbers in a partition begin at 0 in every epoch and rise without gap or repeat.",
    source="KIP-98; KIP-360",
    inputs=frozenset({"batches", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="sequence-gap",
            meaning="A batch begins later than where the one before it ended.",
            smallest="producer 7 wrote sequences 0-1 and 3-4: at the second batch.",
        ),
        AnomalyKind(
            name="sequence-repeat",
            meaning="A batch begins at a sequence that is there already.",
            smallest="producer 7 wrote sequences 0-1 and 0-1 again: at the second batch.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="sequence-start",
            meaning="A producer id or a new epoch does not begin at 0.",
            smallest="producer 7's first batch has sequence 3: at that batch.",
        ),
        AnomalyKind(
            name="no-sequence",
            meaning="A batch that has a producer id has no sequence number: it is below 0, which no broker accepts.",
            smallest="a batch of producer 7 with sequence -1: at that batch.",
            despite_torn=True,
        ),
        AnomalyKind(
            name="epoch-regression",
            meaning="A producer id's epoch is lower than before: a fenced producer wrote.",
            smallest="producer 7 wrote in epoch 1, then in epoch 0: at the second batch.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    from_bytes=True,
    unit="batches",
    due=frozenset({"native"}),
)
