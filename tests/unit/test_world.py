"""Which logs a run captures at its end: those of live clusters, and of dead ones whose last capture
is older than their death."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.recording.world import RunWorld


def stage(states: dict[str, list[str]], captured: tuple[str, ...]) -> RunWorld:
    clusters = {
        name: SimpleNamespace(
            brokers={n: SimpleNamespace(state=state) for n, state in enumerate(own)}
        )
        for name, own in states.items()
    }
    captures: Any = SimpleNamespace(current=lambda cluster: cluster in captured)
    deployment: Any = SimpleNamespace(clusters=clusters)
    none: Any = None
    return RunWorld(
        deployment=deployment,
        mirrors={},
        clients=none,
        recorder=none,
        captures=captures,
        sampler=none,
    )


@pytest.mark.parametrize(
    ("a", "died", "captured", "owed"),
    [
        (["running"], (), (), ["A", "B"]),
        (["running", "stopped"], ("A",), (), ["A", "B"]),
        (["stopped"], (), ("A",), ["B"]),  # by the failover that ended it
        (["stopped"], ("A",), (), ["A", "B"]),
        (["stopped"], ("A",), ("A",), ["A", "B"]),  # it had been restarted since
        (["stopped", "paused"], (), (), ["A", "B"]),  # in the middle of a fault that was not healed
    ],
)
def test_whose_logs_are_owed(
    a: list[str], died: tuple[str, ...], captured: tuple[str, ...], owed: list[str]
) -> None:
    assert stage({"A": a, "B": ["running"]}, captured).to_capture(died) == owed
