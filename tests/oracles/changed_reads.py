"""Wrong reads: random changes of what readers report about records and positions, in a small world
(`tests.oracles.changes`)."""

from __future__ import annotations

from tests.oracles.worlds import SECOND, World, random_row


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
