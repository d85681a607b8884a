"""Clusters that these tests share, one broker of A and three of B, and a shadow between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linkflap.harness.model.protocols import Deployment
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.topologies import parse
from tests.shadow_sides import Shadowed, shadow


@pytest.fixture(scope="package")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("wide")
    events = EventLog(folder / "events.jsonl")
    try:
        with runtime("process")(parse("A->B:3"), folder=folder, recorder=events) as up:
            yield up
    finally:
        events.close()


@pytest.fixture
def mirror(wide: Deployment, request: pytest.FixtureRequest) -> Iterator[Shadowed]:
    """Not started; its options are the parameter, if there is one."""
    made = shadow(wide, **getattr(request, "param", {}))
    yield made
    made.resume()
    if made.alive:
        made.crash()
    for cluster in wide.clusters.values():
        for broker in cluster.brokers.values():
            if broker.state == "stopped":
                broker.start()
