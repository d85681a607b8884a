"""How many records readers on a cluster got, for the failover that waits for it: every kind of
reader has to get some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.workloads.clients import WorkloadClients


def workload(home: str, *, read: int | None = None, acknowledged: int = 0) -> Any:
    return SimpleNamespace(
        spec=SimpleNamespace(home=home),
        read_on=lambda cluster: read if cluster == "A" else None,
        progress=lambda: SimpleNamespace(acknowledged=acknowledged),
    )


WRITTEN = workload("A", acknowledged=1)


@pytest.mark.parametrize(
    ("workloads", "given"),
    [
        ([WRITTEN], None),
        ([WRITTEN, workload("A", read=7), workload("A", read=500)], 7),
        # the group has not joined yet
        ([WRITTEN, workload("A", read=0), workload("A", read=500)], 0),
        # nobody writes C's topics
        ([WRITTEN, workload("A", read=500), workload("C", read=0)], 500),
        ([workload("A"), workload("A", read=0)], 0),  # nothing was written at all yet
    ],
)
def test_the_kind_of_readers_with_the_fewest_records_counts(
    workloads: list[Any], given: int | None
) -> None:
    assert WorkloadClients(workloads, cast(Any, None)).read_on("A") == given


def group(kind: str, home: str, cluster: str, **options: str | bool) -> Any:
    return SimpleNamespace(
        spec=WorkloadSpec(kind=kind, home=home, options=options),
        members=[SimpleNamespace(state=SimpleNamespace(cluster=cluster))],
        progress=lambda: SimpleNamespace(acknowledged=0),
    )


def test_groups_that_are_to_commit_on_a_cluster_work_there_on_topics_that_have_a_writer() -> None:
    writer = group("transactional", "A", "A")
    writer.progress = lambda: SimpleNamespace(acknowledged=1)
    every = [
        writer,
        group("readers", "A", "A", group="here"),
        group("readers", "A", "B", group="elsewhere"),
        group("readers", "C", "A", group="unwritten"),
        group("readers", "A", "A", assign=True),
        group("relay", "A", "A", group="relays"),
    ]
    assert WorkloadClients(every, cast(Any, None)).groups_on("A") == {"here", "relays"}
