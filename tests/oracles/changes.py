"""Random changes of a small world that leave it readable: what a broker, a mirror, a client or a disk may have done wrong."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.oracles.worlds import ABORT, COMMIT, DATA, RESET, SECOND, Row, World


def change(made: World, times: int) -> list[str]:
    """Changes it that often; says how."""
    done = []
    for chosen in made.random.choices(CHANGES, k=times):
        if chosen(made):
            done.append(chosen.__name__)
    return done


def _logs(made: World) -> list[list[Row]]:
    return [log for log in (*made.logs.values(), *made.others.values(), *(r["log"] for r in made.earlier)) if log]


def _batch(made: World, *, data: bool = False) -> tuple[list[Row], int] | None:
    places = [(log, n) for log in _logs(made) for n, b in enumerate(log) if not data or b["records"]]
    return made.random.choice(places) if places else None


def _change_header(made: World) -> bool:
    place = _batch(made)
    if place is None:
        return False
    batch, random = place[0][place[1]], made.random
    field = random.choice(["pid", "pepoch", "seq", "crc", "crc_ok", "epoch", "length", "txn"])
    values: dict[str, Any] = {
        "pid": random.choice([1, 2, 3, 1001, 900, -1, -5]),
        "pepoch": batch["pepoch"] + random.choice([1, -1]),
        "seq": random.choice([0, 1, 7, 2**31 - 1, batch["seq"] + 1]),
        "crc": random.choice([batch["crc"] + 1, 7]),
        "crc_ok": False,
        "epoch": batch["epoch"] + random.choice([1, -1, 10]),
        "length": batch["length"] + 1,
        "txn": not batch["txn"],
    }
    batch[field] = values[field]
    return True


def _change_marker(made: World) -> bool:
    """COMMIT for ABORT and the other way; sometimes a reset of the producer state."""
    markers = [b for log in _logs(made) for b in log if b["control"] != DATA]
    if markers:
        made.random.choice(markers)["control"] = made.random.choice([COMMIT, ABORT, COMMIT, ABORT, RESET])
    return bool(markers)


def _lose_batch(made: World) -> bool:
    place = _batch(made)
    if place is not None:
        del place[0][place[1]]
    return place is not None


def _cut_tail(made: World) -> bool:
    place = _batch(made)
    if place is not None:
        del place[0][place[1] :]
    return place is not None


def _repeat_batch(made: World) -> bool:
    """The same batch again, at the end."""
    place = _batch(made)
    if place is not None:
        log, n = place
        log.append(deepcopy(log[n]) | {"base": log[-1]["base"] + log[-1]["size"]})
    return place is not None


def _swap_batches(made: World) -> bool:
    """Two neighbours change places."""
    place = _batch(made)
    if place is None or place[1] == 0:
        return False
    log, n = place
    first, second = log[n - 1], log[n]
    second["base"], first["base"] = first["base"], first["base"] + second["size"]
    log[n - 1], log[n] = second, first
    return True


def _change_record(made: World) -> bool:
    place = _batch(made, data=True)
    if place is None:
        return False
    records, random = place[0][place[1]]["records"], made.random
    record, other = random.choice(records), random.choice(records)
    what = random.choice(["uid", "digest", "operation", "swap", "stranger", "foreign"])
    if what == "swap":
        record["uid"], other["uid"] = other["uid"], record["uid"]
    elif what == "foreign":
        record |= {"uid": -1, "operation": -1}
    else:
        record["uid" if what == "stranger" else what] += {"uid": 1, "digest": 1, "operation": 1, "stranger": 77 << 40}[what]
    return True


def _lose_beginning(made: World) -> bool:
    """Retention."""
    place, log = made.random.choice(list(made.logs.items()))
    if len(log) < 2:
        return False
    del log[: made.random.randint(1, len(log) - 1)]
    made.starts[place] = log[0]["base"]
    return True


def _raise_marker(made: World) -> bool:
    """A marker has an epoch above that of what its producer wrote on with."""
    markers = [b for log in _logs(made) for b in log if b["control"] in (COMMIT, ABORT)]
    if markers:
        made.random.choice(markers)["pepoch"] += 1
    return bool(markers)


def _overlap(made: World) -> bool:
    """A batch of a follower begins where the one before it has not ended; where leaders' do, no record has a place."""
    if not made.others:
        _second_replica(made)
    places = [(log, n) for log in made.others.values() for n, b in enumerate(log) if n and log[n - 1]["base"] > 0]
    if places:
        log, n = made.random.choice(places)
        log[n]["base"] = log[n - 1]["base"] - made.random.choice([0, 1])
    return bool(places)


def _keep_tail(made: World) -> bool:
    """What was to be cut off is there again, in place of what came since."""
    row = made.random.choice(made.earlier) if made.earlier else None
    cuts = [t["offset"] for t in made.truncations if row and t["partition"] == row["partition"]]
    if row is None or not cuts:
        return False
    log = made.logs["A", row["partition"]]
    log[:] = [b for b in log if b["base"] < cuts[0]] + deepcopy([b for b in row["log"] if b["base"] >= cuts[0]])
    return True


def _tear(made: World) -> bool:
    """A replica ends in half a batch; what followed is gone."""
    random = made.random
    broker, logs = random.choice([(1, made.logs), (1, made.logs), (2, made.others)])
    places = [(place, log) for place, log in logs.items() if log]
    if made.earlier and random.random() < 0.3:
        row = random.choice(made.earlier)
        row["torn"], row["log"] = True, row["log"][: random.randint(0, len(row["log"]))]
    elif places:
        place, log = random.choice(places)
        del log[random.randint(0, len(log)) :]
        made.torn.add((*place, broker))
    return bool(places or made.earlier)


def _compact(made: World) -> bool:
    """The cleaner of one cluster's brokers went through a log: offsets stay, and the last batch of each producer id."""
    random = made.random
    (cluster, partition), log = random.choice(list(made.logs.items()))
    stable = made.open_first(cluster, partition)
    limit = random.choice([b["base"] + b["size"] for b in log] or [0])
    if not 0 < limit <= stable:
        return False
    made.compacted[cluster, partition] = max(limit, made.compacted.get((cluster, partition), 0))
    for mine in (log, made.others.get((cluster, partition), [])):
        mine[:] = _cleaned(made, mine, limit)
    return True


def _cleaned(made: World, log: list[Row], limit: int) -> list[Row]:
    last = {b["pid"]: b["base"] for b in log if b["control"] == DATA}
    kept = []
    for batch in log:
        if batch["base"] + batch["size"] <= limit and batch["control"] == DATA:
            placed = [r | {"at": r.get("at", i)} for i, r in enumerate(batch["records"])]
            left = [r for r in placed if made.random.random() < 0.6]
            if not left and last[batch["pid"]] != batch["base"]:
                continue
            if len(left) < len(placed):
                batch |= {"records": left, "crc": batch["crc"] + 1000, "length": batch["length"] - 1}
        kept.append(batch)
    return kept


def _copied(made: World) -> bool:
    """Somebody has only copied the logs, and knows what was promoted where."""
    if made.mirror != "shadow" or made.earlier:
        return False
    made.recorded, made.mirror = False, "exact"
    made.options = {name: value for name, value in made.options.items() if name == "producer_ids"}
    made.sends, made.reads, made.groups, made.windows, made.stops, made.truncations = [], [], [], [], [], []
    made.marks = {}
    return True


def _second_replica(made: World) -> bool:
    place, log = made.random.choice(list(made.logs.items()))
    made.others[place] = deepcopy(log)
    return True


def _change_send(made: World) -> bool:
    if not made.sends:
        return False
    send, random = random_row(made, made.sends), made.random
    what = random.choice(["offset", "offset", "refused", "ending", "process", "lose", "other", "other", "other"])
    i = random.randrange(len(send["offsets"]))
    if what == "offset":
        send["offsets"][i] = max(
            -1, random.choice([send["offsets"][i] + 1, send["offsets"][i] - 1, 0, -1, send["offsets"][i] + 40])
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
    """What a client says of one operation as a whole."""
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
        inputs = random.choice([(send["inputs"][i] + 1, send["input_uids"][i]), (send["inputs"][i], other["first_uid"])])
        send["inputs"][i], send["input_uids"][i] = inputs


def random_row(made: World, rows: list[Row]) -> Row:
    return made.random.choice(rows)


def _change_read(made: World) -> bool:
    reads = [r for r in made.reads if r["offsets"]]
    if not reads:
        return False
    read, random = random_row(made, reads), made.random
    what = random.choice(["uid", "offset", "drop", "swap", "kind", "isolation", "early", "lose", "late"])
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
            read | {"kind": random.choice(["assign", "revoke", "error"]), "uids": [], "offsets": [], "position": -1}
        )
    elif what == "isolation":
        read["isolation"] = random.choice(["read_committed", "read_uncommitted"])
    elif what in ("early", "late"):
        # No two rows of a reader return at once.
        read["returned"] += random.choice([5, 20]) * (SECOND if what == "late" else -SECOND) + random.randint(2, 10**6)
        read["time"] = read["returned"] - SECOND // 2
    else:
        made.reads.remove(read)
    return True


def _change_sample(made: World) -> bool:
    rows = [row for rows in made.marks.values() for row in rows]
    if not rows:
        return False
    row, random = random_row(made, rows), made.random
    field = random.choice(["last_stable", "last_stable", "high_watermark", "leader_epoch", "leader", "log_start"])
    row[field] = max(-1, row[field] + random.choice([1, -1, 3]))
    return True


def _change_promotion(made: World) -> bool:
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


def _change_journal(made: World) -> bool:
    if not made.stops:
        return False
    row, random = random_row(made, made.stops), made.random
    what = random.choice(["mirrored", "promoted", "silent", "claims", "cut", "unknown", "epochs"])
    if what in ("mirrored", "promoted"):
        row[what] = max(0, row[what] + random.choice([1, -1]))
    elif what == "silent":
        row["appended"] = row["appended"][1:]
    elif what == "claims":
        row["appended"] = [
            *row["appended"],
            (row["mirrored"], random.choice(["ABORT of producer 1, epoch 0", "MIRROR_PID_RESET"])),
        ]
    elif what == "cut":
        row["truncated"] = [*row["truncated"], (row["mirrored"], max(0, row["mirrored"] - random.choice([0, 1, 2])))]
    elif what == "epochs":
        row["epochs"] = [(epoch + random.choice([0, 1]), start + random.choice([0, 0, 1])) for epoch, start in row["epochs"]]
    else:
        row["promoted"] = -1
    return True


def _change_truncation(made: World) -> bool:
    if not made.truncations:
        return False
    row = random_row(made, made.truncations)
    if made.random.random() < 0.5:
        row["offset"] = max(0, row["offset"] - 1)
    else:
        made.truncations.remove(row)
    return True


def _change_group(made: World) -> bool:
    if not made.groups:
        return False
    random_row(made, made.groups)["offset"] += made.random.choice([1, 2, 5])
    return True


def _group_behind(made: World) -> bool:
    """A group's offset is sampled below where it was long ago."""
    rows = [g for g in made.groups if g["group"] == "rg"]
    if rows:
        row = random_row(made, rows)
        made.groups.append(row | {"time": made.tick() + 60 * SECOND, "offset": made.random.choice([0, row["offset"] - 1])})
    return bool(rows)


def _tie_knot(made: World) -> bool:
    """A transaction says that it read what it wrote, or what another wrote that read of it."""
    rows = [s for s in made.sends if s.get("input_uids")]
    if not rows:
        return False
    one, other = random_row(made, rows), random_row(made, rows)
    one["input_uids"][0], other["input_uids"][0] = other["first_uid"], one["first_uid"]
    return True


def _move_group(made: World) -> bool:
    """Members of a group are elsewhere from now on."""
    mine = [r for r in made.reads if r["group"]]
    if not mine:
        return False
    since, cluster = made.random.choice(mine)["time"], made.random.choice(made.clusters)
    for row in mine:
        if row["time"] >= since:
            row["cluster"] = cluster
    return True


def _break_broker(made: World) -> bool:
    start = made.random.randint(0, made.time // SECOND) * SECOND
    target = f"{made.random.choice(made.clusters)}/1"
    made.windows.append({"id": f"b{start}", "fault": "broker-kill", "target": target, "start": start, "end": start + 9 * SECOND})
    return True


def _map_ids(made: World) -> bool:
    """A mirror that says that it changes producer ids, and does."""
    if made.mirror != "shadow" or made.topology != "A->B" or made.promotions:
        return False
    made.options["producer_ids"] = made.random.choice(["negate", "complement", "region"])
    for batch in (b for (cluster, _), log in made.logs.items() if cluster == "B" for b in log):
        pid = batch["pid"]
        changed = {"negate": -(pid + 2), "complement": 2**63 - 2 - pid, "region": (-(2**63) + (5 << 31)) | pid}
        batch["pid"] = -1 if pid == -1 else changed[str(made.options["producer_ids"])]
        batch["crc"] += 1
    records = [r for b in made.logs["B", made.random.choice(made.partitions)] for r in b["records"]]
    if records and made.random.random() < 0.5:
        made.random.choice(records)["digest"] += 1
    return True


CHANGES: list[Callable[[World], bool]] = [
    _change_header, _change_header, _change_marker, _lose_batch, _cut_tail, _repeat_batch, _swap_batches, _change_record,
    _change_record, _lose_beginning, _second_replica, _change_send, _change_send, _change_read, _change_read, _change_sample,
    _change_promotion, _change_journal, _change_truncation, _change_group, _move_group, _break_broker, _map_ids,
    _raise_marker, _overlap, _keep_tail, _tear, _compact, _copied, _group_behind, _tie_knot,
]  # fmt: skip
