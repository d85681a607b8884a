"""What happens in a small world (`tests.oracles.worlds`): clients write and read, mirrors copy,
clusters fail over and back."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from tests.oracles.worlds import ABORT, COMMIT, DATA, RESET, SECOND, TOPIC, Row, World


def world(random: Random) -> World:
    """A faithful history."""
    made = World(random)
    home = "A"
    _live(made, home, random.randint(2, 6))
    if random.random() < 0.7:
        home = _fail_over(made, "A", "B", random.choice(["forced", "forced", "planned"]))
        _live(made, home, random.randint(1, 4))
        if made.mirror == "shadow" and made.topology == "A->B" and random.random() < 0.6:
            _fail_back(made)
            home = _fail_over(made, "B", "A", "planned") if random.random() < 0.7 else home
            _live(made, home, random.randint(0, 3))
    _read_to_the_end(made)
    if made.mirror == "shadow" and (made.truncations_made or random.random() < 0.3):
        _end_of_run(made)
    return made


def _live(made: World, home: str, steps: int) -> None:
    for _ in range(steps):
        _write(made, home)
        if made.random.random() < 0.7:
            _copy(made)
        if made.random.random() < 0.7:
            _read(made)
        if made.relays is not None and made.random.random() < 0.8:
            _relay(made, home)
        _sample(made)


def _producer(made: World, cluster: str) -> Row:
    mine = made.producers[cluster]
    if len(mine) < 3 and (not mine or made.random.random() < 0.4):
        made.processes += 1
        kind = made.random.choice(["transaction", "transaction", "idempotent", "plain"])
        pid = -1 if kind == "plain" else made.processes + 1000 * (cluster != "A")
        mine.append(
            {"process": made.processes, "kind": kind, "pid": pid, "sent": 0, "operations": 0,
            "seqs": {}, "open": False}
        )  # fmt: skip
    return made.random.choice(mine)


def _write(made: World, cluster: str) -> None:
    producer, random = _producer(made, cluster), made.random
    transaction = producer["kind"] == "transaction"
    if producer["open"]:
        return
    number = producer["process"] << 40 | producer["operations"]
    producer["operations"] += 1
    partitions = [p for p in made.partitions if random.random() < 0.8] or [0]
    ending = (
        random.choice(["commit", "commit", "commit", "abort", "open"]) if transaction else "none"
    )
    invoked = made.tick()
    sends = [
        _group(made, producer, cluster, number, partition)
        for partition in (partitions if transaction else partitions[:1])
    ]
    asked = made.tick()
    if ending in ("commit", "abort"):
        made.decide(cluster, producer["pid"], COMMIT if ending == "commit" else ABORT, partitions)
    for partition in partitions if ending in ("commit", "abort") else ():
        made.append(
            cluster,
            partition,
            pid=producer["pid"],
            pepoch=0,
            txn=True,
            control=COMMIT if ending == "commit" else ABORT,
        )
    producer["open"] = ending == "open"
    outcome = random.choice(["ok", "ok", "ok", "info"]) if ending != "open" else "ok"
    known = random.random() < 0.7
    for partition, first, offsets in sends:
        made.sends.append(
            {
                "partition": partition, "number": number, "client": f"p{producer['process']}",
                "process": producer["process"],
                "cluster": cluster, "kind": "transaction" if transaction else "send",
                "ending": ending, "outcome": outcome,
                "transactional_id": f"t{producer['process']}" if transaction else "",
                "invoked": invoked,
                "ended_at": asked if ending in ("commit", "abort") else 0,
                "returned": made.time + SECOND // 2,
                "producer_id": producer["pid"] if known else -1,
                "producer_epoch": 0 if known and producer["pid"] >= 0 else -1,
                "first_uid": first, "offsets": offsets, "refused": [False] * len(offsets),
            }
        )  # fmt: skip


def _group(
    made: World, producer: Row, cluster: str, number: int, partition: int
) -> tuple[int, int, list[int]]:
    """Records of one operation in one partition, in one batch or two."""
    first = producer["process"] << 40 | producer["sent"]
    sizes = made.random.choice([[1], [2], [3], [1, 2]])
    offsets: list[int] = []
    for size in sizes:
        uids = [first + len(offsets) + i for i in range(size)]
        now = made.time // 1_000_000
        records = [
            {"uid": uid, "operation": number, "digest": uid % 1009, "timestamp": now}
            for uid in uids
        ]
        seq = producer["seqs"].get(partition, 0)
        batch: Row = (
            {} if producer["pid"] < 0 else {"pid": producer["pid"], "pepoch": 0, "seq": seq}
        )
        base = made.append(
            cluster, partition, records=records, txn=producer["kind"] == "transaction", **batch
        )
        producer["seqs"][partition] = seq + size
        offsets += range(base, base + size)
    producer["sent"] += len(offsets)
    return partition, first, offsets


def _copy(made: World, *, all_of_it: bool = False) -> None:
    """Mirrors copy, from where they are to somewhere."""
    for source, destination in made.links:
        for partition in made.partitions:
            if made.mirror == "shadow":
                _copy_batches(made, source, destination, partition, all_of_it=all_of_it)
            else:
                _copy_records(made, source, destination, partition, all_of_it=all_of_it)


def _copy_batches(
    made: World, source: str, destination: str, partition: int, *, all_of_it: bool
) -> None:
    ahead = [
        b for b in made.logs[source, partition] if b["base"] >= made.end(destination, partition)
    ]
    taken = ahead if all_of_it else ahead[: made.random.randint(0, len(ahead))]
    made.logs[destination, partition] += deepcopy(taken)
    made.epochs[destination] = max([made.epochs[destination], *(b["epoch"] for b in taken)])


def _copy_records(
    made: World, source: str, destination: str, partition: int, *, all_of_it: bool
) -> None:
    """MirrorMaker's own transactions, of what it gets from where it was on."""
    position = _begin_again(made, source, destination, partition)
    ahead = [pair for pair in made.seen(source, partition, "read_committed") if pair[0] >= position]
    taken = ahead if all_of_it else ahead[: made.random.randint(0, len(ahead))]
    at = {
        b["base"] + i: r for b in made.logs[source, partition] for i, r in enumerate(b["records"])
    }
    seqs = made.producers.setdefault(f"mirror {destination}", [{"seqs": {}}])[0]["seqs"]
    if taken:
        made.positions[source, destination, partition] = taken[-1][0] + 1
        batch = {"pid": 900, "pepoch": 0, "seq": seqs.get(partition, 0), "txn": True}
        made.append(
            destination, partition, records=[dict(at[offset]) for offset, _ in taken], **batch
        )
        made.decide(destination, 900, COMMIT, [partition])
        made.append(destination, partition, pid=900, pepoch=0, txn=True, control=COMMIT)
        seqs[partition] = seqs.get(partition, 0) + len(taken)


def _begin_again(made: World, source: str, destination: str, partition: int) -> int:
    """Where the mirror goes on. One that delivers at least once may forget the last that it did,
    when its link flaps."""
    position = made.positions.get((source, destination, partition), 0)
    done = [
        offset for offset, _ in made.seen(source, partition, "read_committed") if offset < position
    ]
    if not done or made.options.get("delivery") != "at-least-once" or made.random.random() < 0.85:
        return position
    made.repeated, now = True, made.time
    window = {
        "id": f"l{now}-{len(made.windows)}",
        "fault": "link-flap",
        "target": f"{source}->{destination}",
    }
    made.windows.append(window | {"start": now, "end": now + SECOND})
    return made.random.choice(done[-4:])


def _fail_over(made: World, source: str, destination: str, kind: str) -> str:
    """Ends the mirror of a link and promotes its destination."""
    link, fault = f"{source}->{destination}", made.tick()
    if kind == "planned":
        _end_transactions(made, source)
        _copy(made, all_of_it=True)
    made.windows.append(
        {"id": f"f{fault}", "fault": f"failover-{kind}", "target": link, "start": fault,
        "end": fault + 3 * SECOND}
    )  # fmt: skip
    made.epochs[destination] = max(made.epochs.values()) + 10
    stopped, promoted = made.tick(), made.tick()
    for partition in made.partitions:
        kept = (
            _stop(made, link, partition, stopped)
            if made.mirror == "shadow"
            else made.end(destination, partition)
        )
        made.promotions.append(
            {
                "partition": partition, "link": link, "kind": kind, "source": source,
                "cluster": destination,
                "offset": kept, "time": promoted, "fault_time": fault,
            }
        )  # fmt: skip
    made.links = [one for one in made.links if one != (source, destination)]
    return destination


def _stop(made: World, link: str, partition: int, time: int) -> int:
    """Ends the mirror of a partition, as its journal says. Returns where what it mirrored, and
    kept, ends."""
    cluster = link.split("->")[1]
    mirrored, rule = made.end(cluster, partition), made.options["open_transactions"]
    truncated = made.truncations_made.pop((link, partition), [])
    if rule != "abort":
        truncated += _truncate_open(made, cluster, partition, again=rule == "truncate-stable")
    kept, epochs = made.end(cluster, partition), made.epochs_of(cluster, partition)
    appended = _abort_open(made, cluster, partition) if rule == "abort" else []
    if rule == "abort" and made.random.random() < 0.2:
        appended.append((made.append(cluster, partition, control=RESET), "reset"))
    row = {
        "partition": partition,
        "link": link,
        "cluster": cluster,
        "time": time,
        "mirrored": mirrored,
        "epochs": epochs,
    }
    made.stops.append(
        row | {"promoted": kept + len(appended), "truncated": truncated, "appended": appended}
    )
    return kept


def _truncate_open(
    made: World, cluster: str, partition: int, *, again: bool
) -> list[tuple[int, int]]:
    """Truncates a log where its first open transaction begins; and `again`, until none is open.
    (end, truncated to) of each."""
    truncations: list[tuple[int, int]] = []
    while not truncations or (
        again and made.open_first(cluster, partition) < made.end(cluster, partition)
    ):
        end, at = made.end(cluster, partition), made.open_first(cluster, partition)
        truncations.append((end, at))
        _truncate_to(made, cluster, partition, at)
    made.truncated_at_end |= any(at < end for end, at in truncations)
    return truncations


def _truncate_to(made: World, cluster: str, partition: int, at: int) -> None:
    """Truncates a log, and those of whoever follows it."""
    log = made.logs[cluster, partition]
    log[:] = [b for b in log if b["base"] < at]
    for source, destination in made.links:
        end = made.end(destination, partition)
        if source == cluster and end > at:
            made.truncations_made.setdefault((f"{source}->{destination}", partition), []).append(
                (end, at)
            )
            made.epochs[destination] += 1
            _truncate_to(made, destination, partition, at)


def _end_of_run(made: World) -> None:
    """Mirrors are ended when the run is over; what they append then belongs to no failover."""
    made.tick()
    for source, destination in list(made.links):
        made.links.remove((source, destination))
        made.epochs[destination] = max(made.epochs.values()) + 10
        for partition in made.partitions:
            _stop(made, f"{source}->{destination}", partition, made.time)


def _open_ids(made: World, cluster: str, partition: int) -> list[int]:
    found: dict[int, bool] = {}
    for batch in made.logs[cluster, partition]:
        if batch["txn"]:
            found[batch["pid"]] = batch["control"] == DATA
    return [pid for pid, is_open in found.items() if is_open]


def _abort_open(made: World, cluster: str, partition: int) -> list[tuple[int, str]]:
    return [
        (
            made.append(cluster, partition, pid=pid, pepoch=0, txn=True, control=ABORT),
            f"ABORT of producer {pid}, epoch 0",
        )
        for pid in _open_ids(made, cluster, partition)
    ]


def _end_transactions(made: World, cluster: str) -> None:
    for partition in made.partitions:
        for pid in _open_ids(made, cluster, partition):
            made.decide(cluster, pid, ABORT, [partition])
        _abort_open(made, cluster, partition)


def _fail_back(made: World) -> None:
    """A follows B: what it had behind the promotion is truncated, amid what readers and samplers of
    A see."""
    start = made.tick()
    window: Row = {
        "id": f"r{start}",
        "fault": "mirror-reverse",
        "target": "A->B",
        "start": start,
        "took_effect": True,
    }
    _look_at(made, "A")
    if any(w["fault"] == "failover-forced" for w in made.windows):
        _load_groups(made, "A")
    for partition in made.partitions:
        log = deepcopy(made.logs["A", partition])
        made.earlier.append(
            {
                "partition": partition,
                "cluster": "A",
                "log": log,
                "moment": f"1-r{start}",
                "captured": start,
            }
        )
    if made.random.random() < 0.5:
        _end_transactions(made, "A")  # its coordinator does that, now that it is back
        _look_at(made, "A")
    fetched = _fetched(made, "A")
    for partition in made.partitions:
        _truncate(made, partition)
    for reader, partition, pairs in fetched:
        _hand_over(made, reader, partition, pairs)
    made.producers["A"] = []
    if made.relays is not None:
        made.relays.pop("A", None)
    made.links.append(("B", "A"))
    _look_at(made, "A")
    for _ in range(made.random.randint(0, 2)):
        _copy(made)
        _look_at(made, "A")
    made.windows.append(window | {"end": made.tick()})


def _load_groups(made: World, cluster: str) -> None:
    """A coordinator that was killed answers with what lies below the high watermark that it knows,
    and then with all."""
    rows = [row for row in made.groups if (row["cluster"], row["group"]) == (cluster, "rg")]
    made.groups += [row | {"time": made.time} for row in (*rows[:1], *rows[-1:])]


def _truncate(made: World, partition: int) -> None:
    log, ended, time = made.logs["A", partition], made.end("A", partition), made.tick()
    promoted = next(
        p["offset"] for p in made.promotions if p["partition"] == partition and p["cluster"] == "B"
    )
    if ended > promoted or made.random.random() < 0.5:
        row = {
            "partition": partition,
            "link": "B->A",
            "cluster": "A",
            "offset": min(promoted, ended),
            "end": ended,
            "time": time,
        }
        made.truncations.append(row)
    log[:] = [b for b in log if b["base"] < promoted]


def _look_at(made: World, cluster: str) -> None:
    """Readers and samplers of one cluster, perhaps."""
    for reader in made.readers:
        if reader["cluster"] == cluster and made.random.random() < 0.5:
            for partition in made.partitions:
                _poll(made, reader, partition, made.random.choice([1, 2, 5]))
    if made.random.random() < 0.6:
        _sample(made, cluster)


def _fetched(made: World, cluster: str) -> list[tuple[Row, int, list[tuple[int, int]]]]:
    """What readers of a cluster have fetched, and will hand over later."""
    found = []
    for reader in made.readers:
        if reader["cluster"] == cluster and made.random.random() < 0.3:
            for partition in made.partitions:
                seen = made.seen(cluster, partition, reader["isolation"])
                found.append(
                    (
                        reader,
                        partition,
                        [p for p in seen if p[0] >= reader["at"].get(partition, 0)][:3],
                    )
                )
    return found


def _read(made: World) -> None:
    """A reader goes on, somewhere."""
    random = made.random
    if len(made.readers) < 4 and (not made.readers or random.random() < 0.5):
        cluster, number = random.choice(made.clusters), len(made.readers)
        group = random.choice(["", "g"])
        isolation = (
            "read_committed"
            if group
            else random.choice(["read_committed", "read_committed", "read_uncommitted"])
        )
        made.readers.append(
            {
                "reader": f"r{number}",
                "cluster": cluster,
                "isolation": isolation,
                "group": group,
                "at": {},
            }
        )
        for partition in made.partitions:
            _row(made, made.readers[-1], partition, "assign", [], position=0)
    reader = random.choice(made.readers)
    for partition in made.partitions:
        if random.random() < 0.15:
            _move(made, reader, partition)
        _poll(made, reader, partition, random.choice([1, 2, 5]))


def _move(made: World, reader: Row, partition: int) -> None:
    """A rebalance, or a reset: a member of a group goes on where that had committed, anybody else
    at the start."""
    if made.random.random() < 0.7:
        _row(made, reader, partition, "revoke", [], position=reader["at"].get(partition, -1))
    here = (partition, "commit", reader["reader"], reader["cluster"])
    mine = [r for r in made.reads if (r["partition"], r["kind"], r["reader"], r["cluster"]) == here]
    reader["at"][partition] = mine[-1]["position"] if reader["group"] and mine else 0
    _row(made, reader, partition, "assign", [], position=reader["at"][partition])


def _poll(made: World, reader: Row, partition: int, most: int) -> None:
    seen = made.seen(reader["cluster"], partition, reader["isolation"])
    _hand_over(
        made,
        reader,
        partition,
        [pair for pair in seen if pair[0] >= reader["at"].get(partition, 0)][:most],
    )


def _hand_over(made: World, reader: Row, partition: int, fresh: list[tuple[int, int]]) -> None:
    if fresh:
        reader["at"][partition] = fresh[-1][0] + 1
        _row(made, reader, partition, "poll", fresh, position=fresh[-1][0] + 1)
        if reader["group"] and made.random.random() < 0.6:
            _row(made, reader, partition, "commit", [], position=fresh[-1][0] + 1)


def _relay(made: World, cluster: str) -> None:
    """Makes records of partition 1 from those of partition 0, with its group's offset in the
    transaction."""
    random, relay = made.random, made.relays
    assert relay is not None
    if cluster not in relay:
        made.processes += 1
        pid = made.processes + 1000 * (cluster != "A")
        start = 0 if cluster == "A" else min(random.choice([0, 1, 2]), made.end(cluster, 0))
        relay[cluster] = {
            "process": made.processes,
            "kind": "transaction",
            "pid": pid,
            "sent": 0,
            "operations": 0,
            "seqs": {},
        }
        relay[cluster] |= {
            "at": {0: start},
            "reader": "relay-0",
            "isolation": "read_committed",
            "group": "rg",
            "cluster": cluster,
        }
        _row(made, relay[cluster], 0, "assign", [], position=start)
    mine = relay[cluster]
    pairs = [pair for pair in made.seen(cluster, 0, "read_committed") if pair[0] >= mine["at"][0]][
        : random.choice([1, 2])
    ]
    if not pairs:
        return
    number = mine["process"] << 40 | mine["operations"]
    mine["operations"] += 1
    invoked, first = made.tick(), mine["process"] << 40 | mine["sent"]
    records = [
        {"uid": first + i, "operation": number, "digest": i, "timestamp": invoked // 1_000_000}
        for i in range(len(pairs))
    ]
    seq, ending = mine["seqs"].get(1, 0), random.choice(["commit", "commit", "commit", "abort"])
    base = made.append(cluster, 1, records=records, txn=True, pid=mine["pid"], pepoch=0, seq=seq)
    mine["seqs"][1], mine["sent"] = seq + len(pairs), mine["sent"] + len(pairs)
    made.decide(cluster, mine["pid"], COMMIT if ending == "commit" else ABORT, [1])
    made.append(
        cluster,
        1,
        pid=mine["pid"],
        pepoch=0,
        txn=True,
        control=COMMIT if ending == "commit" else ABORT,
    )
    position = pairs[-1][0] + 1
    _row(made, mine, 0, "poll", pairs, position=position)
    if ending == "commit":
        mine["at"][0] = position
        _row(made, mine, 0, "commit", [], position=position)
    else:
        _row(made, mine, 0, "assign", [], position=mine["at"][0])
    made.sends.append(
        {
            "partition": 1, "number": number, "client": "relay-0", "process": mine["process"],
            "cluster": cluster,
            "kind": "transaction", "ending": ending, "outcome": "ok",
            "transactional_id": f"t{mine['process']}",
            "invoked": invoked, "ended_at": invoked + 1, "returned": made.tick(),
            "producer_id": mine["pid"],
            "producer_epoch": 0, "first_uid": first,
            "offsets": list(range(base, base + len(pairs))),
            "refused": [False] * len(pairs), "group": "rg", "input_topic": TOPIC,
            "input_partition": 0, "position": position,
            "inputs": [offset for offset, _ in pairs], "input_uids": [uid for _, uid in pairs],
        }
    )  # fmt: skip
    if random.random() < 0.5:
        made.commit(cluster, "rg", 0, mine["at"][0])
        row = {
            "partition": 0,
            "time": made.tick(),
            "cluster": cluster,
            "group": "rg",
            "offset": mine["at"][0],
        }
        made.groups.append(row)


def _row(
    made: World,
    reader: Row,
    partition: int,
    kind: str,
    pairs: list[tuple[int, int]],
    *,
    position: int,
) -> None:
    returned = made.tick()
    if kind == "commit":
        made.commit(reader["cluster"], reader["group"], partition, position)
    made.reads.append(
        {
            "partition": partition, "reader": reader["reader"], "process": 90,
            "cluster": reader["cluster"],
            "isolation": reader["isolation"], "kind": kind, "group": reader["group"],
            "time": returned - SECOND // 2,
            "returned": returned, "position": position, "uids": [uid for _, uid in pairs],
            "offsets": [o for o, _ in pairs],
        }
    )  # fmt: skip


def _read_to_the_end(made: World) -> None:
    made.tick()
    for reader in made.readers:
        if made.random.random() < 0.6:
            for partition in made.partitions:
                _poll(made, reader, partition, 1000)
                _row(
                    made, reader, partition, "drained", [], position=reader["at"].get(partition, 0)
                )


def _described(made: World, cluster: str, partition: int, sample: Row) -> list[Row]:
    """What the mirror into a cluster says of a partition while that is sampled."""
    source = next((a for a, b in made.links if b == cluster), "")
    if not source:
        return []
    over = any(p["link"] == f"{source}->{cluster}" for p in made.promotions)
    lag = -1 if over else max(0, made.end(source, partition) - made.end(cluster, partition))
    row = {
        "link": f"{source}->{cluster}",
        "partition": partition,
        "state": "STOPPED" if over else "MIRRORING",
    }
    return [
        row
        | {
            "mirrors": not over,
            "lag": lag,
            "asked": sample["time"],
            "returned": sample["returned"],
        }
    ]


def _sample(made: World, only: str = "") -> None:
    """Bounds and committed offsets, as an admin client sees them."""
    for cluster in [only] if only else made.clusters:
        for partition in made.partitions:
            time, high = made.tick(), made.end(cluster, partition)
            known = made.epochs[cluster] if made.random.random() < 0.9 else -1
            row: dict[str, Any] = {
                "time": time,
                "returned": time + SECOND // 10,
                "leader": 1,
                "log_start": 0,
                "leader_epoch": known,
            }
            row |= {"last_stable": made.open_first(cluster, partition), "high_watermark": high}
            made.marks.setdefault((cluster, partition), []).append(row)
            made.descriptions += _described(made, cluster, partition, row)
            if cluster != "A" and made.random.random() < 0.3:
                offset = _synced(made, cluster, partition)
                made.groups.append(
                    {
                        "partition": partition,
                        "time": time,
                        "cluster": cluster,
                        "group": "g",
                        "offset": offset,
                    }
                )


def _synced(made: World, cluster: str, partition: int) -> int:
    """What the mirror into a cluster commits for the group "g", which is read only where it is at
    home: 0 while it was nowhere, and, where offsets are kept, what it committed on the source or
    the destination's end."""
    source = next((a for a, b in made.links if b == cluster), "")
    mine = [
        r
        for r in made.reads
        if (r["cluster"], r["partition"], r["group"], r["kind"])
        == (source, partition, "g", "commit")
    ]
    kept = (
        made.mirror != "mm2"
        and mine
        and not any(r["cluster"] == cluster and r["group"] == "g" for r in made.reads)
    )
    offset = (
        min(mine[-1]["position"], made.end(cluster, partition))
        if kept and made.random.random() < 0.8
        else 0
    )
    if not made.present.get((cluster, "g")):
        before = [
            g["offset"]
            for g in made.groups
            if (g["cluster"], g["partition"], g["group"]) == (cluster, partition, "g")
        ]
        offset = max([offset, *before])
        made.sync(cluster, "g", partition, offset)
        return int(offset)
    made.commit(cluster, "g", partition, 0)
    return 0
