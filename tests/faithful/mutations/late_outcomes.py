"""Transactions that a cluster which was given up ended otherwise than its destination had."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.coordinators import STATES, decided_in
from tests.faithful.entries import COMMIT, Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import FORCED, RESETS, V1, NothingToChange, mutation, states
from tests.faithful.stories import without_history

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
