"""Small, deliberate damage to a copy of a recorded run, with correct CRCs: what a verifier must
find, and where.

Each mutation changes one thing in a copy of the run and returns where it is. None of them uses the
verifier's own readers of logs. The manifest is written again, so that only the mutation can be
noticed.
"""

from __future__ import annotations

import json
from itertools import takewhile

from linkflap.harness.log import reference
from tests.kafka_log import (
    ABORT,
    COMMIT,
    batches_in,
    changed,
    field_of,
    recrc,
    rewrite,
    with_marker_kind,
)
from tests.run_copy import (
    TOPIC,
    Copy,
    Row,
    Site,
    is_control,
    is_transactional,
    mirrored,
    native,
    promised,
    uids,
)


def one_byte(run: Copy) -> Site:
    """Changes one byte of a record's value in the middle of its batch, in a follower's replica."""
    target, record = next(
        (data, record)
        for data in mirrored(run, 0)
        for batch in reference.batches(data)
        for record in reference.records(batch)[1:-1]
        if record.value is not None
        # values are drawn from a pool, so two in one batch may be equal
        and data.count(record.value) == 1
    )
    assert record.value is not None
    flipped = bytearray(target)
    flipped[target.index(record.value) + len(record.value) // 2] ^= 1
    path = run.replicas("B", 0)[1]
    rewrite(
        path, [recrc(bytes(flipped)) if data == target else data for _, data in batches_in(path)]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=record.offset,
        uids=frozenset({reference.identity(record)[0]}),
    )


def interior_batch(run: Copy) -> Site:
    """Removes a mirrored data batch in the middle of B from every replica."""
    batches = mirrored(run, 0)
    target = batches[len(batches) // 2]
    offset = field_of(target, "base_offset")
    run.change(
        "B", 0, lambda all_: [data for data in all_ if field_of(data, "base_offset") != offset]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=offset,
        uids=uids(target),
        promised=promised(run, 0, uids(target)),
    )


def repeated_batch(run: Copy) -> Site:
    """Repeats an idempotent batch, written on B after the failover, at the end of every replica."""
    target = next(
        data for data in native(run, 0) if not is_control(data) and not is_transactional(data)
    )
    last = native(run, 0)[-1]
    end = field_of(last, "base_offset") + field_of(last, "last_delta") + 1
    again = changed(target, base_offset=end)
    run.change("B", 0, lambda all_: [*all_, again])
    for path in run.root.glob("captures/*/bounds.json"):
        rows = json.loads(path.read_bytes())
        for row in rows:
            if (row["cluster"], row["topic"], row["partition"]) == ("B", TOPIC, 0):
                row["high_watermark"] = end + field_of(target, "last_delta") + 1
        path.write_text(json.dumps(rows))
    return Site(cluster="B", partition=0, offset=end, uids=uids(target))


def commit_to_abort(run: Copy) -> Site:
    """Turns the first COMMIT marker that B wrote itself into an ABORT, in every replica."""
    marker = next(
        data
        for data in native(run, 0)
        if is_control(data) and with_marker_kind(data, COMMIT) == data
    )
    offset = field_of(marker, "base_offset")
    turned = with_marker_kind(marker, ABORT)
    run.change(
        "B",
        0,
        lambda all_: [turned if field_of(data, "base_offset") == offset else data for data in all_],
    )
    return Site(cluster="B", partition=0, offset=offset)


def commit_removed(run: Copy) -> Site:
    """Removes a COMMIT marker of B's own from every replica, although its producer continued.
    Returns the offset of its first record."""
    batches = native(run, 0)
    ends = [
        i
        for i, data in enumerate(batches)
        if is_control(data) and with_marker_kind(data, COMMIT) == data
    ]
    for end in ends:
        pid = field_of(batches[end], "pid")
        before = [data for data in batches[:end] if field_of(data, "pid") == pid]
        after = [data for data in batches[end + 1 :] if field_of(data, "pid") == pid]
        closing = next((data for data in after if is_control(data)), None)
        data_of = list(takewhile(lambda data: not is_control(data), reversed(before)))
        if (
            data_of
            and closing
            and not is_control(after[0])
            and with_marker_kind(closing, COMMIT) == closing
        ):
            break
    else:
        raise AssertionError("no producer of B committed twice in partition 0")
    first, offset = data_of[-1], field_of(batches[end], "base_offset")
    run.change(
        "B", 0, lambda all_: [data for data in all_ if field_of(data, "base_offset") != offset]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=field_of(first, "base_offset"),
        uids=frozenset().union(*map(uids, data_of)),
    )


def producer_id_in_use(run: Copy) -> Site:
    """Gives an idempotent batch of B the producer id and epoch of one of B's transactional
    producers."""
    batches = [data for data in native(run, 0) if not is_control(data)]
    target = next(data for data in batches if not is_transactional(data))
    other = next(data for data in batches if is_transactional(data))
    offset = field_of(target, "base_offset")
    taken = changed(target, pid=field_of(other, "pid"), epoch=field_of(other, "epoch"))
    run.change(
        "B",
        0,
        lambda all_: [taken if field_of(data, "base_offset") == offset else data for data in all_],
    )
    return Site(cluster="B", partition=0, offset=offset, uids=uids(target))


def emptied_history(run: Copy) -> Site:
    """Empties every file of operations and polls."""
    for path in (*run.root.glob("operations/*.jsonl"), *run.root.glob("polls/*.jsonl")):
        path.write_bytes(b"")
    return Site(cluster="", partition=-1, offset=-1)


def shown_tail(run: Copy) -> Site:
    """Removes the last mirrored batch from every replica of B, although readers of B had got it."""
    target = mirrored(run, 0)[-1]
    offset = field_of(target, "base_offset")
    run.change(
        "B", 0, lambda all_: [data for data in all_ if field_of(data, "base_offset") != offset]
    )
    return Site(
        cluster="B",
        partition=0,
        offset=offset,
        uids=uids(target),
        promised=promised(run, 0, uids(target)),
    )


def unseen_tail(run: Copy) -> Site:
    """Removes the last mirrored batch from every replica of B. No reader had got it there."""
    shown = shown_tail(run)
    promoted, at = run.promotion(0), run.written_at()
    for path in run.root.glob("polls/*.jsonl"):
        # __consumer_offsets stays as it is: commits in the removed tail are left out and not moved.
        rows = [row for row in run.rows(path) if not _commits(row, shown.offset, promoted)]
        for row in rows:
            if row["cluster"] == "B":
                _forget(row, shown.offset, promoted)
        run.write(path, rows)
    rows = run.rows("watermarks/B.jsonl")
    for row in rows:
        if row["time"] <= at and row["partition"] == 0 and row["topic"] == TOPIC:
            for name in ("last_stable", "high_watermark"):
                row[name] = min(row[name], shown.offset)
    run.write("watermarks/B.jsonl", rows)
    return shown


def _commits(poll: Row, first: int, end: int) -> bool:
    """Whether a group committed an offset in (first, end] on B."""
    ours = [f for f in poll["fetched"] if f["partition"] == 0 and f["topic"] == TOPIC]
    return (
        poll["kind"] == "commit"
        and poll["cluster"] == "B"
        and any(first < f["position"] <= end for f in ours)
    )


def _forget(poll: Row, first: int, end: int) -> None:
    """Removes offsets in [first, end) from what a poll returned."""
    for fetched in poll["fetched"]:
        if fetched["partition"] != 0 or fetched["topic"] != TOPIC:
            continue
        kept = []
        for uid, offset, count in fetched["runs"]:
            before, after = (
                max(0, min(count, first - offset)),
                max(0, offset + count - max(end, offset)),
            )
            kept += [[uid, offset, before]] if before else []
            kept += [[uid + count - after, offset + count - after, after]] if after else []
        fetched["runs"] = kept
        if first < fetched["position"] <= end:
            fetched["position"] = first
