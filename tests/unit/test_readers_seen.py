"""How much readers on a cluster were given, for the failover that waits for it: no kind of readers is left behind another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

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
        ([WRITTEN, workload("A", read=0), workload("A", read=500)], 0),  # the group has not joined yet
        ([WRITTEN, workload("A", read=500), workload("C", read=0)], 500),  # nobody writes C's topics
        ([workload("A"), workload("A", read=0)], 0),  # nothing was written at all yet
    ],
)
def test_what_counts_is_the_kind_of_readers_that_was_given_least(workloads, given):
    assert WorkloadClients(workloads, cast(Any, None)).read_on("A") == given
