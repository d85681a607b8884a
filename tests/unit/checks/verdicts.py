"""The findings of a check in the smallest histories, and assertions about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import (
    Combined,
    Examined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.facts.partition_facts import LogPromotion
from linkflap.spark_verify.facts.view import PartitionView


@dataclass(frozen=True, slots=True)
class Rejected:
    """The smallest history in which a kind of anomaly must be found, and where; `only` are all
    kinds that it may have.

    `beside`: other partitions of the run, where it takes several to see it.
    """

    view: PartitionView
    cluster: str
    offset: int
    only: tuple[str, ...] = ()
    beside: tuple[PartitionView, ...] = ()


def results(name: str, *views: PartitionView) -> Iterator[tuple[str, Finding]]:
    """The findings of a check in the partitions of one run, after its `combine`, each with the
    topic."""
    check, partials = REGISTRY[name], []
    for seen in views:
        for each in check.kernel(seen):
            if isinstance(each, PartialFinding):
                partials.append(replace(each, topic=seen.topic, partition=seen.partition))
            else:
                yield seen.topic, each
    if check.combine:
        yield from ((combined.topic, combined.found) for combined in check.combine(partials))


def found_in(combined: Combined) -> Found:
    """The finding of a combined result, which must have one."""
    assert isinstance(combined.found, Found)
    return combined.found


def findings(name: str, *views: PartitionView) -> list[Found]:
    return [f for _, f in results(name, *views) if isinstance(f, Found)]


def unjudged(name: str, *views: PartitionView) -> list[str]:
    """The reasons why something is unknown."""
    return [f.reason for _, f in results(name, *views) if isinstance(f, Unjudged)]


def anomalies(name: str, *views: PartitionView) -> list[tuple[str, str, int]]:
    return [(f.kind, f.cluster, f.offset) for f in findings(name, *views)]


def examined(name: str, seen: PartitionView) -> dict[str, int]:
    counts: dict[str, int] = {}
    for f in REGISTRY[name].kernel(seen):
        if isinstance(f, Examined):
            key = f"{f.cluster}/{f.origin}"
            counts[key] = counts.get(key, 0) + f.count
    return counts


def due_at(
    name: str, scenario: Scenario, promotions: Sequence[LogPromotion]
) -> Collection[tuple[str, str]]:
    """Where a check is due, by its own `due_at`."""
    due = REGISTRY[name].due_at
    assert due is not None
    return due(scenario, promotions)


def assert_rejected(name: str, kind: str, example: Rejected) -> None:
    """The anomaly is found at exactly that offset, once, and no kind that is not in `only`."""
    found = anomalies(name, example.view, *example.beside)
    assert found.count((kind, example.cluster, example.offset)) == 1, found
    assert {k for k, _, _ in found} <= {kind, *example.only}, found


def assert_accepted(name: str, seen: PartitionView, *, counted: Mapping[str, int]) -> None:
    """Nothing is found, nothing is unknown, and this much was examined."""
    assert anomalies(name, seen) == []
    assert unjudged(name, seen) == []
    assert examined(name, seen) == counted
