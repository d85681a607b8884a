"""What readers and samplers do in a small world (`tests.oracles.worlds`)."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.oracles.worlds import SECOND, Row, World


def look_at(made: World, cluster: str) -> None:
    """Readers and samplers of one cluster may act."""
    for reader in made.readers:
        if reader["cluster"] == cluster and made.random.random() < 0.5:
            for partition in made.partitions:
                _poll(made, reader, partition, made.random.choice([1, 2, 5]))
    if made.random.random() < 0.6:
        take_sample(made, cluster)


def fetched_by(made: World, cluster: str) -> list[tuple[Row, int, list[tuple[int, int]]]]:
    """The records that readers of a cluster have fetched, and return later."""
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


def read_on(made: World) -> None:
    """A reader continues on some cluster."""
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
            add_read(made, made.readers[-1], partition, "assign", [], position=0)
    reader = random.choice(made.readers)
    for partition in made.partitions:
        if random.random() < 0.15:
            _move(made, reader, partition)
        _poll(made, reader, partition, random.choice([1, 2, 5]))


def _move(made: World, reader: Row, partition: int) -> None:
    """A rebalance or a reset: a member of a group continues at the group's committed offset, any
    other reader at the start."""
    if made.random.random() < 0.7:
        add_read(made, reader, partition, "revoke", [], position=reader["at"].get(partition, -1))
    here = (partition, "commit", reader["reader"], reader["cluster"])
    mine = [r for r in made.reads if (r["partition"], r["kind"], r["reader"], r["cluster"]) == here]
    reader["at"][partition] = mine[-1]["position"] if reader["group"] and mine else 0
    add_read(made, reader, partition, "assign", [], position=reader["at"][partition])


def _poll(made: World, reader: Row, partition: int, most: int) -> None:
    seen = made.seen(reader["cluster"], partition, reader["isolation"])
    hand_over(
        made,
        reader,
        partition,
        [pair for pair in seen if pair[0] >= reader["at"].get(partition, 0)][:most],
    )


def hand_over(made: World, reader: Row, partition: int, fresh: list[tuple[int, int]]) -> None:
    if fresh:
        reader["at"][partition] = fresh[-1][0] + 1
        add_read(made, reader, partition, "poll", fresh, position=fresh[-1][0] + 1)
        if reader["group"] and made.random.random() < 0.6:
            add_read(made, reader, partition, "commit", [], position=fresh[-1][0] + 1)


def add_read(
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


def read_to_the_end(made: World) -> None:
    made.tick()
    for reader in made.readers:
        if made.random.random() < 0.6:
            for partition in made.partitions:
                _poll(made, reader, partition, 1000)
                add_read(
                    made, reader, partition, "drained", [], position=reader["at"].get(partition, 0)
                )


def _described(made: World, cluster: str, partition: int, sample: Row) -> list[Row]:
    """The report of the mirror into a cluster about a partition, at a sample."""
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
            "promoted": over,
            "lag": lag,
            "asked": sample["time"],
            "returned": sample["returned"],
        }
    ]


def take_sample(made: World, only: str = "") -> None:
    """Bounds and committed offsets, as an admin client gets them."""
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
            made.replica_samples += _replicas(made, cluster, partition, row)
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


def _replicas(made: World, cluster: str, partition: int, sample: Row) -> list[Row]:
    """The leader's replica, and a follower that has as much or lags behind. It uses its own random
    numbers, so that the rest of a seed's world stays the same."""
    rng = Random(made.time)
    ends = (sample["high_watermark"], max(0, sample["high_watermark"] - rng.choice([0, 0, 1, 2])))
    return [
        {
            "partition": partition,
            "cluster": cluster,
            "broker": broker,
            "log_start": 0,
            "log_end": end,
            "asked": sample["time"],
            "returned": sample["returned"],
        }
        for broker, end in enumerate(ends, start=1)
    ]


def _synced(made: World, cluster: str, partition: int) -> int:
    """The offset that the mirror into a cluster commits for the group "g", which reads only on its
    home cluster. It is 0 before the group's first commit. If offsets are kept, it is the group's
    commit on the source, or the destination's end."""
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
