"""Sampled settings of topics in a random history: those of the home, those of a mirror, and
others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from linkflap.spark_verify.facts.partition_facts import TopicSettings
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles.worlds import SECOND, World

HOME = {"retention.ms": "1000", "min.insync.replicas": "2"}
SETTINGS = (
    HOME,
    HOME,
    {**HOME, "min.insync.replicas": "1"},
    {"retention.ms": "-1", "min.insync.replicas": "1"},
    {"retention.ms": "1000"},
    {**HOME, "new": "1"},
    {**HOME, "leader.replication.throttled.replicas": "0:1"},
)


def with_settings(
    made: World, views: Sequence[PartitionView], random: Random
) -> list[PartitionView]:
    """The same partitions; the first has samples of its topic on most clusters."""
    samples = [
        TopicSettings(
            cluster=cluster,
            asked=asked,
            until=random.choice([asked, until, until]),
            settings=random.choice(SETTINGS),
        )
        for cluster in made.clusters
        for asked, until in pairwise(_times(made, random))
    ]
    facts = {
        "settings": tuple(sorted(samples, key=lambda sample: sample.asked)),
        "unknown_settings": frozenset(random.choice([(), ("new",)])),
    }
    return [
        replace(view, partition_facts=replace(view.partition_facts, **facts))  # type: ignore[arg-type]
        if view.partition == 0
        else view
        for view in views
    ]


def _times(made: World, random: Random) -> list[int]:
    """When samples of one cluster were asked for; behind the last, when the run ended or later."""
    asked = [random.randint(0, made.time + 20 * SECOND) for _ in range(random.choice([0, 1, 2, 4]))]
    return [*sorted(asked), max([made.time, *asked]) + 60 * SECOND]
