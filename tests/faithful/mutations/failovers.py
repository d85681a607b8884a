"""Promotions, truncations and budgets: what a failover and a failback may do, and
what was done instead."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.model.history import EventRow, SendGroup
from linkflap.harness.model.scenario import Budgets
from tests.faithful.entries import RESET, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    MM2_FORCED,
    PAIR,
    PLANNED,
    PLANNED_ROUND_TRIP,
    ROUND_TRIP,
    data,
    drop_events,
    event,
    journal,
    mutation,
    promotion,
    put,
)
from tests.faithful.notes import MS, SECOND


@mutation(
    FORCED,
    must="standby-isolation/standby-write",
    may="ghost-ack inconsistent-offset lost-write unseen",
)
def standby_acknowledged(made: Made, rng: Random) -> None:
    """B acknowledged a client's write while it was the destination of a mirror."""
    row = next(
        o for o in made.operations if (o.cluster, o.phase, o.kind) == ("B", "return", "send")
    )
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number = row.number + 100
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 7000, count=1
    )
    early = made.started + SECOND // 50
    made.operations += [
        replace(invoke, number=number, time=early, sends=(group,)),
        replace(row, number=number, time=early + MS, sends=(replace(group, acks=((0, 1, 1),)),)),
    ]


@mutation(
    FORCED,
    must="standby-isolation/circular-mirror provenance/stranger",
    may="lost-write/lost-write",
)
def came_round(made: Made, rng: Random) -> None:
    """A's own era has a record that clients sent to B: a mirror copied it back."""
    theirs = next(e for e in data(made, "B", native=True, state="plain") if e.pid < 0)
    made.change(
        "A",
        0,
        lambda log: [*log, replace(theirs, offset=log[-1].end, leader_epoch=log[-1].leader_epoch)],
    )


@mutation(
    PLANNED,
    must="standby-isolation/standby-write",
    may=(
        "byte-equality ghost-ack leader-epochs order-equality producer-id-uniqueness "
        "record-equality sequence-continuity truncation-accounting"
    ),
)
def promotion_recorded_too_late(made: Made, rng: Random) -> None:
    """The promotion of B is recorded after B's first own batches, so that these are in the era of
    the mirror."""
    first = data(made, "B", native=True)[0]
    index = next(i for i, e in enumerate(made.events) if e.kind == "promotion")
    old = made.events[index]
    made.events[index] = replace(old, data={**old.data, "offset": first.end})


@mutation(ROUND_TRIP, must="truncation-accounting/truncation-too-deep")
def truncated_too_deep(made: Made, rng: Random) -> None:
    """A was truncated below the divergence offset of A and B, as the mirror reports itself."""
    event(made, "truncation", offset=made.log("A")[1].offset)


@mutation(ROUND_TRIP, must="truncation-accounting/truncation-too-short")
def truncated_too_short(made: Made, rng: Random) -> None:
    """A was truncated above the divergence offset of A and B, as the mirror reports itself. B's
    first batch truncated it again, without a report."""
    tail = [e for e in made.log("A", moment="1-reverse") if e.offset >= promotion(made, "B")]
    event(made, "truncation", offset=tail[0].end)


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/truncation-unrecorded",
    may="last-stable-offset/lso-mismatch poll-continuity/passed-unread",
)
def truncation_not_recorded(made: Made, rng: Random) -> None:
    """A had a tail that B never had, and its truncation is not recorded."""
    drop_events(made, lambda e: e.kind == "truncation" and e.data["partition"] == 0)


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/history-changed",
    may="truncation-accounting/epoch-mismatch",
)
def history_rewritten(made: Made, rng: Random) -> None:
    """A batch of A below the truncation has another leader epoch than before."""
    batch = next(e for e in made.log("A")[::-1] if e.end <= promotion(made, "B"))
    made.change("A", 0, put(batch, leader_epoch=batch.leader_epoch + 1))


@mutation(
    ROUND_TRIP,
    must="truncation-accounting/tail-not-truncated",
    may=(
        "byte-equality group-offsets inconsistent-offset last-stable-offset lost-write "
        "marker-pairing order-equality poll-continuity producer-id-uniqueness "
        "read-committed-visibility record-equality "
        "sequence-continuity standby-isolation torn-transaction truncation-accounting"
    ),
)
def tail_not_truncated(made: Made, rng: Random) -> None:
    """A still has its tail, which B never had, in place of B's records."""
    parted = promotion(made, "B")
    tail = [e for e in made.log("A", moment="1-reverse") if e.offset >= parted]
    made.change(
        "A",
        0,
        lambda log: [
            *[e for e in log if e.end <= parted],
            *tail,
            *[e for e in log if e.offset >= tail[-1].end],
        ],
    )


@mutation(
    PLANNED_ROUND_TRIP, must="truncation-accounting/truncated-write", may="lost-write/lost-write"
)
def acknowledged_and_truncated(made: Made, rng: Random) -> None:
    """A acknowledged a write after a planned failover away from A, and lost it when it followed
    B."""
    row = next(
        o for o in made.operations if (o.cluster, o.phase, o.kind) == ("A", "return", "send")
    )
    invoke = next(o for o in made.operations if (o.number, o.phase) == (row.number, "invoke"))
    number, time = row.number + 100, next(e.time for e in made.events if e.kind == "clients-moved")
    group = SendGroup(
        topic=row.sends[0].topic, partition=0, first_uid=(row.process << 40) + 7000, count=1
    )
    log = made.log("A", moment="1-reverse")
    record = (
        log[0].records[0]._replace(delta=0, uid=group.first_uid, operation=number, counter=7000)
    )
    entry = Entry(offset=log[-1].end, records=(record,), leader_epoch=log[-1].leader_epoch)
    made.change("A", 0, lambda all_: [*all_, entry], moment="1-reverse")
    made.operations += [
        replace(invoke, number=number, time=time, sends=(group,)),
        replace(
            row,
            number=number,
            time=time + MS,
            sends=(replace(group, acks=((0, 1, entry.offset),)),),
        ),
    ]
    indexes = [i for i, e in enumerate(made.events) if e.kind == "truncation"]
    at = next(
        i
        for i in indexes
        if (made.events[i].data["topic"], made.events[i].data["partition"]) == (group.topic, 0)
    )
    made.events[at] = replace(
        made.events[at], data={**made.events[at].data, "offset": entry.offset, "end": entry.end}
    )


@mutation(
    {**FORCED, "open_at_death": True},
    must="truncation-accounting/marker-not-appended",
)
def another_marker_than_announced(made: Made, rng: Random) -> None:
    """The mirror reports that it aborted one producer, and the marker has another producer's id."""
    marker = next(e for e in made.log("B") if e.offset >= promotion(made, "B"))
    made.change("B", 0, put(marker, epoch=marker.epoch + 7))


@mutation(
    {**FORCED, "open_at_death": True},
    must="truncation-accounting/marker-unannounced",
    may="internal-topics/marker-unexplained",
)
def marker_not_announced(made: Made, rng: Random) -> None:
    """There is a marker between the last mirrored offset and the promotion offset, and the mirror
    does not report it."""
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    reported = [{**row, "appended": row["appended"][1:]} for row in rows]  # type: ignore[attr-defined]
    event(made, "mirror-stopped", 0, partitions=reported)


@mutation(
    PLANNED,
    must="truncation-accounting/promotion-mismatch",
    may="truncation-accounting/promotion-unaccounted",
)
def journal_says_something_else(made: Made, rng: Random) -> None:
    """The mirror reports that its mirrored range ended one batch before B's promotion offset."""
    last = data(made, "B", native=False)[-1]
    journal(made, mirrored=promotion(made, "B"), promoted=last.offset)


@mutation(PLANNED, must="truncation-accounting/promotion-unaccounted")
def journal_does_not_add_up(made: Made, rng: Random) -> None:
    """The mirror reports a promotion two offsets after its mirrored range, and no markers in
    between."""
    journal(made, mirrored=promotion(made, "B") + 2, promoted=promotion(made, "B"))


@mutation(PLANNED, must="truncation-accounting/truncation-not-made")
def truncation_only_announced(made: Made, rng: Random) -> None:
    """The mirror reports that it truncated B's log at its failover, and the mirrored records are
    still there."""
    log = made.log("B")
    truncated_to = log[len(log) // 4].offset
    journal(made, truncated=[[promotion(made, "B"), truncated_to]])


@mutation(PLANNED, must="truncation-accounting/epoch-mismatch")
def other_epochs_than_announced(made: Made, rng: Random) -> None:
    """The mirror recorded another leader epoch for its mirrored range than B's batches have."""
    journal(made, epochs=[[7, 0]])


@mutation({**FORCED, "lag": True}, must="failover/rpo-over-budget")
def more_lost_than_allowed(made: Made, rng: Random) -> None:
    """The failover lost records, and the scenario allows none."""
    made.scenario = replace(made.scenario, budgets=Budgets(rpo_records=0))


@mutation(MM2_FORCED, must="failover/rto-over-budget")
def slower_than_allowed(made: Made, rng: Random) -> None:
    """The first write after the failover took longer than the scenario allows."""
    made.scenario = replace(made.scenario, budgets=Budgets(rto_seconds=0.001))


def _refused(made: Made) -> None:
    """The mirror refused every request for a failover."""
    data = {
        "kind": "forced",
        "error": "INVALID_CLUSTER_MIRROR_STATES",
        "code": 145,
        "seconds": 60.0,
    }
    at = max(e.time for e in made.events if e.kind != "phase")
    made.events.append(EventRow(time=at, kind="failover-refused", subject="A->B", data=data))


@mutation(PAIR, must="failover/failover-refused")
def failover_that_was_refused(made: Made, rng: Random) -> None:
    """The mirror refused every request for a failover, and clients stayed on the old cluster."""
    _refused(made)


@mutation(
    PAIR,
    must=(
        "standby-isolation/partial-promotion failover/failover-refused byte-equality/byte-stranger"
    ),
)
def refused_and_carried_out_in_part(made: Made, rng: Random) -> None:
    """The mirror refused every request for a failover, and promoted one partition of B all the
    same: it has a reset of the producer state."""
    _refused(made)
    made.change(
        "B",
        0,
        lambda log: [
            *log,
            Entry(
                offset=log[-1].end, ends=RESET, leader_epoch=log[-1].leader_epoch,
                timestamp=made.ended // MS,
            ),
        ],
    )  # fmt: skip
