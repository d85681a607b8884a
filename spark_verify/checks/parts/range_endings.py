"""The end of a mirrored range: a promotion, records that a mirror appended, or neither."""

from __future__ import annotations

from typing import Literal

from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration, MirroredRange
from linkflap.spark_verify.facts.lineages import history
from linkflap.spark_verify.facts.partition_facts import Stop
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.view import DATA, Batches, PartitionView

Tail = Literal["lost-with-source", "died-with-destination", "drained", "unknown", "another-hop"]
"""The meaning of a missing tail. `died-with-destination`: every broker of the destination was
killed for good, so only the dead could have shown what had not arrived. In a comparison over
several hops a tail has no meaning: each hop reports its own."""


def tail(view: PartitionView, mirrored_range: MirroredRange) -> Tail:
    if mirrored_range.far:
        return "another-hop"
    if mirrored_range.promotion is not None:
        return "lost-with-source" if mirrored_range.promotion.kind == "forced" else "drained"
    past = history(view.partition_facts).generations[mirrored_range.destination]
    if past[mirrored_range.generation].lost is not None:
        return "died-with-destination"
    # Another destination was promoted in place of the one that died.
    lost = [
        p
        for p in view.promotions
        if p.kind == "forced"
        and p.source == mirrored_range.source
        and p.time >= mirrored_range.began
    ]
    return "lost-with-source" if lost else "unknown"


def _appends_to(stop: Stop, mirrored_range: MirroredRange) -> bool:
    """Whether the records that a mirror appended at its end are in the destination's log: its own
    mirror's, or copied from an earlier hop."""
    if mirrored_range.far:
        return stop.cluster != mirrored_range.source
    return stop.cluster == mirrored_range.destination


def appended_since(view: PartitionView, mirrored_range: MirroredRange, batches: Batches) -> int:
    """From where on the destination has only control batches that mirrors appended at the end of
    the run, and recorded that they did.

    Of its own mirror, or, from further away, of one in between. What is appended at a failover is
    behind the promotion, where the mirrored range ends.
    """
    if mirrored_range.promotion is not None:
        return FOREVER
    over = [
        s
        for s in view.stops
        if not any(p.link == s.link and p.time >= s.time for p in view.promotions)
    ]
    whose = [
        s
        for s in over
        if s.time >= mirrored_range.began and s.appended and _appends_to(s, mirrored_range)
    ]
    begins = [min(at for at, _ in s.appended) for s in whose]
    last = int(batches.base_offset[batches.control == DATA].max(initial=-1))
    return min((at for at in begins if at > last), default=FOREVER)


def not_promoted(view: PartitionView, generation: LogGeneration) -> bool:
    """Whether clients wrote to a mirrored log without a promotion: their records look like the
    mirror's."""
    return all(e.origin == "mirrored" for e in generation.eras) and generation.cluster in Sends.of(
        view.sends
    ).words("cluster")
