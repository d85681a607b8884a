"""The setting of a generated scenario, besides its faults: topology, mirror, workloads, topics."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from dataclasses import replace

from linkflap.chaos.default_workloads import default_workloads, default_workloads_of
from linkflap.chaos.generator.bounds import GeneratorBounds, arrows_of
from linkflap.chaos.generator.packages import of_mirror
from linkflap.harness.model.scenario import (
    MirrorSpec,
    Option,
    TopicSpec,
    WorkloadSpec,
    with_library,
)
from linkflap.harness.model.topology import Topology
from linkflap.harness.workloads import KINDS
from linkflap.topologies import parse

_RECORDS: Mapping[str, tuple[Option, ...]] = {
    "value_size": (1, 50, 2000, 20_000),
    "keys": (1, 1000),
    "skew": (4.0,),
    "tombstones": (0.2,),
    "records": (1, 5, 60),
    "partitions": (1, 3),
    "compression": ("lz4", "zstd", "snappy", "gzip"),
}
"""Options of the workloads that shape records, with the values that are drawn besides the
default."""
_TOPICS: tuple[Mapping[str, str], ...] = (
    {},
    {},
    {"segment.ms": "1000"},
    {"message.timestamp.type": "LogAppendTime"},
    {"segment.ms": "1000", "retention.bytes": "300000"},
)
"""Topic configs; the default twice, so that it is drawn more often.

Compacted topics are not drawn (the scenario `compacted-topic` covers them): a cleaner takes records
whose keys nothing shows any more, and then a run is unknown."""


def topology(bounds: GeneratorBounds, rng: random.Random) -> Topology:
    """A topology within the bounds; each cluster gets one of the Kafka releases."""
    drawn = parse(arrows_of(rng.choice(bounds.topologies)))
    return replace(
        drawn, clusters=tuple(replace(c, kafka=rng.choice(bounds.kafka)) for c in drawn.clusters)
    )


def topics(rng: random.Random) -> TopicSpec:
    """The number of partitions and the config of the topics."""
    return TopicSpec(partitions=rng.choice([1, 2, 2, 3, 5]), config=dict(rng.choice(_TOPICS)))


def workloads(
    topology: Topology, topics: TopicSpec, rng: random.Random
) -> tuple[WorkloadSpec, ...]:
    """The default workloads of each home, with the same shape of records. Sometimes a relay is
    added, on two clusters with default topics."""
    records = {name: rng.choice(values) for name, values in _RECORDS.items() if rng.random() < 0.25}
    if "retention.bytes" in topics.config:
        records.pop("value_size", None)  # large records: deleted before a reader gets them
    every = topology.homes
    of_home = default_workloads_of if len(every) > 1 else default_workloads
    found = [
        # The options of records apply only to workloads that write; readers do not have them.
        replace(w, options={**w.options, **_known(records, KINDS[w.kind].options)})
        for home in every
        for w in of_home(topology, home)
    ]
    if len(topology.clusters) == 2 and rng.random() < 0.25 and not topics.config:
        found.append(
            WorkloadSpec(
                kind="relay",
                home=every[0],
                clients=1,
                options={"rate": 8.0, "group": "linkflap.relay"},
            )
        )
    return tuple(found)


def _known(options: Mapping[str, Option], known: Container[str]) -> Mapping[str, Option]:
    return {name: value for name, value in options.items() if name in known}


def with_clients(
    workloads: tuple[WorkloadSpec, ...], bounds: GeneratorBounds, rng: random.Random
) -> tuple[WorkloadSpec, ...]:
    """The workloads with clients of one library within the bounds, or of all libraries,
    alternating."""
    crews = bounds.crews
    # With one choice, nothing is drawn: a draw would change the scenarios of every existing seed.
    return with_library(workloads, crews[0] if len(crews) == 1 else rng.choice(crews))


def mirror(bounds: GeneratorBounds, rng: random.Random) -> MirrorSpec:
    """A mirror within the bounds, with some of its options."""
    kind = rng.choice(bounds.mirrors)
    return MirrorSpec(kind=kind, options=dict(of_mirror(kind, rng)))
