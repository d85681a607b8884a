"""Clients that stood still after the last fault although they had work, or that became unusable."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import EventRow
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    MM2_PAIR,
    PAIR,
    NothingToChange,
    change_return,
    data,
    mutation,
    promised,
)
from tests.faithful.mutations.readers import forget
from tests.faithful.observers import SECOND
from tests.faithful.spec import TOPIC

WAITED = 90


def waited(made: Made, *, promised: str, within: float = 60.0) -> None:
    """The run waits for a minute and a half after all that happened, and leaders answer all the
    time. Only workloads of this kind promise progress, within so many seconds."""
    began = made.ended
    made.ended = began + WAITED * SECOND
    for name, time in (
        ("breaking things", began),
        ("settling", made.ended - 2 * SECOND),
        ("capturing logs", made.ended - SECOND),
    ):
        made.events.append(EventRow(time=time, kind="phase", subject=name, data={}))
    last = {(m.cluster, m.topic, m.partition): m for m in made.marks}
    for seconds in range(0, WAITED, 3):
        time = began + seconds * SECOND
        made.marks += [replace(m, time=time, returned=time + 1000) for m in last.values()]
    workloads = tuple(
        replace(w, progress_within=within if w.kind == promised else 0.0)
        for w in made.scenario.workloads
    )
    made.scenario = replace(made.scenario, workloads=workloads)


@mutation(PAIR, must="progress/stalled")
def producers_that_stalled(made: Made, rng: Random) -> None:
    """For a minute and a half after the last fault, no producer was given an acknowledgement."""
    waited(made, promised="transactional")


@mutation(PAIR, must="progress/stalled", may="group-offsets")
def group_that_stalled(made: Made, rng: Random) -> None:
    """For a minute and a half after the last fault, a group's committed offset stood below the last
    stable offset."""
    first = {(g.cluster, g.group, g.partition): g for g in reversed(made.groups)}
    made.groups = [g for g in made.groups if g in first.values()]
    waited(made, promised="readers")


@mutation(
    MM2_PAIR,
    must="progress/stalled",
    may="poll-continuity/position-beyond-end",
    unknown="order-equality",
)
def mirror_that_stalled(made: Made, rng: Random) -> None:
    """For a minute and a half after the last fault, B got nothing more, and lacks A's last
    records."""
    ends = [e for e in data(made, "B", native=False) if promised(made, e)][-1].offset
    forget(made, set(range(ends, made.log("B")[-1].end)), "B")
    made.change("B", 0, lambda log: [e for e in log if e.offset < ends])
    for key in made.log_keys("B", 0):
        bounds = replace(made.logs[key].bounds, high_watermark=ends)
        made.logs[key] = replace(made.logs[key], bounds=bounds)
    made.marks = [
        replace(
            m,
            high_watermark=min(m.high_watermark, ends),
            last_stable=min(m.last_stable, ends),
        )
        if (m.cluster, m.topic, m.partition) == ("B", TOPIC, 0)
        else m
        for m in made.marks
    ]
    waited(made, promised="nothing")


@mutation(PAIR, verdict="valid")
def readers_with_nothing_to_read(made: Made, rng: Random) -> None:
    """For a minute and a half after the last fault, readers stood still at the ends of their
    logs."""
    waited(made, promised="readers")


@mutation(PAIR, must="progress/client-unusable")
def producer_fenced_by_nobody(made: Made, rng: Random) -> None:
    """The last commit of a producer returned that it was fenced, and nobody else has its
    transactional id."""
    rows = [o for o in made.operations if o.client == "transactional-1" and o.sends]
    if rows[-1].phase != "return":
        raise NothingToChange("its last operation never returned")
    change_return(made, rows[-1], error="_FENCED: this instance has been fenced by a newer one")
