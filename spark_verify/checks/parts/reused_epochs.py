"""Leader epochs that one cluster used twice, for two batches at one offset with other bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.cleaning import KEPT
from linkflap.spark_verify.facts.view import NO_EPOCH, Bools, Ints, Replica


def reused(replicas: Sequence[Replica], *, cleaned: int) -> Sequence[Finding]:
    """Batches of one cluster that have the epoch and base offset of another with other bytes; one
    finding per offset.

    Below `cleaned` each broker may have rewritten them by itself, and other bytes alone prove
    nothing.
    """
    good = [np.flatnonzero(r.batches.crc_ok) for r in replicas]
    columns = [
        np.concatenate(
            [getattr(r.batches, name)[own] for r, own in zip(replicas, good, strict=True)]
        )
        for name in ("leader_epoch", "base_offset", "crc", "length")
    ]
    which = np.concatenate([np.full(len(own), n, np.int64) for n, own in enumerate(good)])
    rows = np.concatenate(good)
    order = np.lexsort((which, columns[1], columns[0]))
    epoch, base, crc, length = (column[order] for column in columns)
    same = (epoch[1:] == epoch[:-1]) & (base[1:] == base[:-1]) & (epoch[1:] != NO_EPOCH)
    differ = (crc[1:] != crc[:-1]) | (length[1:] != length[:-1])
    if cleaned:
        header = [
            np.concatenate(
                [getattr(r.batches, n)[own] for r, own in zip(replicas, good, strict=True)]
            )
            for n in KEPT
        ]
        differ &= (base[1:] >= cleaned) | _changed([column[order] for column in header])
    other = np.flatnonzero(same & differ)
    found = []
    for index in other[
        np.unique(np.stack((epoch[other], base[other])), axis=1, return_index=True)[1]
    ].tolist():
        one, two = replicas[int(which[order[index]])], replicas[int(which[order[index + 1]])]
        evidence = {
            "epoch": int(epoch[index]),
            **_where(one, two, rows[order[index : index + 2]]),
            "crcs": [int(crc[index]), int(crc[index + 1])],
        }
        found.append(
            Found(
                kind="epoch-reuse", cluster=one.cluster, offset=int(base[index]), evidence=evidence
            )
        )
    return found


def _changed(columns: Sequence[Ints]) -> Bools:
    """Per row but the first, whether any column has another value than in the row before."""
    return np.asarray(np.any([column[1:] != column[:-1] for column in columns], axis=0), np.bool_)


def _where(one: Replica, two: Replica, rows: Ints) -> dict[str, object]:
    """Names the two logs; where both batches are in one log, their ordinals in it, from 1."""
    if one is two:
        return {
            "broker": one.broker,
            "capture": one.moment,
            "batches_of_the_log": (rows + 1).tolist(),
        }
    return {"brokers": [one.broker, two.broker], "captures": [one.moment, two.moment]}
