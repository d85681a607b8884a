"""What some checks examine beside a random history: share groups, clients that should get on,
replicas of partitions that a mirror leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from linkflap.spark_verify.facts.partition_facts import Awaited, ReplicaSample
from linkflap.spark_verify.facts.sends_and_reads import Read
from linkflap.spark_verify.facts.view import PartitionView, Replica, Watermarks
from tests.oracles.views import with_own
from tests.oracles.worlds import SECOND, TOPIC, World

KINDS = (
    "acquire",
    "acquire",
    "acquire",
    "accept",
    "accepted",
    "rejected",
    "release",
    "released",
    "renewed",
    "settled",
)


def with_shares(views: Sequence[PartitionView], random: Random) -> list[PartitionView]:
    """The same partitions with one or two groups, which worked for a while on some of their
    clusters."""
    return [replace(view, shares=_shares(view, random)) for view in views]


def _shares(view: PartitionView, random: Random) -> tuple[Read, ...]:
    rows: list[Read] = []
    logs = [replica for replica in view.replicas if replica.canonical and len(replica.records)]
    for group in ("one", "two")[: random.choice((1, 1, 2))] if logs else ():
        homes = random.choices(logs, k=random.choice((1, 1, 2)))
        thorough = random.random() < 0.5
        for replica in homes:
            rows += _through(replica, group, view.ended, random) if thorough else ()
            rows += [_row(replica, group, view.ended, random) for _ in range(random.randint(1, 12))]
    return tuple(sorted(rows, key=lambda r: (r.returned, r.time, r.reader)))


def _through(replica: Replica, group: str, ended: int, random: Random) -> list[Read]:
    """Nearly all records of a log are acquired and accepted, late in the run, and the group reports
    its progress."""
    rows = []
    for at in range(len(replica.records)):
        for number, kind in enumerate(("acquire", "accept", "accepted")):
            if random.random() < 0.93:
                time = ended - (9 - number) * SECOND
                rows.append(_read(replica, group, kind, time, [at], random, position=1))
    position = random.choice((replica.end, int(random.choice(replica.records.offset.tolist()))))
    return [*rows, _read(replica, group, "settled", ended - SECOND, [], random, position=position)]


def _row(replica: Replica, group: str, ended: int, random: Random) -> Read:
    kind = random.choice(KINDS)
    count = 0 if kind == "settled" else random.choice((1, 1, 2, 3))
    first = random.randrange(len(replica.records))
    rows = list(range(first, min(first + count, len(replica.records))))
    position = (
        random.randint(0, replica.end + random.choice((0, 0, 0, 2)))
        if kind == "settled"
        else random.choice((0, 1, 1, 2, 2, 3, 4, 5, 6))
    )
    return _read(
        replica, group, kind, random.randint(0, max(1, ended)), rows, random, position=position
    )


def _read(
    replica: Replica, group: str, kind: str, time: int, rows: list[int], random: Random, *,
    position: int
) -> Read:  # fmt: skip
    isolation = random.choice(("read_committed", "read_committed", "read_uncommitted"))
    return Read(
        reader=random.choice(("m1", "m2")), process=7, cluster=replica.cluster, isolation=isolation,
        kind=kind, group=group,
        time=time, returned=time + random.choice((0, 1, SECOND)), position=position,
        uids=replica.records.uid[np.array(rows, np.int64)],
        offsets=replica.records.offset[np.array(rows, np.int64)],
    )  # fmt: skip


ERRORS = ("", "", "_FENCED", "_FATAL", "INVALID_TXN_STATE", "_MSG_TIMED_OUT")


def with_awaited(
    made: World, views: Sequence[PartitionView], random: Random
) -> list[PartitionView]:
    """The same partitions, some of whose operations ended with an error."""
    views = with_shares([_with_errors(view, random) for view in views], random)
    awaited = tuple(_clients(made, views, random))
    return [
        replace(
            view,
            partition_facts=replace(
                view.partition_facts,
                facts=replace(view.partition_facts.facts, awaited=awaited, recorded=True),
            ),
        )
        for view in views
    ]


def _with_errors(view: PartitionView, random: Random) -> PartitionView:
    sends = [
        replace(send, error=random.choice(ERRORS)) if random.random() < 0.2 else send
        for send in view.sends
    ]
    return replace(view, sends=sends)


def _clients(made: World, views: Sequence[PartitionView], random: Random) -> Iterator[Awaited]:
    readers = {(r.reader, r.cluster) for view in views for r in view.reads if not r.group}
    groups = {(g.group, g.cluster) for view in views for g in view.groups}
    shares = {(r.group, r.cluster) for view in views for r in view.shares}
    producers = {(s.client, s.cluster) for view in views for s in view.sends}
    for name, cluster in sorted(readers):
        yield _awaited(made, random, client=name, kind="reader", cluster=cluster)
    for group, cluster in sorted(groups):
        yield _awaited(
            made, random, client=f"group {group}", kind="group", cluster=cluster, group=group,
            topics=frozenset(random.choice([(), (TOPIC,)])),
        )  # fmt: skip
    for group, cluster in sorted(shares):
        yield _awaited(
            made, random, client=f"shares {group}", kind="share", cluster=cluster, group=group
        )
    for name in sorted({name for name, _ in producers}):
        cluster = random.choice(sorted(at for other, at in producers if other == name))
        yield _awaited(
            made, random, client=name, kind="producer", cluster=cluster,
            produces=random.random() < 0.8, timeout=random.choice([1, 5, 60]) * SECOND,
        )  # fmt: skip
    yield _awaited(
        made, random, client="command-1", kind="program", cluster="A",
        outputs=frozenset({TOPIC}), topics=frozenset(random.choice([(), (TOPIC,)])),
    )  # fmt: skip


def _awaited(made: World, random: Random, **fields: Any) -> Awaited:
    since = random.randint(0, made.time)
    return Awaited(
        home="A",
        since=since,
        until=random.randint(since, made.time + 20 * SECOND),
        within=random.choice([1, 5, 20, 60]) * SECOND,
        isolation=random.choice(["read_committed", "read_uncommitted"]),
        broken=random.choice([0, random.randint(0, since)]),
        exits=tuple(random.choice([(), (), (random.randint(0, made.time),)])),
        **fields,
    )


SHADOW = 1000
NEARLY = SECOND // 10


def with_mirror_leading(
    made: World, views: Sequence[PartitionView], random: Random
) -> list[PartitionView]:
    """The same partitions; sometimes the samples of one cluster were led by a mirror, and followed
    by samples of two followers."""
    if random.random() < 0.4:
        return list(views)
    cluster = random.choice(made.clusters)
    return [_led(view, cluster, random) if not view.internal else view for view in views]


def _led(view: PartitionView, cluster: str, random: Random) -> PartitionView:
    marks = view.watermarks.get(cluster)
    if marks is None or not len(marks.time):
        return view
    began, n = int(marks.time[0]), random.randint(3, 9)
    time = began + np.arange(n, dtype=np.int64) * random.choice([SECOND // 5, SECOND])
    high = np.cumsum([random.choice([0, 1, 2]) for _ in range(n)])
    led = Watermarks(
        time=time,
        returned=time + NEARLY,
        leader=np.array([random.choice([SHADOW] * 9 + [1]) for _ in range(n)], np.int64),
        log_start=np.zeros(n, np.int64),
        last_stable=high,
        high_watermark=high,
        leader_epoch=np.array([random.choice([4] * 12 + [5]) for _ in range(n)], np.int64),
    )
    samples = [
        ReplicaSample(
            cluster=cluster,
            broker=broker,
            log_start=0,
            log_end=max(0, int(mark) + random.choice([0, 0, 1, -1])),
            asked=int(at) + NEARLY + random.randint(0, NEARLY),
            returned=int(at) + 3 * NEARLY // 2,
        )
        for broker in (1, 2)
        for at, mark in zip(time, high, strict=True)
        if random.random() < 0.95
    ]
    return replace(
        view,
        watermarks={**view.watermarks, cluster: led},
        partition_facts=replace(view.partition_facts, replica_samples=tuple(samples)),
    )


def seen_by(check: str, made: World, random: Random) -> list[PartitionView]:
    """The partitions of a world, and what this check examines beside its history."""
    views = with_own(made)
    if check == "share-groups" or random.random() < 0.2:
        views = with_shares(views, random)
    if check == "progress":
        return with_awaited(made, views, random)
    if check == "last-stable-offset":
        return with_mirror_leading(made, views, random)
    return views
