"""A mirror that leads a partition in a random history: samples of its high watermarks, and of
followers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from linkflap.spark_verify.facts.partition_facts import ReplicaSample
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from tests.oracles.worlds import SECOND, World

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
