"""Kafka's own topics: bytes that are lost or changed, and coordinators that say something else than
data and clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.faithful.coordinators import (
    COMMITS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    METADATA,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    committed_at,
    state_in,
    with_state,
)
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    Afterwards,
    NothingToChange,
    kept_out,
    mutation,
    put,
)

OTHER = {PREPARE_COMMIT: PREPARE_ABORT, COMPLETE_COMMIT: COMPLETE_ABORT}


def _own(made: Made, cluster: str, spot: tuple[str, int]) -> list[Entry]:
    return made.log(cluster, spot[1], topic=spot[0])


def _rewrite(
    made: Made, cluster: str, spot: tuple[str, int], how: Callable[[list[Entry]], list[Entry]]
) -> None:
    made.change(cluster, spot[1], how, topic=spot[0])


def _middle(made: Made, cluster: str, spot: tuple[str, int]) -> Entry:
    log = _own(made, cluster, spot)
    if len(log) < 3:
        raise NothingToChange(f"{spot[0]} of {cluster} is too short")
    return log[len(log) // 2]


@mutation(PAIR, must="internal-topics/corrupt-batch", unknown="recording")
def own_crc_wrong(made: Made, rng: Random) -> None:
    """A batch of __transaction_state has a wrong CRC, on every broker."""
    _rewrite(made, "A", STATES, put(_middle(made, "A", STATES), crc_flip=0x5A))


@mutation(PAIR, must="internal-topics/replica-disagreement")
def own_replica_changed(made: Made, rng: Random) -> None:
    """On a follower of __consumer_offsets, one byte has changed, and the CRC was recomputed."""
    entry = _middle(made, "A", COMMITS)
    (record,) = entry.records
    changed = record._replace(value=(record.value or b"")[:-1] + b"\x07")
    made.rewrite(made.log_keys("A", 0, topic=COMMITS[0])[1], put(entry, records=(changed,)))


@mutation(PAIR, must="internal-topics/replica-missing internal-topics/offsets-missing")
def own_replica_without(made: Made, rng: Random) -> None:
    """A follower of __cluster_metadata lacks a batch."""
    made.rewrite(
        made.log_keys("A", 0, topic=METADATA[0])[1], kept_out(_middle(made, "A", METADATA))
    )


@mutation(PAIR, must="internal-topics/offsets-missing")
def own_batch_lost(made: Made, rng: Random) -> None:
    """Every broker lacks a batch in the middle of __transaction_state."""
    _rewrite(made, "A", STATES, kept_out(_middle(made, "A", STATES)))


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
    entry = _middle(made, "A", STATES)
    _rewrite(made, "A", STATES, put(entry, leader_epoch=entry.leader_epoch + 1))


@mutation(PAIR, unknown="internal-topics recording", verdict="unknown")
def own_segment_torn(made: Made, rng: Random) -> Afterwards:
    """The leader of __transaction_state lacks the last bytes of the log, which are below the high
    watermark."""
    key = made.log_keys("A", 0, topic=STATES[0])[0]

    def tear(root: Path) -> None:
        folder = (
            root
            / "captures"
            / key.moment
            / key.cluster
            / str(key.broker)
            / f"{key.topic}-{key.partition}"
        )
        path = sorted(folder.glob("*.log"))[-1]
        path.write_bytes(path.read_bytes()[:-7])

    return tear


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


@mutation(FORCED, must="internal-topics/marker-unexplained")
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


@mutation(FORCED, must="internal-topics/marker-missing")
def completed_without_markers(made: Made, rng: Random) -> None:
    """B's coordinator recorded that a transaction is complete, and the partitions have no marker of
    it."""
    log = _own(made, "B", STATES)
    first = next(n for n, e in enumerate(log) if state_in(e) == PREPARE_COMMIT)
    again = [replace(e, offset=log[-1].end + n) for n, e in enumerate(log[first : first + 2])]
    _rewrite(made, "B", STATES, lambda all_: [*all_, *again])


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
