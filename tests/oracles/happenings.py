"""What clients and mirrors do in a small world (`tests.oracles.worlds`), without errors; clusters
fail over and back."""

from __future__ import annotations

from copy import deepcopy
from random import Random

from tests.kafka_log import WITHOUT_ID
from tests.oracles.worlds import (
    ABORT,
    COMMIT,
    DATA,
    RESET,
    SECOND,
    TOPIC,
    Row,
    World,
    add_read,
    fetched_by,
    hand_over,
    look_at,
    read_on,
    read_to_the_end,
    take_sample,
)


def copy_on(made: World, *, all_of_it: bool = False) -> None:
    """Mirrors copy from their positions up to a random offset."""
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
    """MirrorMaker writes the records after its position in a transaction of its own."""
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
    """The position from which the mirror continues. With at-least-once delivery, it may repeat its
    last records after a flap of its link."""
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


def fail_over(made: World, source: str, destination: str, kind: str) -> str:
    """Ends the mirror of a link and promotes its destination."""
    link, fault = f"{source}->{destination}", made.tick()
    if kind == "planned":
        _end_transactions(made, source)
        copy_on(made, all_of_it=True)
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
    """Ends the mirror of a partition, as its journal reports. Returns the end of the mirrored range
    that is kept."""
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
    """Truncates a log at the start of its first open transaction; with `again`, until none is open.
    Returns (end, truncated to) of each truncation."""
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
    """Truncates a log, and the logs of all clusters that follow it."""
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


def end_of_run(made: World) -> None:
    """Ends all mirrors at the end of the run. What they append then belongs to no failover."""
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
    for pid in sorted({pid for n in made.partitions for pid in _open_ids(made, cluster, n)}):
        made.decide(cluster, pid, ABORT, [])
    for partition in made.partitions:
        _abort_open(made, cluster, partition)


def fail_back(made: World) -> None:
    """A follows B: A's tail after the promotion offset is truncated, while readers and samplers of
    A continue."""
    start = made.tick()
    window: Row = {
        "id": f"r{start}",
        "fault": "mirror-reverse",
        "target": "A->B",
        "start": start,
        "took_effect": True,
    }
    look_at(made, "A")
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
        _end_transactions(made, "A")  # as its coordinator does after a restart
        look_at(made, "A")
    fetched = fetched_by(made, "A")
    for partition in made.partitions:
        _truncate(made, partition)
    for reader, partition, pairs in fetched:
        hand_over(made, reader, partition, pairs)
    made.producers["A"] = []
    if made.relays is not None:
        made.relays.pop("A", None)
    made.links.append(("B", "A"))
    look_at(made, "A")
    for _ in range(made.random.randint(0, 2)):
        copy_on(made)
        look_at(made, "A")
    made.windows.append(window | {"end": made.tick()})


def _load_groups(made: World, cluster: str) -> None:
    """A coordinator that was killed first loads only commits below its high watermark, and later
    all commits."""
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


def world(random: Random) -> World:
    """A faithful history."""
    made = World(random)
    home = "A"
    _live(made, home, random.randint(2, 6))
    if random.random() < 0.7:
        home = fail_over(made, "A", "B", random.choice(["forced", "forced", "planned"]))
        _live(made, home, random.randint(1, 4))
        if made.mirror == "shadow" and made.topology == "A->B" and random.random() < 0.6:
            fail_back(made)
            home = fail_over(made, "B", "A", "planned") if random.random() < 0.7 else home
            _live(made, home, random.randint(0, 3))
    read_to_the_end(made)
    if not made.promotions and random.random() < 0.3:
        # The last destination is lost for good, and its source goes on.
        made.deaths[made.clusters[-1]] = made.tick()
        _write(made, home)
    if made.mirror == "shadow" and (made.truncations_made or random.random() < 0.3):
        end_of_run(made)
    return made


def _live(made: World, home: str, steps: int) -> None:
    for _ in range(steps):
        _write(made, home)
        if made.random.random() < 0.7:
            copy_on(made)
        if made.random.random() < 0.7:
            read_on(made)
        if made.relays is not None and made.random.random() < 0.8:
            _relay(made, home)
        take_sample(made)


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
    if ending == "open":
        made.begin(cluster, producer["pid"], partitions)
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
    """Records of one operation in one partition, in one or two batches."""
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
        pepoch, sequence = WITHOUT_ID[number % 3] if producer["pid"] < 0 else (0, seq)
        batch: Row = {"pid": producer["pid"], "pepoch": pepoch, "seq": sequence}
        base = made.append(
            cluster, partition, records=records, txn=producer["kind"] == "transaction", **batch
        )
        producer["seqs"][partition] = seq + size
        offsets += range(base, base + size)
    producer["sent"] += len(offsets)
    return partition, first, offsets


def _relay(made: World, cluster: str) -> None:
    """Copies records of partition 0 to partition 1, with the group's offset in the transaction."""
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
        add_read(made, relay[cluster], 0, "assign", [], position=start)
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
    add_read(made, mine, 0, "poll", pairs, position=position)
    if ending == "commit":
        mine["at"][0] = position
        add_read(made, mine, 0, "commit", [], position=position)
    else:
        add_read(made, mine, 0, "assign", [], position=mine["at"][0])
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
