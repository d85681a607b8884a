"""Data of a producer epoch that a marker had ended before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.spark_verify.checks.base import Finding, Found
from linkflap.spark_verify.checks.parts.generations import owners_of
from linkflap.spark_verify.checks.parts.logs import Log
from linkflap.spark_verify.facts.eras import LogGeneration
from linkflap.spark_verify.facts.view import ABORT, COMMIT, DATA, OTHER_CONTROL


def fenced_data(generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Data whose epoch is below that of the last marker of its producer id before it, both of one
    owner's clients.

    producer-id-uniqueness reports that two owners assigned one id. A reset of the partition's
    producer state (KIP-1279) lets an id begin anew.
    """
    batches = log.replica.batches
    marker = (batches.control == COMMIT) | (batches.control == ABORT)
    part = np.flatnonzero(
        (batches.producer_id >= 0) & (marker | (batches.control == DATA)) & batches.crc_ok
    )
    order = part[np.argsort(batches.producer_id[part], kind="stable")]
    if not len(order):
        return []
    pid, index = batches.producer_id[order], np.arange(len(order))
    last = np.maximum.accumulate(np.where(marker[order], index, -1))
    fenced = (last >= 0) & (pid[np.maximum(last, 0)] == pid) & ~marker[order]
    fence = batches.producer_epoch[order[np.maximum(last, 0)]]
    whose = np.stack(
        (
            owners_of(generation, batches.base_offset[order]),
            np.cumsum(batches.control == OTHER_CONTROL)[order],
        )
    )
    fenced &= (whose == whose[:, np.maximum(last, 0)]).all(axis=0)
    stale = np.flatnonzero(fenced & (batches.producer_epoch[order] < fence))
    return [
        Found(
            kind="stale-data",
            cluster=log.replica.cluster,
            offset=int(batches.base_offset[order[i]]),
            evidence={
                "producer_id": int(pid[i]),
                "producer_epoch": int(batches.producer_epoch[order[i]]),
                "marker_epoch": int(fence[i]),
                "marker_offset": int(batches.base_offset[order[last[i]]]),
            },
        )
        for i in stale.tolist()
    ]
