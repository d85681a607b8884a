"""Runs that prove nothing, whose verdict has to be unknown; and what looks wrong and is not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from linkflap.harness.model.history import EventRow
from linkflap.harness.model.topology import INTERNAL_TOPICS
from tests.faithful.clusters import states
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    MM2_FORCED,
    PAIR,
    Afterwards,
    change_return,
    drop_events,
    event,
    mutation,
)
from tests.kafka_log import batches_in
from tests.run_copy import seal


@mutation(PAIR, unknown="recording lost-write", verdict="unknown")
def no_operations(made: Made, rng: Random) -> None:
    """The operations of clients were not recorded."""
    made.operations = []


@mutation(PAIR, unknown="recording read-committed-visibility", verdict="unknown")
def no_polls(made: Made, rng: Random) -> None:
    """The polls of readers were not recorded."""
    made.polls = []


@mutation(PAIR, unknown="recording aborted-read poll-continuity lost-write", verdict="unknown")
def no_history_of_a_reader(made: Made, rng: Random) -> None:
    """One reader that run.json names has no recorded rows."""
    made.polls = [p for p in made.polls if p.reader != "B-uncommitted"]


@mutation(PAIR, unknown="recording aborted-read unseen", verdict="unknown")
def no_history_of_the_only_committed_reader(made: Made, rng: Random) -> None:
    """The only read_committed reader on B, which run.json names, has no recorded rows."""
    made.polls = [p for p in made.polls if p.reader != "B-committed"]


def _hang(made: Made, reader: str) -> None:
    """Takes the second half of a reader's rows."""
    mine = [p for p in made.polls if p.reader == reader]
    gone = {id(p) for p in mine[len(mine) // 2 :]}
    made.polls = [p for p in made.polls if id(p) not in gone]


@mutation(
    FORCED,
    unknown="recording aborted-read poll-continuity read-committed-visibility",
    verdict="unknown",
)
def reader_hangs(made: Made, rng: Random) -> None:
    """A reader's history ends in the middle: it does not report that it is drained, while others
    read to the end."""
    _hang(made, "B-committed")


@mutation(FORCED, unknown="recording aborted-read group-offsets", verdict="unknown")
def group_hangs(made: Made, rng: Random) -> None:
    """The group's member left A with the other clients, and no row shows what it did on B."""
    made.polls = [p for p in made.polls if (p.reader, p.cluster) != ("follower", "B")]


@mutation({**PAIR, "relay": True}, unknown="recording exactly-once", verdict="unknown")
def no_history_of_a_relay(made: Made, rng: Random) -> None:
    """A relay that run.json names has no recorded polls."""
    made.polls = [p for p in made.polls if p.reader != "relay-1"]


@mutation({**PAIR, "relay": True}, unknown="exactly-once", verdict="unknown")
def relays_never_sampled(made: Made, rng: Random) -> None:
    """The offsets of the relays' group were not sampled, although it committed them with every
    transaction."""
    made.groups = [g for g in made.groups if g.group != "relays"]


@mutation(FORCED, verdict="valid")
def reader_of_a_dead_cluster_hangs(made: Made, rng: Random) -> None:
    """A reader's history ends in the middle, before its cluster A was given up in a forced
    failover. So it did not have to read to the end."""
    _hang(made, "A-uncommitted")


@mutation(PAIR, unknown="last-stable-offset", verdict="unknown")
def no_samples(made: Made, rng: Random) -> None:
    """No bounds were sampled."""
    made.marks = []


@mutation(FORCED, unknown="group-offsets", verdict="unknown")
def no_group_offsets(made: Made, rng: Random) -> None:
    """The group's offsets were not sampled, although it failed over."""
    made.groups = []


def _connector(made: Made, *states: tuple[int, str]) -> None:
    """Adds the states that Kafka Connect reported, from the beginning on, of the connector (-1)
    that carries offsets of groups, or of its task."""
    trace = (
        "java.util.regex.PatternSyntaxException: Unclosed group\n\tat "
        "java.base/java.util.regex.Pattern.error"
    )
    tasks = [
        {"connector": "MirrorCheckpointConnector", "task": task, "state": state, "trace": trace}
        for task, state in states
    ]
    made.events[:0] = [
        EventRow(time=made.events[0].time, kind="mirror-state", subject="A->B", data=data)
        for data in tasks
    ]


@mutation(MM2_FORCED, unknown="group-offsets", verdict="unknown")
def connector_of_groups_failed(made: Made, rng: Random) -> None:
    """MirrorMaker's checkpoint connector did not start, and no group offset reached B."""
    _connector(made, (-1, "FAILED"))
    made.groups = [row for row in made.groups if row.cluster != "B"]


@mutation(MM2_FORCED, unknown="group-offsets", verdict="unknown")
def task_of_groups_failed(made: Made, rng: Random) -> None:
    """The task of MirrorMaker's checkpoint connector failed after some offsets had reached B."""
    _connector(made, (-1, "RUNNING"), (0, "RUNNING"), (0, "FAILED"))


@mutation(MM2_FORCED, verdict="valid")
def connector_of_groups_ran_again(made: Made, rng: Random) -> None:
    """MirrorMaker's checkpoint connector failed, was restarted from outside, and stopped with its
    worker."""
    _connector(made, (-1, "FAILED"), (-1, "RUNNING"), (0, "RUNNING"), (0, "UNASSIGNED"))


@mutation(PAIR, unknown="recording byte-equality", verdict="unknown")
def no_capture_of_the_mirror(made: Made, rng: Random) -> None:
    """B's logs were not captured."""
    made.logs = {key: captured for key, captured in made.logs.items() if key.cluster != "B"}
    drop_events(made, lambda e: e.kind == "captured" and e.subject == "B")


@mutation(PAIR, unknown="recording byte-equality", verdict="unknown")
def empty_logs(made: Made, rng: Random) -> None:
    """Every captured log is empty, and no write was acknowledged."""
    for key in made.logs:
        made.rewrite(key, lambda log: [])
    made.operations, made.polls, made.marks, made.groups = [], [], [], []


@mutation({**PAIR, "flap": True}, unknown="fault-bite", verdict="unknown")
def fault_did_not_bite(made: Made, rng: Random) -> None:
    """A fault had no measurable effect."""
    event(made, "fault-bite", bit=False)


@mutation({**PAIR, "flap": True}, unknown="fault-bite", verdict="unknown")
def fault_not_measured(made: Made, rng: Random) -> None:
    """The bite of a fault was not measured."""
    drop_events(made, lambda e: e.kind == "fault-bite")


@mutation(
    FORCED,
    may=(
        "byte-equality internal-topics/marker-missing lost-write/lost-write "
        "marker-pairing/outcome-split record-equality"
    ),
    unknown="recording failover",
    verdict="unknown",
)
def promotion_not_recorded(made: Made, rng: Random) -> None:
    """The promotion offset of B was not recorded at a failover."""
    drop_events(made, lambda e: e.kind == "promotion")


@mutation(PAIR, unknown="recording", verdict="unknown")
def run_did_not_end(made: Made, rng: Random) -> Afterwards:
    """The harness was killed: run.json still has the status of a running run."""

    def running(root: Path) -> None:
        path = root / "run.json"
        path.write_text(path.read_text().replace('"finished"', '"running"'))

    return running


@mutation(PAIR, unknown="recording", verdict="unknown")
def row_torn(made: Made, rng: Random) -> Afterwards:
    """The last row of the operations is torn."""

    def tear(root: Path) -> None:
        path = root / "operations" / "clients.jsonl"
        path.write_bytes(path.read_bytes()[:-9])

    return tear


def _damaged(how: Callable[[Path, Path], None]) -> Afterwards:
    """A change of two of B's segments after the run, whose manifest has their digests."""

    def damage(root: Path) -> None:
        seal(root, digests=True)
        one, other = sorted(root.glob("captures/*/B/1/A.*/*.log"), key=_size)[-2:]
        how(other, one)

    return damage


def _size(path: Path) -> tuple[int, Path]:
    return path.stat().st_size, path


@mutation(PAIR, unknown="recording lost-write byte-equality", verdict="unknown")
def segment_shortened(made: Made, rng: Random) -> Afterwards:
    """A captured segment ends after its first batches: it was shortened after the run."""

    def shorten(path: Path, _other: Path) -> None:
        batches = batches_in(path)
        path.write_bytes(b"".join(data for _, data in batches[: len(batches) // 2]))

    return _damaged(shorten)


@mutation(PAIR, unknown="recording lost-write byte-equality", verdict="unknown")
def segments_exchanged(made: Made, rng: Random) -> Afterwards:
    """Two captured segments have each other's bytes."""

    def exchange(path: Path, other: Path) -> None:
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)

    return _damaged(exchange)


@mutation(PAIR, unknown="recording lost-write byte-equality", verdict="unknown")
def segment_replaced_by_fifo(made: Made, rng: Random) -> Afterwards:
    """A captured segment is a FIFO, which nobody writes to."""

    def replace_it(path: Path, _other: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    return _damaged(replace_it)


@mutation(PAIR, unknown="recording lost-write byte-equality", verdict="unknown")
def digests_removed(made: Made, rng: Random) -> Afterwards:
    """Somebody took all digests from the manifest of a run that was recorded with them."""

    def remove(root: Path) -> None:
        seal(root, digests=True)
        path = root / "manifest.json"
        path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), -1)))

    return remove


def _unreadable(made: Made, name: str, *, matters: bool) -> None:
    """One of the offset checkpoint files of A's first broker could not be read at the capture."""
    file = made.log_keys("A", 0)[0]
    said = ((f"{name} cannot be read: line 3 is malformed", matters),)
    made.logs[file].bounds = replace(made.logs[file].bounds, unreadable=said)


@mutation(PAIR, unknown="recording", verdict="unknown")
def high_watermarks_unreadable(made: Made, rng: Random) -> None:
    """A broker's replication-offset-checkpoint is garbage, and no leader was there to be asked."""
    _unreadable(made, "replication-offset-checkpoint", matters=True)


@mutation(PAIR, verdict="valid")
def recovery_points_unreadable(made: Made, rng: Random) -> None:
    """A broker's recovery-point-offset-checkpoint is garbage: nothing is read from it."""
    _unreadable(made, "recovery-point-offset-checkpoint", matters=False)


@mutation(PAIR, unknown="recording lost-write", verdict="unknown")
def acknowledgement_changed_on_disk(made: Made, rng: Random) -> Afterwards:
    """One digit of the operations is another one than when they were written."""

    def change(root: Path) -> None:
        seal(root, digests=True)
        path = root / "operations" / "clients.jsonl"
        text = path.read_bytes()
        at = next(
            rng.choice(found).start(1)
            for found in [[*re.finditer(rb'"acks":\[\[0,1,(\d)', text)]]
            if found
        )
        path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])

    return change


@mutation(FORCED, verdict="valid")
def clocks_apart(made: Made, rng: Random) -> None:
    """Clients stamp records with a clock that is two hours behind: the timestamps come from
    clients, and prove nothing."""
    _skew(made, -2 * 3600 * 1000)


@mutation(FORCED, verdict="valid")
def clocks_ahead(made: Made, rng: Random) -> None:
    """Clients stamp records with a clock that is two hours ahead."""
    _skew(made, 2 * 3600 * 1000)


@mutation({**FORCED, "open_at_end": True}, verdict="valid")
def clocks_apart_and_open(made: Made, rng: Random) -> None:
    """A transaction is open at the end of the run, and its client's clock is two hours behind. It
    has not been open for two hours."""
    assert any(
        entry.transactional and states(made.log("B")).state.get(entry.offset) == "open"
        for entry in made.log("B")
    )
    _skew(made, -2 * 3600 * 1000)


def _skew(made: Made, milliseconds: int) -> None:
    """Coordinators stamp their own topics."""
    for key in made.logs:
        if key.topic in INTERNAL_TOPICS:
            continue
        made.rewrite(
            key,
            lambda log: [
                replace(
                    e,
                    timestamp=e.timestamp + milliseconds,
                    records=tuple(
                        r._replace(timestamp=r.timestamp + milliseconds) for r in e.records
                    ),
                )
                for e in log
            ],
        )


@mutation(FORCED, verdict="valid")
def outcome_unknown(made: Made, rng: Random) -> None:
    """Clients of B never got the outcomes of their transactions."""
    for row in [
        o
        for o in made.operations
        if o.phase == "return" and o.cluster == "B" and o.ending == "commit"
    ][1:]:
        change_return(made, row, outcome="info")
