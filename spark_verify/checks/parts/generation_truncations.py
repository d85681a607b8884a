"""When a generation of a log was truncated, and what samples and polls of it that leaves open."""

from __future__ import annotations

import numpy as np

from linkflap.spark_verify.checks.parts.generations import reversals_onto
from linkflap.spark_verify.checks.parts.reversals import sampled
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import Bools, PartitionView, Watermarks


def kept_since(view: PartitionView, read: Read) -> int:
    """The offset below which a poll's records are still there although a mirror that ended later
    truncated its destination and recorded that. Records above were of another era, which no
    generation of the log shows.
    """
    offsets = [
        at
        for stop in view.stops
        if stop.cluster == read.cluster and read.time <= stop.time
        for _, at in stop.truncated
    ]
    return min(offsets, default=FOREVER)


def truncations_in(view: PartitionView, generation: LogGeneration) -> list[tuple[int, int]]:
    """(time, offset) of each truncation that a mirror recorded when it began or ended inside a
    generation.

    Requests up to that time may concern the truncated part, which no capture of this generation
    shows.
    """
    reported = [(t.time, t.offset) for t in view.truncations if t.cluster == generation.cluster]
    reported += [
        (stop.time, at)
        for stop in view.stops
        if stop.cluster == generation.cluster
        for _, at in stop.truncated
    ]
    return sorted(each for each in reported if generation.settled <= each[0] <= generation.ended)


def marks_in(view: PartitionView, generation: LogGeneration) -> Watermarks | None:
    """The samples of one generation."""
    marks = view.watermarks.get(generation.cluster)
    return (
        None
        if marks is None
        else sampled(marks, reversals_onto(view, generation.cluster))[generation.number]
    )


def maybe_truncated(view: PartitionView, generation: LogGeneration, marks: Watermarks) -> Bools:
    """Per sample of a generation, whether it may be from after a truncation by a mirror that ended
    later. The time of the truncation is not recorded, only the mirror's end. A high watermark above
    the truncation is from before it.
    """
    late = np.zeros(len(marks.time), np.bool_)
    for stop in view.stops:
        targets = [at for end, at in stop.truncated if at < end]
        if (
            targets
            and stop.cluster == generation.cluster
            and generation.began <= stop.time <= generation.ended
        ):
            before = marks.time <= stop.time
            whole = np.flatnonzero(before & (marks.high_watermark > max(targets)))
            late |= before & (np.arange(len(late)) > (whole[-1] if len(whole) else -1))
    return late
