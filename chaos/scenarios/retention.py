"""retention: segments are deleted while they are written, read and mirrored, on both sides of a failover.

Guarantee at stake: retention moves the log start, deletes whole segments below it, and nothing else (Kafka documentation,
log.retention.bytes). What a reader or a mirror had not got by then is gone for it, and only that. A violation looks like a record
that is missing at or above the log start, or a log that begins below one that was told.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import Wish, one_failover
from linkflap.harness.model.scenario import Minimums, Scenario, TopicSpec

KEPT = 300_000
"""Bytes of a partition. By size, not by time: how much there is at the end is to depend on what was written alone."""


def build(wish: Wish) -> Scenario:
    """A->B: a topic that keeps some hundred KB; once A has deleted segments it is killed, and clients go on at B."""
    return one_failover(
        wish,
        name="retention",
        about="a topic of which brokers delete segments all the time; A is killed, clients go on at B",
        between=(4.0, 5.0),
        when="segments-deleted",
        # Few afterwards: part of what was mirrored is to be there at the end.
        minimums=Minimums(committed=60, aborted=5, reads=500, afterwards=500),
        topics=TopicSpec(config={"segment.ms": "1000", "retention.bytes": str(KEPT)}),
        duration=6.0,
    )
