"""Random changes of a small world that leave it readable: wrong reports of clients, observers and
mirrors here, errors of brokers and disks in `changed_logs`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.oracles import changed_logs as logs
from tests.oracles.worlds import SECOND, Row, World, random_row


def change_promotion(made: World) -> bool:
    if not made.promotions:
        return False
    row, random = random_row(made, made.promotions), made.random
    what = random.choice(["offset", "offset", "kind", "lose"])
    if what == "offset":
        row["offset"] = max(0, row["offset"] + random.choice([1, -1, 2, -2]))
    elif what == "kind":
        row["kind"] = random.choice(["planned", "forced"])
    else:
        made.promotions.remove(row)
    return True


def refuse_failover(made: World) -> bool:
    """A failover was refused at every request; possibly over a link that the run does not have."""
    link = made.random.choice(
        [
            "A->B",
            "B->A",
            *(f"{source}->{destination}" for source, destination in made.links),
            "A->C",
        ]
    )
    refused = {
        "link": link,
        "kind": made.random.choice(["planned", "forced"]),
        "error": "INVALID_MIRROR_STATE",
        "code": 145,
        "seconds": 60.0,
    }
    made.refusals.append(refused)
    return True


def change_journal(made: World) -> bool:
    if not made.stops:
        return False
    row, random = random_row(made, made.stops), made.random
    what = random.choice(
        ["mirrored", "promoted", "silent", "claims", "truncated", "unknown", "epochs"]
    )
    if what in ("mirrored", "promoted"):
        row[what] = max(0, row[what] + random.choice([1, -1]))
    elif what == "silent":
        row["appended"] = row["appended"][1:]
    elif what == "claims":
        row["appended"] = [
            *row["appended"],
            (row["mirrored"], random.choice(["ABORT of producer 1, epoch 0", "MIRROR_PID_RESET"])),
        ]
    elif what == "truncated":
        row["truncated"] = [
            *row["truncated"],
            (row["mirrored"], max(0, row["mirrored"] - random.choice([0, 1, 2]))),
        ]
    elif what == "epochs":
        row["epochs"] = [
            (epoch + random.choice([0, 1]), start + random.choice([0, 0, 1]))
            for epoch, start in row["epochs"]
        ]
    else:
        row["promoted"] = -1
    return True


def change_truncation(made: World) -> bool:
    if not made.truncations:
        return False
    row = random_row(made, made.truncations)
    if made.random.random() < 0.5:
        row["offset"] = max(0, row["offset"] - 1)
    else:
        made.truncations.remove(row)
    return True


def shorten_replicas(made: World) -> bool:
    """Some samples of replicas have another end. It uses its own random numbers, so that the rest
    of a seed's world stays the same."""
    rng = Random(made.time + 4)
    if not made.replica_samples or rng.random() < 0.5:
        return False
    for row in rng.sample(made.replica_samples, min(len(made.replica_samples), 3)):
        row["log_end"] = max(0, row["log_end"] + rng.choice([-3, -2, -1, 1]))
    return True


def change_read(made: World) -> bool:
    reads = [r for r in made.reads if r["offsets"]]
    if not reads:
        return False
    read, random = random_row(made, reads), made.random
    what = random.choice(
        ["uid", "offset", "drop", "swap", "kind", "isolation", "early", "lose", "late"]
    )
    i = random.randrange(len(read["offsets"]))
    if what == "uid":
        read["uids"][i] = random.choice([read["uids"][i] + 1, -1, 88 << 40])
    elif what == "offset":
        read["offsets"][i] += random.choice([1, -1]) if read["offsets"][i] else 1
    elif what == "drop" and len(read["offsets"]) > 1:
        del read["offsets"][i], read["uids"][i]
    elif what == "swap":
        read["offsets"].reverse()
        read["uids"].reverse()
    elif what == "kind":
        made.reads.append(
            read
            | {
                "kind": random.choice(["assign", "revoke", "error"]),
                "uids": [],
                "offsets": [],
                "position": -1,
            }
        )
    elif what == "isolation":
        read["isolation"] = random.choice(["read_committed", "read_uncommitted"])
    elif what in ("early", "late"):
        # No two rows of a reader return at the same time.
        read["returned"] += random.choice([5, 20]) * (
            SECOND if what == "late" else -SECOND
        ) + random.randint(2, 10**6)
        read["time"] = read["returned"] - SECOND // 2
    else:
        made.reads.remove(read)
    return True


def change_position(made: World) -> bool:
    """Changes the position that a reader reports."""
    rows = [
        r
        for r in made.reads
        if r["kind"] != "commit" and (r["position"] >= 0 or r["kind"] == "assign")
    ]
    if not rows:
        return False
    row = random_row(made, rows)
    row["position"] = max(-1, row["position"] + made.random.choice([1, 2, 40, -1, -2]))
    return True


def lose_edge(made: World) -> bool:
    """A reader never got the first, or the last, records that it passed in a partition."""
    rows = [r for r in made.reads if r["kind"] == "poll"]
    if not rows:
        return False
    one, last = random_row(made, rows), made.random.random() < 0.5
    mine = [
        r
        for r in rows
        if (r["reader"], r["cluster"], r["partition"])
        == (one["reader"], one["cluster"], one["partition"])
    ]
    edge = mine[-1] if last else mine[0]
    edge["uids"], edge["offsets"] = [], []
    return True


def drain_early(made: World) -> bool:
    """A reader reports that it is drained at an earlier position."""
    rows = [r for r in made.reads if r["kind"] == "drained"]
    if not rows:
        return False
    row = random_row(made, rows)
    mine = [
        r
        for r in made.reads
        if (r["reader"], r["partition"], r["cluster"])
        == (row["reader"], row["partition"], row["cluster"])
    ]
    row["position"] = max(0, row["position"] - made.random.choice([1, 3, 9]))
    for poll in mine:
        kept = [
            pair
            for pair in zip(poll["offsets"], poll["uids"], strict=True)
            if pair[0] < row["position"]
        ]
        poll["offsets"], poll["uids"] = [pair[0] for pair in kept], [pair[1] for pair in kept]
        poll["position"] = min(poll["position"], row["position"])
    return True


def go_ahead(made: World) -> bool:
    """The next member of a group begins after the last member's position; its earlier polls are
    lost."""
    rows = [r for r in made.reads if r["kind"] == "poll" and r["group"] and len(r["offsets"]) > 0]
    if len(rows) < 2:
        return False
    one = random_row(made, rows)
    assigned = {"kind": "assign", "uids": [], "offsets": [], "position": one["offsets"][0]}
    assigned |= {"returned": one["time"] - 2, "time": one["time"] - 3}
    made.reads.insert(made.reads.index(one), one | assigned)
    before = [r for r in rows if r["partition"] == one["partition"] and r["returned"] < one["time"]]
    for lost in before[1:]:
        made.reads.remove(lost)
    return bool(before)


def move_group(made: World) -> bool:
    """Members of a group have other positions from now on."""
    mine = [r for r in made.reads if r["group"]]
    if not mine:
        return False
    since, cluster = made.random.choice(mine)["time"], made.random.choice(made.clusters)
    for row in mine:
        if row["time"] >= since:
            row["cluster"] = cluster
    return True


def skip_polls(made: World) -> bool:
    """After a failover, the members of a group continue on the new owner, after records that no
    member gets."""
    if not made.promotions:
        return False
    promotion = random_row(made, made.promotions)
    mine = [r for r in made.reads if r["group"] and r["time"] >= promotion["time"]]
    for row in mine:
        row["cluster"] = promotion["cluster"]
    polls = [r for r in mine if r["kind"] == "poll"][: made.random.randint(1, 3)]
    made.reads = [r for r in made.reads if not any(r is poll for poll in polls)]
    return bool(polls)


def change(made: World, times: int) -> list[str]:
    """Makes this many changes, and returns their descriptions."""
    done = []
    for chosen in made.random.choices(CHANGES, k=times):
        if chosen(made):
            done.append(chosen.__name__)
    if times and shorten_replicas(made):
        done.append(shorten_replicas.__name__)
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
    _break_broker, logs.map_ids, logs.raise_marker, logs.overlap, logs.keep_tail, logs.tear,
    logs.compact, logs.copied, _group_behind, _tie_knot, skip_polls, _write_late, _change_group,
    change_truncation, change_journal, logs.change_own, logs.change_own,
    logs.corrupt, logs.lose_inside, change_position, change_position, lose_edge,
    drain_early, go_ahead, logs.end_early, logs.change_synced, logs.change_synced,
    refuse_failover,
]  # fmt: skip
