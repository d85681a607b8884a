"""Wrong logs: random changes of a small world's logs by a broker, a mirror or a disk
(`tests.oracles.changes`)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.kafka_log import crc_with_id
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
