"""Findings in a mirrored range that look like violations, and may be faithful."""

from __future__ import annotations

import numpy as np

from linkflap.spark_verify.checks.parts.logs import PLAIN, copies, distinct, locate
from linkflap.spark_verify.checks.parts.mirrored_ranges import Hop
from linkflap.spark_verify.facts.view import Ints


def repeated_at_source(compared: Hop) -> Ints:
    """Payload ids that the source itself has more than once: repeating those is faithful."""
    uids = compared.source.replica.records.uid
    return distinct(uids[copies(uids)[1] > 0])


def why_not_judged(compared: Hop, count: int) -> str:
    """The reason why records that came again, out of order or never are not judged
    (`unsettled_payloads`)."""
    source, destination = compared.source.replica.cluster, compared.destination.replica.cluster
    how = f"{count} records on {destination} came again, out of order, or never"
    return f"{how}: so may {source} have had them, whose start was deleted"


def perhaps_cleaned(count: int, holder: str, lacking: str) -> str:
    """The reason why records are not judged that only one end of a mirror has."""
    return (
        f"{count} records of {holder} are missing on {lacking}, which is compacted, and whether "
        "its cleaner took them cannot be known"
    )


def aborted_or_open(compared: Hop, uids: Ints) -> Ints:
    """Per uid, the index of its record at the source when that is neither plain nor committed
    there, else -1."""
    at = locate(compared.source.replica.records.uid, uids)
    hidden = (
        (at >= 0) & (compared.source.record_state[at] > PLAIN) & ~compared.source.visible[at]
        if len(compared.source.visible)
        else at >= 0
    )
    return np.where(hidden, at, -1).astype(np.int64)
