"""Markers that are wrong, missing or early, and transactions that stay open; outcomes that differ
between a dead cluster and its destination; producers that write on although they are fenced."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.clusters import ABORT, COMMIT, Entry, states
from tests.faithful.coordinators import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    STATES,
    decided_in,
    name_in,
    state_in,
    with_longer_timeout,
    with_state,
)
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    CHAIN,
    FORCED,
    MM2_PAIR,
    PAIR,
    RESETS,
    V1,
    V2,
    NothingToChange,
    change_return,
    data,
    kept_out,
    mutation,
    own_marker,
    promised,
    put,
)
from tests.faithful.observers import SECOND
from tests.faithful.stories import without_history


@mutation(
    FORCED,
    must="commit-aborted/commit-aborted",
    may=(
        "aborted-read internal-topics/outcome-disagreement lost-write/lost-write "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def commit_became_abort(made: Made, rng: Random) -> None:
    """In one partition, a COMMIT marker of B's own is an ABORT, although the commit was
    acknowledged and read."""
    made.change("B", 0, put(own_marker(made, COMMIT), ends=ABORT))


@mutation(
    FORCED,
    must="commit-aborted/abort-committed",
    may=(
        "internal-topics/outcome-disagreement poll-continuity "
        "read-committed-visibility/hidden-committed torn-transaction/torn-transaction"
    ),
)
def abort_became_commit(made: Made, rng: Random) -> None:
    """An ABORT marker of B's own is a COMMIT, although the abort was acknowledged."""
    made.change("B", 0, put(own_marker(made, ABORT, at=0), ends=COMMIT))


@mutation(
    CHAIN,
    must=(
        "byte-equality/byte-divergence order-equality/mirrored-aborted marker-pairing/outcome-split"
    ),
    may="poll-continuity read-committed-visibility/hidden-committed",
)
def abort_became_commit_on_the_way(made: Made, rng: Random) -> None:
    """On C, after the second mirror, an ABORT marker is a COMMIT: readers there get aborted
    records."""
    log = made.log("C")
    decided = states(log)
    ended = [
        e for e in data(made, "C", native=False, state="aborted") if e.offset in decided.marker
    ]
    if not ended:
        raise NothingToChange("C has no aborted transaction")
    marker = next(e for e in log if e.offset == decided.marker[ended[-1].offset])
    made.change("C", 0, put(marker, ends=COMMIT))


@mutation(
    {**FORCED, **V1},
    must="marker-pairing/marker-missing",
    may=(
        "aborted-read commit-aborted internal-topics/marker-missing lost-write/lost-write "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def marker_lost_and_overrun(made: Made, rng: Random) -> None:
    """A COMMIT marker of B's own is missing, and its producer continued in the same epoch, so that
    the next marker ends both transactions."""
    made.change("B", 0, kept_out(own_marker(made, COMMIT, at=0, going_on=True)))


@mutation(
    {**FORCED, **V2},
    must="marker-pairing/marker-missing",
    may=(
        "aborted-read commit-aborted internal-topics/marker-missing lost-write/lost-write "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def marker_lost_in_its_epoch(made: Made, rng: Random) -> None:
    """A COMMIT marker of B's own is missing, and its producer continued in the next epoch, as with
    transactions v2 (KIP-890)."""
    made.change("B", 0, kept_out(own_marker(made, COMMIT, at=0, going_on=True)))


@mutation(
    FORCED,
    must="commit-aborted/commit-unmarked",
    may=(
        "internal-topics/marker-missing last-stable-offset/hanging-transaction "
        "last-stable-offset/high-watermark-above-log "
        "last-stable-offset/lso-mismatch lost-write/lost-write poll-continuity/position-beyond-end "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def last_marker_lost(made: Made, rng: Random) -> None:
    """The last COMMIT marker of one of B's own producers is missing, and B kept running."""
    made.change("B", 0, kept_out(own_marker(made, COMMIT, going_on=False)))


@mutation(
    FORCED,
    must="last-stable-offset/hanging-transaction",
    may=(
        "commit-aborted/commit-unmarked internal-topics/marker-missing "
        "last-stable-offset/high-watermark-above-log last-stable-offset/lso-mismatch "
        "lost-write/lost-write poll-continuity/position-beyond-end "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def transaction_hangs(made: Made, rng: Random) -> None:
    """A transaction of B's own has no marker, and the run continued for longer than the
    transaction's timeout."""
    made.change("B", 0, kept_out(own_marker(made, COMMIT, going_on=False)))
    made.ended += 100 * SECOND


OPEN = {**FORCED, "open_at_end": True}
LINGERS, HANGS = (f"last-stable-offset/{kind}-transaction" for kind in ("lingering", "hanging"))


def _open_at_the_end(made: Made, last: int = ONGOING) -> None:
    """The transaction that is open at the end has a timeout of 900 s, and the run goes on for 80 s.
    `last`: the last state of its transactional id."""
    log = made.log("B", STATES[1], topic=STATES[0])
    if state_in(log[-1]) != ONGOING:
        raise NothingToChange("no transaction is open")

    def changed(entry: Entry) -> Entry:
        if name_in(entry) != name_in(log[-1]):
            return entry
        longer = with_longer_timeout(entry)
        return with_state(longer, last) if entry is log[-1] else longer

    made.change("B", STATES[1], lambda all_: [changed(e) for e in all_], topic=STATES[0])
    made.ended += 80 * SECOND


@mutation(OPEN, must=LINGERS, verdict="valid")
def transaction_lingers(made: Made, rng: Random) -> None:
    """A transaction is open at the end. Its timeout is 900 s, and the run continued for 80 s."""
    _open_at_the_end(made)


@mutation(OPEN, must=f"{HANGS} internal-topics/impossible-state")
def transaction_that_nobody_knows(made: Made, rng: Random) -> None:
    """The same, and its coordinator's last state is CompleteCommit: nothing will end it."""
    _open_at_the_end(made, COMPLETE_COMMIT)


@mutation(OPEN, must=f"{HANGS} internal-topics/impossible-state")
def transaction_that_never_began(made: Made, rng: Random) -> None:
    """The same, and its coordinator's last state is Empty."""
    _open_at_the_end(made, EMPTY)


@mutation(
    {**FORCED, "open_at_death": True},
    must="last-stable-offset/hanging-transaction truncation-accounting/marker-not-appended",
    may="last-stable-offset/lso-mismatch",
)
def mirror_left_it_open(made: Made, rng: Random) -> None:
    """The mirror reports that it aborted a transaction that was open at the failover, and the
    marker is missing."""
    made.change("B", 0, kept_out(_appended(made)))


def _appended(made: Made) -> Entry:
    """The marker that the mirror appended in partition 0."""
    partitions = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    rows = [row for row in partitions if row["partition"] == 0]  # type: ignore[attr-defined]
    offset = rows[0]["appended"][0][0]
    return next(e for e in made.log("B") if e.offset == offset)


@mutation(
    FORCED,
    must="commit-aborted/commit-unmarked",
    may=(
        "ghost-ack inconsistent-offset last-stable-offset/hanging-transaction "
        "last-stable-offset/lso-mismatch lost-write/lost-write "
        "marker-pairing poll-continuity read-committed-visibility "
        "read-committed-visibility/phantom-read torn-transaction/torn-transaction"
    ),
)
def marker_before_its_data(made: Made, rng: Random) -> None:
    """The last COMMIT marker of one of B's own producers is before the data that it ends."""
    marker = own_marker(made, COMMIT, going_on=False)
    log = made.log("B")
    first = next(e for e in log if states(log).marker.get(e.offset) == marker.offset)
    made.change("B", 0, lambda all_: _moved(all_, marker, first))


def _moved(log: list[Entry], marker: Entry, first: Entry) -> list[Entry]:
    """The marker where its data began, and everything up to where it was one offset later."""
    kept = [e for e in log if e.offset < first.offset or e.offset > marker.offset]
    later = [
        replace(e, offset=e.offset + 1) for e in log if first.offset <= e.offset < marker.offset
    ]
    return sorted([*kept, replace(marker, offset=first.offset), *later], key=lambda e: e.offset)


@mutation(
    MM2_PAIR, must="order-equality/mirrored-aborted aborted-read/aborted-read", may="send-order"
)
def aborted_was_mirrored(made: Made, rng: Random) -> None:
    """MirrorMaker 2 wrote records that were aborted on A, and read_committed readers got them."""
    aborted = data(made, "A", native=True, state="aborted")[0]
    last = data(made, "B", native=False)[-1]
    log = made.log("B")
    entry = replace(
        last,
        offset=log[-1].end,
        records=aborted.records,
        span=aborted.span,
        sequence=last.sequence + len(last.records),
        leader_epoch=log[-1].leader_epoch,
    )
    made.change("B", 0, lambda all_: [*all_, entry])
    _show(made, "B-committed", entry)


def _show(made: Made, reader: str, entry: Entry) -> None:
    """A reader got a batch in one more poll."""
    at = max(i for i, p in enumerate(made.polls) if p.reader == reader and p.kind == "poll")
    last = made.polls[at]
    runs = tuple((uid, entry.offset_of(uid), 1) for uid in entry.uids)
    fetched = tuple(
        replace(f, runs=runs if f.partition == 0 else (), position=entry.end)
        for f in last.fetched
        if f.partition == 0
    )
    made.polls.insert(
        at + 1,
        replace(last, time=last.returned + 1, returned=last.returned + 1000, fetched=fetched),
    )


@mutation(PAIR, must="commit-aborted/commit-aborted lost-write/lost-write", may="unseen")
def aborted_though_acknowledged(made: Made, rng: Random) -> None:
    """A client's commit was acknowledged, and every partition on both clusters has an ABORT
    marker."""
    aborted = data(made, "A", native=True, state="aborted")[0]
    for row in [o for o in made.operations if o.number == aborted.records[0].operation]:
        change_return(
            made, row, ending="commit", outcome="ok" if row.phase == "return" else row.outcome
        )


@mutation(
    FORCED,
    must="torn-transaction/torn-transaction",
    may=(
        "aborted-read commit-aborted/commit-aborted internal-topics/outcome-disagreement "
        "lost-write/lost-write read-committed-visibility/phantom-read"
    ),
)
def torn_over_partitions(made: Made, rng: Random) -> None:
    """A transaction of B's own over two partitions has a COMMIT in one and an ABORT in the
    other."""
    other = {
        r.operation for e in data(made, "B", 1, native=True, state="committed") for r in e.records
    }
    log = made.log("B")
    batch = [
        e
        for e in data(made, "B", native=True, state="committed")
        if promised(made, e) and e.records[0].operation in other
    ][-1]
    marker = next(e for e in log if e.offset == states(log).marker[batch.offset])
    made.change("B", 0, put(marker, ends=ABORT))


SPLIT = "marker-pairing/outcome-split"


def _commit(first: Entry, last: Entry) -> Entry:
    """The COMMIT of a transaction, behind the end of its log."""
    return replace(
        first, offset=last.end, records=(), span=1, sequence=-1, ends=COMMIT, codec="none",
        appended=None,
        leader_epoch=last.leader_epoch, coordinator=9,
    )  # fmt: skip


def _sent_with(made: Made, uid: int) -> set[int]:
    """All payloads of the transaction that has this one."""
    rows = [
        o
        for o in made.operations
        if any(g.first_uid <= uid < g.first_uid + g.count for g in o.sends)
    ]
    return {one for o in rows for g in o.sends for one in range(g.first_uid, g.first_uid + g.count)}


def _committed_late(made: Made) -> None:
    """A commits what B's mirror has aborted: its coordinator decides, and every partition gets a
    marker."""
    there = {
        uid
        for partition in range(made.scenario.topics.partitions)
        for e in made.log("A", partition)
        for uid in e.uids
    }
    ended: set[int] = set()
    for partition in range(made.scenario.topics.partitions):
        state = states(made.log("A", partition)).state
        opened = {
            e.pid: e for e in reversed(made.log("A", partition)) if state.get(e.offset) == "open"
        }
        for pid, first in sorted(opened.items()):
            if not _sent_with(made, first.uids[0]) <= there:
                raise NothingToChange("A commits nothing of which a part never arrived")
            made.change("A", partition, lambda log, first=first: [*log, _commit(first, log[-1])])  # type: ignore[misc]
            ended.add(pid)
    for pid in sorted(ended):
        made.change("A", STATES[1], lambda all_, pid=pid: decided_in(all_, pid), topic=STATES[0])  # type: ignore[misc]


@mutation(
    {**FORCED, **V1, "open_at_death": True},
    must=SPLIT,
    may="torn-transaction/torn-by-failover",
    verdict="valid",
)
def committed_where_it_was_given_up(made: Made, rng: Random) -> None:
    """A transaction was open at a forced failover. B's mirror aborted it, and A committed it while
    dying."""
    _committed_late(made)


@mutation({**RESETS, **V1, "open_at_death": True}, must=SPLIT)
def two_outcomes_in_copied_logs(made: Made, rng: Random) -> None:
    """The same in copied logs, which do not record that the failover was forced."""
    _committed_late(made)
    without_history(made)


@mutation(
    {**FORCED, **V2},
    must="marker-pairing/marker-epoch",
    may="internal-topics/marker-missing internal-topics/marker-unexplained",
)
def marker_of_an_older_epoch(made: Made, rng: Random) -> None:
    """A COMMIT marker of B's own has a producer epoch below that of the data that it ends."""
    marker = own_marker(made, COMMIT)
    made.change("B", 0, put(marker, epoch=marker.epoch - 2))


@mutation(
    {**FORCED, **V2, "steps": 90},
    must="marker-pairing/stale-data",
    may="sequence-continuity",
)
def fenced_producer_wrote(made: Made, rng: Random) -> None:
    """Data of B's own has the producer epoch before that of the marker that it follows."""
    _fenced(made, 1)


@mutation(
    {**FORCED, **V2, "steps": 90},
    must="sequence-continuity/epoch-regression marker-pairing/stale-data",
    may="producer-id-uniqueness/producer-id-collision",
)
def epoch_went_back(made: Made, rng: Random) -> None:
    """Data of B's own has a producer epoch below that of the same producer's earlier data."""
    _fenced(made, 2)


def _fenced(made: Made, epochs: int) -> None:
    """Data of one transaction gets an epoch so many below; the marker before it in the partition
    has the epoch it had."""
    log, mine = made.log("B"), data(made, "B", native=True, state="committed")
    for entry in mine:
        before = [
            e
            for e in log
            if e.pid == entry.pid and e.offset < entry.offset and e.epoch <= entry.epoch
        ]
        earlier = [e for e in before if e.ends is None and e.epoch < entry.epoch]
        markers = [e for e in before if e.ends is not None]
        if entry.epoch >= epochs and earlier and markers and markers[-1].epoch == entry.epoch:
            break
    else:
        raise NothingToChange("no producer of B wrote in two epochs")
    made.change(
        "B",
        0,
        lambda all_: [
            (
                replace(e, epoch=e.epoch - epochs)
                if (e.pid, e.epoch, e.ends) == (entry.pid, entry.epoch, None)
                else e
            )
            for e in all_
        ],
    )
