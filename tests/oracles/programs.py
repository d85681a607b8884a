"""A user's program in a random history: it writes a second topic, whose records have the headers of
their inputs.

The world is played once; the program's outputs are a copy of it with changes of its own. So outputs
are missing, repeated or made from aborted records.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random

import numpy as np

from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.facts.partition_facts import Copying
from linkflap.spark_verify.facts.view import PartitionView, Replica
from tests.oracles.changes import change
from tests.oracles.views import views
from tests.oracles.worlds import SECOND, TOPIC, World

OUTPUTS = "A.out"
PROGRAM = Copying(
    name="command-1", home="A", group="pg", reads=frozenset({TOPIC}), writes=frozenset({OUTPUTS})
)


def with_program(made: World, random: Random) -> list[PartitionView]:
    """All partitions of both topics."""
    other = deepcopy(made)
    if random.random() < 0.7:
        change(other, random.randint(1, 4))
    return [
        *(_story(_sampled(view, made, random)) for view in views(made)),
        *(_story(_written(view, random)) for view in views(other)),
    ]


def _story(view: PartitionView) -> PartitionView:
    facts = replace(
        view.partition_facts.facts, copying=(PROGRAM,), programs=frozenset({OUTPUTS}), recorded=True
    )
    return replace(view, partition_facts=replace(view.partition_facts, facts=facts))


def _sampled(view: PartitionView, made: World, random: Random) -> PartitionView:
    """Adds random samples of the program's committed offsets on each cluster."""
    ends = {replica.cluster: replica.end for replica in view.replicas}
    samples = [
        GroupOffset(
            cluster=cluster, group=PROGRAM.group, topic=TOPIC, partition=view.partition,
            offset=random.randint(0, end), time=random.randint(0, made.time + SECOND),
        )
        for cluster, end in sorted(ends.items())
        for _ in range(random.choice([0, 1, 1, 3]))
    ]  # fmt: skip
    return replace(view, groups=sorted([*view.groups, *samples], key=lambda g: g.time))


def _written(view: PartitionView, random: Random) -> PartitionView:
    """The program's outputs. A few are made from an earlier input, or from an unknown one."""

    def foreign(of: Replica) -> Replica:
        unknown = np.full(len(of.records), FOREIGN, np.int64)
        made_from = of.records.uid.copy()
        for row in range(1, len(made_from)):
            if random.random() < 0.05:
                made_from[row] = random.choice([FOREIGN, made_from[0], made_from[row - 1]])
        return replace(
            of, made_from=made_from, records=replace(of.records, uid=unknown, operation=unknown)
        )

    replicas, earlier = ([foreign(r) for r in some] for some in (view.replicas, view.earlier))
    return replace(
        view,
        partition_facts=replace(view.partition_facts, topic=OUTPUTS),
        replicas=replicas,
        earlier=earlier,
        sends=(),
        reads=(),
        groups=(),
    )
