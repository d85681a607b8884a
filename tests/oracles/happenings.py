"""What happens in a small world (`tests.oracles.worlds`): clients write and read, mirrors copy, and
clusters fail over and back."""

from __future__ import annotations

from random import Random

from tests.kafka_log import WITHOUT_ID
from tests.oracles.mirrors import copy_on, end_of_run, fail_back, fail_over
from tests.oracles.readers import (
    add_read,
    read_on,
    read_to_the_end,
    take_sample,
)
from tests.oracles.worlds import ABORT, COMMIT, SECOND, TOPIC, Row, World


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
