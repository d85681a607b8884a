"""Random changes of a small world that leave it readable: errors of a broker, a mirror, a client or
a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracles import changed_logs as logs
from tests.oracles import changed_own_topics as own_topics
from tests.oracles import damaged_logs
from tests.oracles.changed_mirrors import (
    change_journal,
    change_promotion,
    change_truncation,
    compare,
    disagree,
    forget,
    lie,
    refuse_failover,
    shorten_replicas,
)
from tests.oracles.changed_reads import (
    change_position,
    change_read,
    drain_early,
    go_ahead,
    lose_edge,
    move_group,
    skip_polls,
)
from tests.oracles.worlds import SECOND, Row, World, random_row


def change(made: World, times: int) -> list[str]:
    """Makes this many changes, and returns their descriptions."""
    done = []
    for chosen in made.random.choices(CHANGES, k=times):
        if chosen(made):
            done.append(chosen.__name__)
    if times and lie(made):
        done.append(lie.__name__)
    if times and forget(made):
        done.append(forget.__name__)
    if times and shorten_replicas(made):
        done.append(shorten_replicas.__name__)
    if times and disagree(made):
        done.append(disagree.__name__)
    if times and compare(made):
        done.append(compare.__name__)
    return done


def _change_send(made: World) -> bool:
    if not made.sends:
        return False
    send, random = random_row(made, made.sends), made.random
    what = random.choice(
        ["offset", "offset", "refused", "ending", "process", "lose", "other", "other", "other"]
    )
    i = random.randrange(len(send["offsets"]))
    if what == "offset":
        send["offsets"][i] = max(
            -1,
            random.choice(
                [send["offsets"][i] + 1, send["offsets"][i] - 1, 0, -1, send["offsets"][i] + 40]
            ),
        )
    elif what == "refused":
        send["refused"][i], send["offsets"][i] = True, -1
    elif what == "ending" and send["kind"] == "transaction":
        send["ending"] = random.choice(["commit", "abort"])
    elif what == "process":
        send["process"] += 1
    elif what == "lose":
        made.sends.remove(send)
    else:
        _change_said(made, send)
    return True


def _change_said(made: World, send: Row) -> None:
    """Changes what a client reports about one operation as a whole."""
    random = made.random
    said: dict[str, Any] = {
        "outcome": random.choice(["ok", "info", "fail"]),
        "ended_at": random.choice([0, send["ended_at"] + 30 * SECOND]),
        "returned": random.choice([-1, send["returned"] + 30 * SECOND]),
        "producer_id": random.choice([1, 2, 1001]),
        "producer_epoch": random.choice([0, 1]),
        "cluster": random.choice(made.clusters),
        "position": send.get("position", -1) + random.choice([1, 2, -1]),
    }
    field = random.choice(list(said))
    send[field] = said[field]
    if send.get("inputs"):
        i = random.randrange(len(send["inputs"]))
        other = random_row(made, made.sends)
        inputs = random.choice(
            [
                (send["inputs"][i] + 1, send["input_uids"][i]),
                (send["inputs"][i], other["first_uid"]),
            ]
        )
        send["inputs"][i], send["input_uids"][i] = inputs


def _change_sample(made: World) -> bool:
    rows = [row for rows in made.marks.values() for row in rows]
    if not rows:
        return False
    row, random = random_row(made, rows), made.random
    field = random.choice(
        ["last_stable", "last_stable", "high_watermark", "leader_epoch", "leader", "log_start"]
    )
    row[field] = max(-1, row[field] + random.choice([1, -1, 3]))
    return True


def _change_group(made: World) -> bool:
    if not made.groups:
        return False
    row = random_row(made, made.groups)
    row["offset"] = max(0, row["offset"] + made.random.choice([1, 2, 5, -1, -3]))
    return True


def _group_behind(made: World) -> bool:
    """A group's offset is sampled below an earlier one."""
    rows = [g for g in made.groups if g["group"] == "rg"]
    if rows:
        row = random_row(made, rows)
        made.groups.append(
            row
            | {
                "time": made.tick() + 60 * SECOND,
                "offset": made.random.choice([0, row["offset"] - 1]),
            }
        )
    return bool(rows)


def _tie_knot(made: World) -> bool:
    """A transaction reports that it read its own writes, or those of another transaction that read
    its own."""
    rows = [s for s in made.sends if s.get("input_uids")]
    if not rows:
        return False
    one, other = random_row(made, rows), random_row(made, rows)
    one["input_uids"][0], other["input_uids"][0] = other["first_uid"], one["first_uid"]
    return True


def _write_late(made: World) -> bool:
    """A client wrote to a cluster after it was given up, at offsets that were truncated later."""
    reversals = [w["start"] for w in made.windows if w["fault"] == "mirror-reverse"]
    if not made.promotions:
        return False
    tails = [
        s
        for s in made.sends
        if made.earlier and s["cluster"] == "A" and s["invoked"] < made.promotions[0]["fault_time"]
    ]
    if not reversals or not tails:
        return False
    tail = max(tails, key=lambda s: max(s["offsets"]))
    tail["ended_at"], tail["returned"] = (
        reversals[0] - 2 if tail["ended_at"] else 0,
        reversals[0] - 1,
    )
    tail["invoked"] = reversals[0] - 3
    return True


def _break_broker(made: World) -> bool:
    start = made.random.randint(0, made.time // SECOND) * SECOND
    target = f"{made.random.choice(made.clusters)}/1"
    made.windows.append(
        {
            "id": f"b{start}",
            "fault": "broker-kill",
            "target": target,
            "start": start,
            "end": start + 9 * SECOND,
        }
    )
    return True


CHANGES: list[Callable[[World], bool]] = [
    logs.change_header, logs.change_header, logs.change_marker, logs.lose_batch, logs.lose_tail,
    logs.repeat_batch, logs.swap_batches, logs.change_record, logs.change_record,
    logs.lose_beginning, logs.second_replica, _change_send, _change_send, change_read, change_read,
    _change_sample, change_promotion, change_journal, change_truncation, _change_group, move_group,
    _break_broker, logs.map_ids, logs.raise_marker, logs.overlap, logs.keep_tail, damaged_logs.tear,
    logs.compact, logs.copied, _group_behind, _tie_knot, skip_polls, _write_late, _change_group,
    change_truncation, change_journal, own_topics.change_own, own_topics.change_own,
    damaged_logs.corrupt, damaged_logs.lose_inside, change_position, change_position, lose_edge,
    drain_early, go_ahead, logs.end_early, own_topics.change_synced, own_topics.change_synced,
    refuse_failover,
]  # fmt: skip
