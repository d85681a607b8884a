"""Kafka's own topics: bytes that are lost or changed, and coordinators that say something else than
data and clients."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faithful.clusters import Entry
from tests.faithful.coordinators import (
    COMMITS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    METADATA,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    committed_at,
    later,
    name_in,
    state_in,
    with_longer_timeout,
    with_partitions,
    with_producer,
    with_start,
    with_state,
    with_update,
)
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    V1,
    Afterwards,
    NothingToChange,
    kept_out,
    mutation,
    put,
    torn,
)
from tests.kafka_log import HEADER_SIZE, batches_in, recrc, rewrite

OTHER = {PREPARE_COMMIT: PREPARE_ABORT, COMPLETE_COMMIT: COMPLETE_ABORT}


def _own(made: Made, cluster: str, spot: tuple[str, int]) -> list[Entry]:
    return made.log(cluster, spot[1], topic=spot[0])


def _rewrite(
    made: Made, cluster: str, spot: tuple[str, int], how: Callable[[list[Entry]], list[Entry]]
) -> None:
    made.change(cluster, spot[1], how, topic=spot[0])


def _middle(made: Made, spot: tuple[str, int]) -> Entry:
    log = _own(made, "A", spot)
    if len(log) < 3:
        raise NothingToChange(f"{spot[0]} of A is too short")
    return log[len(log) // 2]


@mutation(PAIR, must="internal-topics/corrupt-batch", unknown="recording")
def own_crc_wrong(made: Made, rng: Random) -> None:
    """A batch of __transaction_state has a wrong CRC, on every broker."""
    _rewrite(made, "A", STATES, put(_middle(made, STATES), crc_flip=0x5A))


@mutation(PAIR, must="internal-topics/replica-disagreement")
def own_replica_changed(made: Made, rng: Random) -> None:
    """On a follower of __consumer_offsets, one byte has changed, and the CRC was recomputed."""
    entry = _middle(made, COMMITS)
    (record,) = entry.records
    changed = record._replace(value=(record.value or b"")[:-1] + b"\x07")
    made.rewrite(made.log_keys("A", 0, topic=COMMITS[0])[1], put(entry, records=(changed,)))


@mutation(PAIR, must="internal-topics/replica-missing internal-topics/offsets-missing")
def own_replica_without(made: Made, rng: Random) -> None:
    """A follower of __cluster_metadata lacks a batch."""
    made.rewrite(made.log_keys("A", 0, topic=METADATA[0])[1], kept_out(_middle(made, METADATA)))


@mutation(PAIR, must="internal-topics/offsets-missing")
def own_batch_lost(made: Made, rng: Random) -> None:
    """Every broker lacks a batch in the middle of __transaction_state."""
    _rewrite(made, "A", STATES, kept_out(_middle(made, STATES)))


@mutation(PAIR, must="internal-topics/ends-early")
def own_tail_lost(made: Made, rng: Random) -> None:
    """Every broker lacks the last batch of __consumer_offsets, which is below the high
    watermark."""
    for key in made.log_keys("A", 0, topic=COMMITS[0]):
        made.logs[key].entries = made.logs[key].entries[:-1]


@mutation(PAIR, must="internal-topics/log-disorder")
def own_file_out_of_order(made: Made, rng: Random) -> None:
    """Two batches of __transaction_state have changed places in a follower's file."""
    key = made.log_keys("A", 0, topic=STATES[0])[1]
    made.logs[key].edges_at = ()
    made.rewrite(key, lambda log: [log[0], log[2], log[1], *log[3:]])


@mutation(PAIR, must="internal-topics/leader-epoch-regression")
def own_epoch_raised(made: Made, rng: Random) -> None:
    """A batch in the middle of __transaction_state has a higher leader epoch than the batches after
    it, on every broker."""
    entry = _middle(made, STATES)
    _rewrite(made, "A", STATES, put(entry, leader_epoch=entry.leader_epoch + 1))


@mutation(PAIR, unknown="internal-topics recording", verdict="unknown")
def own_segment_torn(made: Made, rng: Random) -> Afterwards:
    """The leader of __transaction_state lacks the last bytes of the log, which are below the high
    watermark."""
    return torn(made.log_keys("A", 0, topic=STATES[0])[0])


@mutation(PAIR, unknown="internal-topics recording", verdict="unknown")
def own_records_unreadable(made: Made, rng: Random) -> Afterwards:
    """Every broker's __cluster_metadata has batches whose CRC is right, and whose records cannot be
    parsed."""

    def garble(root: Path) -> None:
        for path in sorted(root.glob(f"captures/*/A/*/{METADATA[0]}-0/*.log")):
            rewrite(path, [_garbled(data) for _, data in batches_in(path)])

    return garble


def _garbled(data: bytes) -> bytes:
    return recrc(data[:HEADER_SIZE] + b"\xff" * (len(data) - HEADER_SIZE))


@mutation(PAIR, unknown="internal-topics recording", verdict="unknown")
def own_record_of_no_coordinator(made: Made, rng: Random) -> None:
    """A commit in __consumer_offsets has a version that no known coordinator writes, on every
    broker."""
    entry = next(e for e in reversed(_own(made, "A", COMMITS)) if committed_at(e)[2] >= 0)
    (record,) = entry.records
    newer = record._replace(value=struct.pack(">h", 99) + (record.value or b"")[2:])
    _rewrite(made, "A", COMMITS, put(entry, records=(newer,)))


@mutation(FORCED, must="internal-topics/outcome-disagreement")
def decided_otherwise(made: Made, rng: Random) -> None:
    """B's coordinator recorded that it aborted a transaction, and the partitions have COMMIT
    markers."""
    log = _own(made, "B", STATES)
    at = next(n for n, e in enumerate(log) if state_in(e) == PREPARE_COMMIT)
    _rewrite(
        made,
        "B",
        STATES,
        lambda all_: [_changed(e) if n in (at, at + 1) else e for n, e in enumerate(all_)],
    )


def _changed(entry: Entry) -> Entry:
    return with_state(entry, OTHER[state_in(entry)])


@mutation(FORCED, must="internal-topics/marker-unexplained internal-topics/impossible-state")
def nobody_decided_it(made: Made, rng: Random) -> None:
    """The partitions have a COMMIT marker of B's own that no coordinator prepared."""
    log = _own(made, "B", STATES)
    at = next(n for n, e in enumerate(log) if state_in(e) == PREPARE_COMMIT)
    _rewrite(
        made,
        "B",
        STATES,
        lambda all_: [with_state(e, EMPTY) if n in (at, at + 1) else e for n, e in enumerate(all_)],
    )


@mutation({**FORCED, **V1}, must="internal-topics/marker-missing")
def completed_without_markers(made: Made, rng: Random) -> None:
    """B's coordinator recorded a transaction, from its beginning to its end, and the partitions
    have no marker of it."""
    log = _own(made, "B", STATES)
    last = {name_in(e): e for e in log}
    done = next(e for e in last.values() if state_in(e) == COMPLETE_COMMIT)
    mine = [e for e in log if name_in(e) == name_in(done)]
    now = log[-1].records[0].timestamp - mine[-3].records[0].timestamp
    again = [replace(later(e, now), offset=log[-1].end + n) for n, e in enumerate(mine[-3:])]
    if [state_in(e) for e in again] != [ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]:
        raise NothingToChange("the last transaction that was committed has other states too")
    _rewrite(made, "B", STATES, lambda all_: [*all_, *again])


def _state(made: Made, rng: Random, *states: int) -> tuple[str, Entry, Entry]:
    """One of these states of A's coordinator or of B's, in the middle or the last of its id; and
    the record before it of its id."""
    found = []
    for cluster in ("A", "B"):
        before: dict[bytes, Entry] = {}
        for entry in _own(made, cluster, STATES):
            if state_in(entry) in states and name_in(entry) in before:
                found.append((cluster, entry, before[name_in(entry)]))
            before[name_in(entry)] = entry
    if not found:
        raise NothingToChange("no coordinator wrote such a state")
    return rng.choice(found)


def _put_state(made: Made, cluster: str, old: Entry, new: Entry) -> None:
    _rewrite(made, cluster, STATES, lambda log: [new if e is old else e for e in log])


IMPOSSIBLE = "internal-topics/impossible-state"
OUTCOMES = (
    "internal-topics/marker-missing internal-topics/marker-unexplained "
    "internal-topics/outcome-disagreement"
)


@mutation(FORCED, must=IMPOSSIBLE)
def completed_otherwise(made: Made, rng: Random) -> None:
    """PrepareCommit is followed by CompleteAbort, or PrepareAbort by CompleteCommit."""
    cluster, entry, _ = _state(made, rng, COMPLETE_COMMIT, COMPLETE_ABORT)
    other = {COMPLETE_COMMIT: COMPLETE_ABORT, COMPLETE_ABORT: COMPLETE_COMMIT}[state_in(entry)]
    _put_state(made, cluster, entry, with_state(entry, other))


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def prepared_in_another_epoch(made: Made, rng: Random) -> None:
    """The end of a transaction is prepared in a producer epoch that is not the next one."""
    cluster, entry, _ = _state(made, rng, PREPARE_COMMIT, PREPARE_ABORT)
    _put_state(made, cluster, entry, with_producer(entry, epoch=rng.choice((3, 4))))


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def prepared_with_another_id(made: Made, rng: Random) -> None:
    """The end of a transaction is prepared with another producer id."""
    cluster, entry, _ = _state(made, rng, PREPARE_COMMIT, PREPARE_ABORT)
    _put_state(made, cluster, entry, with_producer(entry, pid=1_000_000))


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def completed_in_another_epoch(made: Made, rng: Random) -> None:
    """A transaction is complete in another producer epoch than the one in which it was prepared."""
    cluster, entry, _ = _state(made, rng, COMPLETE_COMMIT, COMPLETE_ABORT)
    _put_state(made, cluster, entry, with_producer(entry, epoch=rng.choice((1, 2))))


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def begun_in_another_epoch(made: Made, rng: Random) -> None:
    """A transaction begins in another producer epoch than the one that its producer got."""
    cluster, entry, _ = _state(made, rng, ONGOING)
    _put_state(made, cluster, entry, with_producer(entry, epoch=rng.choice((1, 2))))


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def prepared_without_a_beginning(made: Made, rng: Random) -> None:
    """A commit is prepared, and no transaction was ongoing."""
    cluster, entry, before = _state(made, rng, PREPARE_COMMIT)
    _put_state(made, cluster, before, with_state(before, EMPTY))
    del entry


@mutation(FORCED, must=IMPOSSIBLE, may=OUTCOMES)
def completed_without_preparation(made: Made, rng: Random) -> None:
    """A transaction is ongoing, and then complete."""
    cluster, entry, before = _state(made, rng, COMPLETE_COMMIT, COMPLETE_ABORT)
    _put_state(made, cluster, before, with_state(before, ONGOING))
    del entry


@mutation({**FORCED, "partitions": 3}, must=IMPOSSIBLE, may=OUTCOMES)
def prepared_without_a_partition(made: Made, rng: Random) -> None:
    """The end of a transaction is prepared for fewer partitions than it has."""
    cluster, entry, _ = _state(made, rng, PREPARE_COMMIT, PREPARE_ABORT)
    try:
        _put_state(made, cluster, entry, with_partitions(entry, fewer=1))
    except LookupError as error:
        raise NothingToChange(str(error)) from error


@mutation(FORCED, must=IMPOSSIBLE)
def begun_at_another_time(made: Made, rng: Random) -> None:
    """A transaction started at another time than the one at which it was first recorded."""
    cluster, entry, _ = _state(made, rng, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_ABORT)
    _put_state(made, cluster, entry, with_start(entry, later=rng.choice((-5000, 700_000))))


@mutation(FORCED, must=IMPOSSIBLE)
def updated_at_another_time(made: Made, rng: Random) -> None:
    """A state was updated a day before the one before it, or a day after it was written."""
    ends = PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT
    cluster, entry, _ = _state(made, rng, *ends)
    _put_state(made, cluster, entry, with_update(entry, later=rng.choice((-1, 1)) * 24 * 3600_000))


@mutation(FORCED, must=IMPOSSIBLE)
def timeout_changed_meanwhile(made: Made, rng: Random) -> None:
    """The timeout of a transaction changes while it is open."""
    cluster, entry, _ = _state(made, rng, ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    _put_state(made, cluster, entry, with_longer_timeout(entry))


@mutation(FORCED, must=IMPOSSIBLE)
def forgotten_too_early(made: Made, rng: Random) -> None:
    """A transactional id was forgotten long before it expired."""
    cluster = rng.choice("AB")
    log = _own(made, cluster, STATES)
    last = list({name_in(e): e for e in log}.values())
    ended = [e for e in last if state_in(e) in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)]
    if not ended:
        raise NothingToChange("no transactional id is without a transaction")
    (record,) = rng.choice(ended).records
    forgotten = replace(ended[0], offset=log[-1].end, records=(record._replace(value=None),))
    _rewrite(made, cluster, STATES, lambda all_: [*all_, forgotten])


@mutation(PAIR, must="internal-topics/commit-missing")
def commit_not_written(made: Made, rng: Random) -> None:
    """__consumer_offsets has another offset than the one that a group was observed to commit."""
    sampled = [g for g in made.groups if g.cluster == "A" and g.partition == 0]
    if not sampled:
        raise NothingToChange("no group was sampled")
    wrong = sampled[-1]
    spot = wrong.topic, wrong.partition

    def changed(entry: Entry) -> Entry:
        if committed_at(entry) != (wrong.group, spot, wrong.offset):
            return entry
        (record,) = entry.records
        value = record.value or b""
        return replace(
            entry, records=(record._replace(value=value[:9] + bytes([value[9] ^ 1]) + value[10:]),)
        )

    _rewrite(made, "A", COMMITS, lambda log: [changed(e) for e in log])
