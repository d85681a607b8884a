"""read-committed-visibility: a read_committed reader gets exactly the committed and plain records
of the range that it passed (KIP-98). No reader of either isolation, and no member of a share group
(KIP-932), gets what the log does not have there.

A reader's own polls prove the range that it passed: from the first offset after an assignment to
the position after its last poll before the next assignment. Members of a group share the records
that they must have got, because a partition moves between them.

A cluster that is started again for a failback may still commit: its coordinator writes the COMMIT
marker of a prepared transaction, or of one that its client ends now. That is after the log was
captured, and before its mirror truncates it, so no capture has that marker. If the client requested
such a commit, and was not refused, the records of that transaction that readers got meanwhile are
no phantoms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.log_model.delivered_records import (
    Delivered,
    columns_of,
    first_unexplained,
    of_transactions,
)
from linkflap.spark_verify.checks.log_model.generations import (
    every,
    examined,
    kept_since,
    log_of,
    not_captured,
    own,
    polls_in,
    reads_in,
)
from linkflap.spark_verify.checks.log_model.logs import (
    OPEN,
    PLAIN,
    Log,
    among,
    each_at,
    joined,
    locate,
    runs,
    together,
)
from linkflap.spark_verify.checks.log_model.lost_records import Taken, passed_in, restarted_log
from linkflap.spark_verify.checks.log_model.outcomes import never
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.sends_and_reads import Read, Sends, consumers
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Compares what readers got with what the bytes say they should have got."""
    for generation in every(view):
        audience, given = _audience(view, generation), _given(view, generation)
        if not audience and not given:
            continue
        log = log_of(view, generation)
        if log is not None:
            found = _judge(view, generation, log, audience, given)
            yield from own(view, generation, found, of_readers=True)
        else:
            yield not_captured(view, generation.cluster)


def _audience(view: PartitionView, generation: LogGeneration) -> Mapping[str, Sequence[Read]]:
    """group, or reader where there is none -> what it did with read_committed in one generation of
    a log, in time order."""
    return _by_name(r for r in reads_in(view, generation) if r.isolation == "read_committed")


def _given(view: PartitionView, generation: LogGeneration) -> Mapping[str, Sequence[Read]]:
    """group, or reader where there is none -> the polls that gave it records, in time order; share
    groups are among them."""
    return _by_name(polls_in(view, generation))


def _by_name(reads: Iterable[Read]) -> Mapping[str, Sequence[Read]]:
    found: dict[str, list[Read]] = {}
    for read in sorted(reads, key=lambda r: r.returned):
        found.setdefault(read.group or read.reader, []).append(read)
    return found


def passed(reads: Sequence[Read]) -> Iterator[tuple[int, int]]:
    """Offset ranges [from, to) that one reader has certainly passed; an assignment, a revocation or
    a step back begins a new one."""
    start, position = -1, -1
    for read in reads:
        if read.kind in ("assign", "revoke", "error"):
            if start >= 0:
                yield start, position
            start = -1
        elif read.kind == "poll" and len(read.uids):
            first = int(read.offsets[0])
            if start >= 0 and first < position:
                yield start, position
                start = -1
            start = first if start < 0 else start
            position = max(read.position, int(read.offsets[-1]) + 1)
    if start >= 0:
        yield start, position


def _covered(reads: Sequence[Read], offsets: Ints) -> Bools:
    """Whether each of these offsets lies in a range that some reader of the group has passed."""
    mask = np.zeros(len(offsets), np.bool_)
    for mine in consumers(reads):
        for start, end in passed(mine):
            mask |= (offsets >= start) & (offsets < end)
    return mask


def _judge(
    view: PartitionView,
    generation: LogGeneration,
    log: Log,
    audience: Mapping[str, Sequence[Read]],
    given: Mapping[str, Sequence[Read]],
) -> Iterator[Finding]:
    compacted = view.compacted.get(generation.cluster, 0)
    taken = Taken(view, generation.cluster)
    got = {name: columns_of(reads) for name, reads in given.items()}
    late = {name: _committed_after_capture(view, generation, log, got[name]) for name in got}
    everything = together(got[name].offset[~late[name]] for name in got)
    yield from examined(generation, everything, whole=True)
    for name, mine in got.items():
        gone = (mine.offset < compacted) & ~among(mine.offset, log.records.offset)
        truncated = _truncated_since(view, mine)
        yield from _phantoms(log, name, mine, ~(gone | late[name] | truncated), taken)
    restarted = restarted_log(view, generation)
    for name, reads in audience.items():
        hidden = _hidden(log, reads, got[name].offset if name in got else np.empty(0, np.int64))
        if restarted is not None:
            there = log.records.offset[hidden]
            hidden = hidden[passed_in(restarted, log, there, reads, generation)]
        yield from _were_hidden(log, name, reads, hidden, taken)


def _committed_after_capture(
    view: PartitionView, generation: LogGeneration, log: Log, got: Delivered
) -> Bools:
    """Per record, whether it was open when the log was captured, and may have been committed by the
    time it was read: after a failback onto this cluster began, and before its log was truncated."""
    if generation.last:
        return np.zeros(len(got), np.bool_)
    still_open = each_at(log.record_state, log.holds(got.offset, got.uid), PLAIN) == OPEN
    return np.asarray(
        still_open
        & (got.returned > generation.ended)
        & (of_transactions(view, got, lambda sends: _committing(sends, generation.cluster)) > 0)
    )


def _truncated_since(view: PartitionView, got: Delivered) -> Bools:
    """Per record, whether it was read uncommitted, and a mirror that ended has truncated it since:
    a reader with read_committed must not have got it before."""
    ends = [
        kept_since(view, read) if read.isolation == "read_uncommitted" else FOREVER
        for read in got.reads
    ]
    return np.asarray(got.offset >= np.array(ends, np.int64)[got.read])


def _committing(sends: Sends, cluster: str) -> Ints:
    """Per transaction, whether this cluster's coordinator may have committed it."""
    asked = sends.says("ending", "commit") & ~never(sends)
    return np.asarray(sends.says("cluster", cluster) & asked).astype(np.int64)


def _phantoms(log: Log, name: str, got: Delivered, known: Bools, taken: Taken) -> Sequence[Finding]:
    """The records that a reader got and that the log does not have there, or that read_committed
    hides."""
    records = log.records
    rows = np.flatnonzero(known & (got.offset >= log.replica.log_start))
    offsets, uids, times = got.offset[rows], got.uid[rows], got.asked[rows]
    shown = np.array([read.isolation == "read_uncommitted" for read in got.reads], np.bool_)
    at = locate(records.offset, offsets)
    right = (at >= 0) & (each_at(records.uid, at, -1) == uids)
    right &= each_at(log.visible, at, False) | shown[got.read[rows]]
    wrong = np.flatnonzero(~right)
    if not len(wrong):
        return []
    if not log.whole and bool((at[wrong] < 0).all()):
        return [
            Unjudged(f"the log of {log.cluster} is torn, so what was read from it cannot be found")
        ]
    by = taken.read(offsets[wrong], uids[wrong], times[wrong])
    chosen = first_unexplained(offsets[wrong], by)
    order, by = wrong[chosen], by[chosen]
    offsets, uids, at = offsets[order], uids[order], at[order]
    return [
        Found.at(
            "phantom-read",
            log.cluster,
            offsets[start],
            records=end - start,
            uid=uids[start],
            reader=name,
            holds=log.records.uid[at[start]] if at[start] >= 0 else -1,
            state=log.state_of(at[start]) if at[start] >= 0 else "absent",
            **taken.evidence(int(by[start])),
        )
        for start, end in runs(offsets, joined(by))
    ]


def _hidden(log: Log, reads: Sequence[Read], offsets: Ints) -> Ints:
    """The rows of visible records that readers passed, and did not get: they got these offsets."""
    visible = np.flatnonzero(log.visible)
    there = log.records.offset[visible]
    return visible[_covered(reads, there) & ~among(there, offsets)]


def _were_hidden(
    log: Log, name: str, reads: Sequence[Read], hidden: Ints, taken: Taken
) -> Sequence[Finding]:
    offsets, uids = log.records.offset[hidden], log.records.uid[hidden]
    by = taken.passed(offsets, reads)
    visible = np.searchsorted(np.flatnonzero(log.visible), hidden)
    return [
        Found.at(
            "hidden-committed",
            log.cluster,
            offsets[start],
            records=end - start,
            uid=uids[start],
            reader=name,
            **taken.evidence(int(by[start])),
        )
        for start, end in runs(visible, joined(by))
    ]


CHECK = Check(
    name="read-committed-visibility",
    guarantee="""A read_committed reader gets every committed and plain record of the range that it
        passes, and nothing else. No reader or member of a share group gets a record that the log
        does not have at that offset.""",
    source="KIP-98, consumer guarantees; KIP-932, share.isolation.level",
    wire="""What answers to Fetch deliver, without what they list as aborted. Whether the client
        library filtered that out, and showed the rest to the program, is not known.""",
    inputs={"batches", "records", "sends", "reads", "promotions"},
    anomalies=(
        AnomalyKind(
            name="hidden-committed",
            meaning="A reader passed a committed or plain record without getting it.",
            sentence="{reader} passed {who} at {at} on {cluster} unread, though committed",
            counted="committed record was hidden|committed records were hidden",
            smallest="A has 1 2 3 committed, a reader got 1 3: at the offset of 2.",
        ),
        AnomalyKind(
            name="phantom-read",
            meaning="""A reader or a member of a share group got a record that the bytes do not have
                there; or, with read_committed, not as committed or plain.""",
            sentence="""{reader} got {who} at {at} on {cluster}, which its isolation must not show
                ({state})""",
            counted="""record was read that must not be visible|records were read that must not be
                visible""",
            smallest="A has 1 at offset 0, a reader got 9 at offset 0: at offset 0.",
        ),
    ),
    complete={"promotions", "reads", "sends"},
    follows={
        "order-equality",
        "marker-pairing",
        "commit-aborted",
        "ghost-ack",
        "last-stable-offset",
        "send-order",
        "aborted-read",
        "uncommitted-read",
    },
    kernel=kernel,
    judges_readers=True,
)
