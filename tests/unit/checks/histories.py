"""Shorthand for the smallest histories: logs (`tests.unit.checks.logs`), operations of clients
(`tests.unit.checks.clients`), and what else the run knows.

    a = Log("A").txn(1, 2, pid=7).txn(3, pid=7, end="abort")
    view([a, Log("B").data(1, 2)], sends=[commit(1, 2, acked=0)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from linkflap.harness.guarantees import declared
from linkflap.harness.model.faults import REVERSE
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import Budgets, MirrorSpec
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.values import Values
from linkflap.spark_verify.facts.partition_facts import (
    Comparison,
    Copying,
    Deletion,
    Description,
    Disagreement,
    MirrorStop,
    PartitionFacts,
    Promotion,
    Refusal,
    ReplicaSample,
    RunFacts,
    Truncation,
    Window,
)
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import (
    PartitionView,
    Watermarks,
)
from linkflap.topologies import parse
from tests.unit.checks.logs import ENDED, SECOND, Log, ints


class History(TypedDict, total=False):
    """What a history has besides its logs: the arguments of `view`."""

    topology: str
    mirror: Mapping[str, str] | None
    mirror_kind: str
    topic: str
    promotions: Sequence[Promotion]
    sends: Sequence[Send]
    reads: Sequence[Read]
    watermarks: Mapping[str, Watermarks] | None
    windows: Sequence[Window]
    groups: Sequence[GroupOffset]
    ended: int
    earlier: Sequence[Log]
    truncations: Sequence[Truncation]
    stops: Sequence[MirrorStop]
    budgets: Budgets | None
    compacted: Mapping[str, int] | None
    deaths: Mapping[str, int] | None
    refusals: Sequence[Refusal]
    descriptions: Sequence[Description]
    disagreements: Sequence[Disagreement]
    comparisons: Sequence[Comparison]
    replica_samples: Sequence[ReplicaSample]
    deletions: Sequence[Deletion]


class WholeHistory(History, total=False):
    """A history with its logs."""

    logs: Sequence[Log]


class OtherStory(TypedDict, total=False):
    """The changes of `but`: facts of the run or of the partition."""

    mirror: MirrorSpec
    recorded: bool
    programs: frozenset[str]
    copying: tuple[Copying, ...]
    promotions: Sequence[Promotion]
    compacted: Mapping[str, int]
    topology: Topology
    topic_config: Mapping[str, str]
    values: Sequence[Values]
    windows: Sequence[Window]


def but(seen: PartitionView, **changes: Unpack[OtherStory]) -> PartitionView:
    """The same rows with other facts: `changes` are of the run or of the partition."""
    names = {f.name for f in fields(RunFacts)}
    of_run: dict[str, Any] = {name: value for name, value in changes.items() if name in names}
    of_partition: dict[str, Any] = {
        name: value for name, value in changes.items() if name not in names
    }
    return replace(
        seen,
        partition_facts=replace(
            seen.partition_facts,
            facts=replace(seen.partition_facts.facts, **of_run),
            **of_partition,
        ),
    )


def promoted(
    offset: int,
    *,
    kind: str = "forced",
    source: str = "A",
    cluster: str = "B",
    at: int = 500 * SECOND,
) -> Promotion:
    return Promotion(
        link=f"{source}->{cluster}",
        kind="planned" if kind == "planned" else "forced",
        source=source,
        cluster=cluster,
        offset=offset,
        time=at + SECOND,
        fault_time=at,
    )


def reversed_(link: str, *, at: int) -> Window:
    """The fault that makes a link's former source follow its destination, within a second. `at` is
    in seconds."""
    return Window(
        id=f"reverse-{at}", fault=REVERSE, target=link, start=at * SECOND, end=(at + 1) * SECOND
    )


def samples(
    *rows: tuple[int, int], epochs: Sequence[int] | None = None, every: int = SECOND
) -> Watermarks:
    """Samples of (LSO, high watermark), one each second from second 1 on."""
    n = len(rows)
    time = np.arange(1, n + 1, dtype=np.int64) * every
    return Watermarks(
        time=time,
        returned=time + 1000,
        leader=np.ones(n, np.int64),
        log_start=np.zeros(n, np.int64),
        last_stable=ints(*(r[0] for r in rows)),
        high_watermark=ints(*(r[1] for r in rows)),
        leader_epoch=ints(*(epochs or [0] * n)),
    )


def view(
    logs: Sequence[Log],
    *,
    topology: str = "A->B",
    mirror: Mapping[str, str] | None = None,
    mirror_kind: str = "mm2",
    topic: str = "A.t",
    promotions: Sequence[Promotion] = (),
    sends: Sequence[Send] = (),
    reads: Sequence[Read] = (),
    watermarks: Mapping[str, Watermarks] | None = None,
    windows: Sequence[Window] = (),
    groups: Sequence[GroupOffset] = (),
    ended: int = ENDED,
    earlier: Sequence[Log] = (),
    truncations: Sequence[Truncation] = (),
    stops: Sequence[MirrorStop] = (),
    budgets: Budgets | None = None,
    compacted: Mapping[str, int] | None = None,
    deaths: Mapping[str, int] | None = None,
    refusals: Sequence[Refusal] = (),
    drained: frozenset[str] = frozenset(),
    descriptions: Sequence[Description] = (),
    disagreements: Sequence[Disagreement] = (),
    comparisons: Sequence[Comparison] = (),
    replica_samples: Sequence[ReplicaSample] = (),
    deletions: Sequence[Deletion] = (),
) -> PartitionView:
    options = (
        {"delivery": "at-least-once", "isolation": "read_committed"} if mirror_kind == "mm2" else {}
    )
    facts = RunFacts(
        run="run",
        topology=parse(topology),
        mirror=declared(MirrorSpec(kind=mirror_kind, options=dict(mirror or options))),
        windows=windows,
        ended=ended,
        budgets=budgets or Budgets(),
        deaths=deaths or {},
        refusals=refusals,
        drained=drained,
    )
    story = PartitionFacts(
        facts=facts,
        topic=topic,
        partition=0,
        promotions=promotions,
        truncations=truncations,
        stops=stops,
        descriptions=descriptions,
        disagreements=disagreements,
        comparisons=comparisons,
        replica_samples=replica_samples,
        deletions=deletions,
        compacted=compacted or {},
    )
    return PartitionView(
        partition_facts=story,
        replicas=[log.replica() for log in logs],
        sends=sends,
        reads=reads,
        watermarks=watermarks or {},
        groups=groups,
        earlier=[log.replica() for log in earlier],
    )
