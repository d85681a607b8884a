"""A mirror that truncates its destination's log where transactions are open at its end (KIP-1279,
February to May 2026)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import Fetched
from linkflap.harness.model.scenario import Budgets
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    OVERLAPPING_TRUNCATION,
    PLANNED,
    TRUNCATING,
    NothingToChange,
    data,
    event,
    journal,
    mapped,
    marks,
    mutation,
    promised,
    promotion,
    states,
)

READER = "B-uncommitted"


def _lost(made: Made) -> list[Entry]:
    """What A had acknowledged behind where B was truncated."""
    truncated_to, log = promotion(made), made.log("A")
    outcome = states(log).state
    behind = [
        e
        for e in log
        if e.offset >= truncated_to
        and e.ends is None
        and outcome[e.offset] in ("plain", "committed")
    ]
    return [e for e in behind if promised(made, e)]


def _promoted_at(made: Made, offset: int) -> None:
    """Promotion and journal say that the first partition was truncated at another offset than it
    was."""
    mirrored = _said(made, "mirrored")
    index = next(
        i for i, e in enumerate(made.events) if e.kind == "promotion" and e.data["partition"] == 0
    )
    old = made.events[index]
    made.events[index] = replace(old, data={**old.data, "offset": offset})
    journal(made, truncated=[[mirrored, offset]], promoted=offset)


def _said(made: Made, name: str) -> int:
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    return next(row[name] for row in rows if row["partition"] == 0)  # type: ignore[attr-defined, no-any-return]


@mutation(TRUNCATING, must="failover/rpo-over-budget")
def acknowledged_above_the_truncation(made: Made, rng: Random) -> None:
    """Records that A had acknowledged after the start of an open transaction were truncated on B
    with this transaction. The failover lost them, and may lose none."""
    made.scenario = replace(made.scenario, budgets=Budgets(rpo_records=0))


@mutation(TRUNCATING, must="lost-write/lost-write")
def truncated_by_a_planned_failover(made: Made, rng: Random) -> None:
    """The failover was planned, and still truncated on B records that A had acknowledged after the
    start of an open transaction."""
    if not _lost(made):
        raise NothingToChange(
            "nothing that A had acknowledged was truncated in the first partition"
        )
    event(made, "failover", 0, kind="planned")


@mutation(TRUNCATING, must="lost-write/lost-write")
def truncated_after_it_was_read(made: Made, rng: Random) -> None:
    """A reader of everything got acknowledged records of A on B before B was truncated. Since then,
    neither cluster has them."""
    lost = _lost(made)
    if not lost or lost[-1].end > _said(made, "mirrored"):
        raise NothingToChange("nothing that A had acknowledged, and B had, was truncated")
    stopped = next(e.time for e in made.events if e.kind == "mirror-stopped")
    before = [
        p for p in made.polls if p.reader == READER and p.kind == "poll" and p.time < stopped
    ][-1]
    runs = tuple((uid, entry.offset_of(uid), 1) for entry in lost for uid in entry.uids)
    row = Fetched(
        topic=made.log_keys("A", 0)[0].topic, partition=0, runs=runs, position=lost[-1].end
    )
    at = made.polls.index(before) + 1
    made.polls.insert(at, replace(before, time=stopped - 2, returned=stopped - 1, fetched=(row,)))


@mutation(
    mapped(OVERLAPPING_TRUNCATION, open_transactions="truncate-once"),
    must="last-stable-offset/hanging-transaction",
)
def truncated_only_once(made: Made, rng: Random) -> None:
    """The mirror truncated B once. This removed the markers of transactions that began earlier, and
    nothing on B can end these transactions."""


@mutation(TRUNCATING, must="last-stable-offset/high-watermark-regression")
def sampled_after_the_truncation(made: Made, rng: Random) -> None:
    """B's high watermark was sampled before and after the mirror truncated its log, with the same
    leader in the same epoch."""
    stopped, truncated_to = (
        next(e.time for e in made.events if e.kind == "mirror-stopped"),
        promotion(made),
    )
    mark = [m for m in marks(made, "B") if m.returned < stopped][-1]
    if mark.high_watermark <= truncated_to:
        raise NothingToChange("nobody had sampled what was truncated")
    at = made.marks.index(mark) + 1
    made.marks.insert(
        at,
        replace(
            mark,
            time=stopped - 2,
            returned=stopped - 1,
            high_watermark=truncated_to,
            last_stable=truncated_to,
        ),
    )


@mutation(
    TRUNCATING,
    must="truncation-accounting/truncation-not-made standby-isolation/standby-write",
    may=(
        "byte-equality ghost-ack inconsistent-offset leader-epochs order-equality "
        "producer-id-uniqueness read-committed-visibility record-equality sequence-continuity "
        "truncation-accounting"
    ),
)
def truncated_deeper_than_reported(made: Made, rng: Random) -> None:
    """B was truncated below the offset that the mirror reports, and its clients wrote from there
    on."""
    first, second = data(made, "B", native=True)[:2]
    if second.offset > _said(made, "mirrored"):
        raise NothingToChange("nothing was mirrored where B's own records are")
    _promoted_at(made, first.end)


@mutation(
    PLANNED,
    must=(
        "truncation-accounting/truncation-not-made leader-epochs/epoch-not-raised "
        "provenance/stranger standby-isolation/circular-mirror"
    ),
    may="lost-write producer-id-uniqueness sequence-continuity torn-transaction",
)
def tail_kept_above_the_truncation(made: Made, rng: Random) -> None:
    """The mirror reports that it truncated B and was promoted at this offset; the mirrored records
    after it are still there."""
    _promoted_at(made, data(made, "B", native=False)[-1].offset)


@mutation(OVERLAPPING_TRUNCATION, must="truncation-accounting/promotion-unaccounted")
def one_truncation_of_two_was_reported(made: Made, rng: Random) -> None:
    """The mirror truncated B repeatedly, and reports only the last truncation."""
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    truncations = next(row["truncated"] for row in rows if row["partition"] == 0)  # type: ignore[attr-defined]
    if len(truncations) < 2:
        raise NothingToChange("it was truncated once")
    journal(made, truncated=truncations[-1:])
