"""The world of a trigger: clusters, mirrors and clients as a run has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from linkflap.harness.model.protocols import World
from linkflap.harness.model.scenario import FaultSpec

SPEC = FaultSpec(id="cut", fault="link-cut", target="A->B", at=0.0, duration=1.0)


def world(**clients: list[SimpleNamespace] | int) -> World:
    answers = SimpleNamespace(
        **{name: lambda *_, value=value: value for name, value in clients.items()}
    )
    mirror = SimpleNamespace(lag=lambda: 7)
    return cast(
        World, SimpleNamespace(clients=answers, mirrors={"A->B": mirror}, topics={"A.orders": 2})
    )
