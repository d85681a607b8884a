"""Wrong logs: random changes of a small world's logs, and of Kafka's own topics, by a broker, a
mirror or a disk (`tests.oracles.changes`)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from linkflap.harness.log.coordinators import GROUPS, GroupCommit, GroupMembers
from tests.kafka_log import crc_with_id
from tests.oracles.views import count_of
from tests.oracles.worlds import ABORT, COMMIT, DATA, RESET, Row, World


def _logs(made: World) -> list[list[Row]]:
    return [
        log
        for log in (*made.logs.values(), *made.others.values(), *(r["log"] for r in made.earlier))
        if log
    ]


def _some_batch(made: World, *, data: bool = False) -> tuple[list[Row], int] | None:
    candidates = [
        (log, n) for log in _logs(made) for n, b in enumerate(log) if not data or b["records"]
    ]
    return made.random.choice(candidates) if candidates else None


def change_header(made: World) -> bool:
    chosen = _some_batch(made)
    if chosen is None:
        return False
    batch, random = chosen[0][chosen[1]], made.random
    field = random.choice(["pid", "pepoch", "seq", "crc", "epoch", "length", "txn", "coordinator"])
    values: dict[str, Any] = {
        "pid": random.choice([1, 2, 3, 1001, 900, -1, -5]),
        "pepoch": batch["pepoch"] + random.choice([1, -1]),
        "seq": random.choice([-1, 0, 1, 7, 2**31 - 1, batch["seq"] + 1]),
        "crc": random.choice([batch["crc"] + 1, 7]),
        "epoch": batch["epoch"] + random.choice([1, -1, 10]),
        "length": batch["length"] + 1,
        "txn": not batch["txn"],
        "coordinator": batch["coordinator"] + random.choice([1, -1])
        if batch["coordinator"] >= 0
        else -1,
    }
    batch[field] = values[field]
    return True


def change_marker(made: World) -> bool:
    """Exchanges COMMIT and ABORT; sometimes changes a reset of the producer state."""
    markers = [b for log in _logs(made) for b in log if b["control"] != DATA]
    if markers:
        made.random.choice(markers)["control"] = made.random.choice(
            [COMMIT, ABORT, COMMIT, ABORT, RESET]
        )
    return bool(markers)


def lose_batch(made: World) -> bool:
    chosen = _some_batch(made)
    if chosen is not None:
        del chosen[0][chosen[1]]
    return chosen is not None


def lose_tail(made: World) -> bool:
    chosen = _some_batch(made)
    if chosen is not None:
        del chosen[0][chosen[1] :]
    return chosen is not None


def repeat_batch(made: World) -> bool:
    """Repeats a batch at the end."""
    chosen = _some_batch(made)
    if chosen is not None:
        log, n = chosen
        log.append(deepcopy(log[n]) | {"base": log[-1]["base"] + log[-1]["size"]})
    return chosen is not None


def swap_batches(made: World) -> bool:
    """Swaps two neighbouring batches."""
    chosen = _some_batch(made)
    if chosen is None or chosen[1] == 0:
        return False
    log, n = chosen
    first, second = log[n - 1], log[n]
    second["base"], first["base"] = first["base"], first["base"] + second["size"]
    log[n - 1], log[n] = second, first
    return True


def change_record(made: World) -> bool:
    chosen = _some_batch(made, data=True)
    if chosen is None:
        return False
    records, random = chosen[0][chosen[1]]["records"], made.random
    record, other = random.choice(records), random.choice(records)
    what = random.choice(["uid", "digest", "operation", "swap", "stranger", "foreign"])
    if what == "swap":
        record["uid"], other["uid"] = other["uid"], record["uid"]
    elif what == "foreign":
        record |= {"uid": -1, "operation": -1}
    else:
        record["uid" if what == "stranger" else what] += {
            "uid": 1,
            "digest": 1,
            "operation": 1,
            "stranger": 77 << 40,
        }[what]
    return True


def lose_beginning(made: World) -> bool:
    """Retention."""
    chosen, log = made.random.choice(list(made.logs.items()))
    if len(log) < 2:
        return False
    del log[: made.random.randint(1, len(log) - 1)]
    made.starts[chosen] = log[0]["base"]
    return True


def raise_marker(made: World) -> bool:
    """Gives a marker an epoch above that with which its producer continued."""
    markers = [b for log in _logs(made) for b in log if b["control"] in (COMMIT, ABORT)]
    if markers:
        made.random.choice(markers)["pepoch"] += 1
    return bool(markers)


def overlap(made: World) -> bool:
    """A batch of a follower begins before the end of the batch before it. In a leader's log, no
    record would then have a clear offset."""
    if not made.others:
        second_replica(made)
    candidates = [
        (log, n)
        for log in made.others.values()
        for n, b in enumerate(log)
        if n and log[n - 1]["base"] > 0
    ]
    if candidates:
        log, n = made.random.choice(candidates)
        log[n]["base"] = log[n - 1]["base"] - made.random.choice([0, 1])
    return bool(candidates)


def keep_tail(made: World) -> bool:
    """The tail that was to be truncated is back, in place of the newer records."""
    row = made.random.choice(made.earlier) if made.earlier else None
    truncations = [
        t["offset"] for t in made.truncations if row and t["partition"] == row["partition"]
    ]
    if row is None or not truncations:
        return False
    log = made.logs["A", row["partition"]]
    log[:] = [b for b in log if b["base"] < truncations[0]] + deepcopy(
        [b for b in row["log"] if b["base"] >= truncations[0]]
    )
    return True


def compact(made: World) -> bool:
    """The log cleaner of one cluster's brokers cleaned a log. It keeps offsets, and the last batch
    of each producer id."""
    random = made.random
    (cluster, partition), log = random.choice(list(made.logs.items()))
    stable = made.open_first(cluster, partition)
    limit = random.choice([b["base"] + b["size"] for b in log] or [0])
    if not 0 < limit <= stable:
        return False
    made.topic_config = {"delete.retention.ms": random.choice(["0", "86400000"])}
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
                batch |= {
                    "records": left,
                    "crc": batch["crc"] + 1000,
                    "length": batch["length"] - 1,
                }
        kept.append(batch)
    return kept


def copied(made: World) -> bool:
    """A user has only copied the logs, and knows the promotion offsets."""
    if made.mirror != "shadow" or made.earlier:
        return False
    made.recorded, made.mirror = False, "exact"
    made.options = {name: value for name, value in made.options.items() if name == "producer_ids"}
    made.sends, made.reads, made.groups, made.windows, made.stops, made.truncations = (
        [],
        [],
        [],
        [],
        [],
        [],
    )
    made.marks = {}
    for cluster, partition in made.logs:
        if made.random.random() < 0.5:
            high = made.random.randint(0, made.end(cluster, partition))
            least = made.random.choice([0, 0, 1])
            stable = max(made.open_first(cluster, partition, high=high) - least, 0)
            made.stable[cluster, partition] = stable, high
    return True


def second_replica(made: World) -> bool:
    chosen, log = made.random.choice(list(made.logs.items()))
    made.others[chosen] = deepcopy(log)
    return True


def end_early(made: World) -> bool:
    """A leader or a follower has lost the end of its log, and its broker has recorded its old high
    watermark."""
    if made.random.random() < 0.5:
        second_replica(made)
    logs = [
        ((*chosen, n), log)
        for n, mine in ((1, made.logs), (2, made.others))
        for chosen, log in mine.items()
        if log
    ]
    if logs:
        chosen, log = made.random.choice(logs)
        made.noted[chosen] = log[-1]["base"] + log[-1]["size"]
        del log[-made.random.randint(1, len(log)) :]
    return bool(logs)


def _long(number: int) -> int:
    """The number as a signed 64-bit field of a batch header."""
    return (number + 2**63) % 2**64 - 2**63


def map_ids(made: World) -> bool:
    """A mirror that declares that it changes producer ids, and does."""
    if made.mirror != "shadow" or made.topology != "A->B" or made.promotions:
        return False
    made.options["producer_ids"] = made.random.choice(["negate", "complement", "region"])
    for batch in (b for (cluster, _), log in made.logs.items() if cluster == "B" for b in log):
        pid = batch["pid"]
        changed = {
            "negate": -(pid + 2),
            "complement": 2**63 - 2 - pid,
            "region": (-(2**63) + (5 << 31)) | pid,
        }
        batch["pid"] = -1 if pid == -1 else _long(changed[str(made.options["producer_ids"])])
        batch["crc"] = crc_with_id(batch["crc"], batch["length"], pid, batch["pid"])
    batches = [b for b in made.logs["B", made.random.choice(made.partitions)] if b["records"]]
    if batches and made.random.random() < 0.5:
        batch = made.random.choice(batches)
        made.random.choice(batch["records"])["digest"] += 1
        batch["crc"] += made.random.choice([0, 1])
    return True


def change_own(made: World) -> bool:
    """Removes or changes something in Kafka's own topics."""
    random = made.random
    if not made.own:
        return False
    chosen = random.choice(sorted(made.own))
    log = made.own[chosen]
    n = random.randrange(len(log))
    what = random.choice(
        [
            "lose",
            "crc",
            "epoch",
            "twice",
            "truncate",
            "other",
            "other",
            "other",
            "start",
            "second",
            "second",
        ]
    )
    if what in ("lose", "truncate"):
        made.highs.setdefault(chosen, log[-1]["base"] + 1)
        del log[n : len(log) if what == "truncate" else n + 1]
        if not log:
            del made.own[chosen]
    elif what == "crc":
        log[n]["crc_ok"] = False
    elif what == "epoch":
        log[n]["epoch"] += 1
    elif what == "twice":
        log.insert(n, dict(log[n]))
    elif what == "start":
        del log[:n]
    elif what == "second":
        other = made.own_others[chosen] = deepcopy(log)
        if random.random() < 0.5:
            other[n]["crc"] += 1
        else:
            del other[n]
    else:
        log[n]["entry"] = _otherwise(made, log[n]["entry"])
    return True


def change_synced(made: World) -> bool:
    """A mirror commits another offset for a group, or commits again."""
    random = made.random
    logs = [
        log
        for (cluster, topic), log in sorted(made.own.items())
        if topic == GROUPS and cluster != "A"
    ]
    rows = [
        (log, n)
        for log in logs
        for n, row in enumerate(log)
        if isinstance(row["entry"], GroupCommit)
    ]
    if not rows:
        return False
    log, n = random.choice(rows)
    entry = log[n]["entry"]
    log[n]["entry"] = replace(
        entry, committed=max(0, entry.committed + random.choice([-2, -1, 1, 2, 5, 40]))
    )
    return True


def _otherwise(made: World, entry: Any) -> Any:
    if isinstance(entry, GroupCommit):
        return replace(entry, committed=max(0, entry.committed + made.random.choice([1, -1, 3])))
    if isinstance(entry, GroupMembers):
        return replace(entry, present=not entry.present)
    rng = made.random
    changes: list[dict[str, Any]] = [
        {"state": rng.choice([-1, 0, 1, 2, 3, 4, 5, 6])},
        {"state": rng.choice([0, 1, 2, 3, 4, 5])},
        {"producer_id": entry.producer_id + 1},
        {"producer_epoch": entry.producer_epoch + rng.choice([1, 2, 32766])},
        {"partitions": entry.partitions[1:]},
        {"timeout": entry.timeout * 15},
        {"started": entry.started + rng.choice([-100_000, 1])},
        {"updated": entry.updated + rng.choice([-100_000, 1])},
        {"version": 2},
        {"version": 2, "producer_epoch": entry.producer_epoch + 1},
        {"next_id": entry.producer_id + 1},
        {"previous_id": entry.producer_id + 1},
        {"transactional_id": "t1"},
    ]
    return replace(entry, **rng.choice(changes))


def tear(made: World) -> bool:
    """A replica ends in the middle of a batch; later batches are lost."""
    log = _damaged(made)
    if log is not None:
        del log[made.random.randint(0, len(log)) :]
    return log is not None


def lose_inside(made: World) -> bool:
    """A replica lacks some batches, and ends in the middle of a batch."""
    log = _damaged(made)
    if log:
        first = made.random.randrange(len(log))
        del log[first : first + made.random.randint(1, 2)]
    return log is not None


def corrupt(made: World) -> bool:
    """A batch of a replica is corrupt: its CRC is wrong, its records are not read, and its producer
    may be another. Other batches are read."""
    log = _damaged(made)
    whole = [b for b in log or () if b["crc_ok"]]
    if whole:
        batch, random = made.random.choice(whole), made.random
        batch |= {
            "crc_ok": False,
            "was": batch["control"],
            "rotten": batch["records"],
            "count": count_of(batch),
            "records": [],
        }
        # The kind of a marker is in its record, after the header.
        batch["control"] = DATA if batch["was"] == DATA else RESET
        batch["crc"] = random.choice([batch["crc"], batch["crc"] + 1])
        batch["pepoch"] += random.choice([0, 0, 1, -1])
        batch["pid"] = random.choice([batch["pid"], batch["pid"], 1, 2, 1001])
    return log is not None


def _damaged(made: World) -> list[Row] | None:
    """The log of a replica that gets the damage; None if there is none."""
    random = made.random
    broker, logs = random.choice([(1, made.logs), (1, made.logs), (2, made.others)])
    candidates = [(chosen, log) for chosen, log in logs.items() if log]
    if made.earlier and random.random() < 0.3:
        row = random.choice(made.earlier)
        row["torn"] = True
        found: list[Row] = row["log"]
        return found
    if not candidates:
        return None
    chosen, log = random.choice(candidates)
    made.torn.add((*chosen, broker))
    return log
