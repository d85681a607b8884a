"""Triggers on a mirror's own reports, and on a promotion in progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos import triggers
from linkflap.chaos.triggers import TRIGGERS
from linkflap.harness.model.protocols import MirrorStage, World
from linkflap.harness.model.scenario import FaultSpec
from tests.unit.trigger_world import SPEC


class Telling:
    """A mirror that reports these states; None: it does not answer."""

    def __init__(self, *, held: int = 0, handing_over: bool = False, silent: bool = False) -> None:
        self._stage = None if silent else MirrorStage(held=held, handing_over=handing_over)

    def stage(self) -> MirrorStage | None:
        return self._stage


def staged(mirror: object, **more: object) -> World:
    return cast(World, SimpleNamespace(mirrors={"A->B": mirror}, **more))


def test_what_a_mirror_says_of_itself_is_true_of_its_link_and_of_its_destination() -> None:
    assert TRIGGERS["mirror-holds"](SPEC, staged(Telling(held=70)), 70)
    assert not TRIGGERS["mirror-holds"](SPEC, staged(Telling(held=70)), 71)
    assert not TRIGGERS["mirror-holds"](SPEC, staged(Telling()))
    assert TRIGGERS["handing-over"](SPEC, staged(Telling(handing_over=True)))
    on_b = FaultSpec(id="pause", fault="broker-pause", target="B/1", at=0.0, duration=1.0)
    assert TRIGGERS["handing-over"](on_b, staged(Telling(handing_over=True)))
    to_b = FaultSpec(id="slow", fault="link-latency", target="*->B", at=0.0, duration=1.0)
    assert TRIGGERS["handing-over"](to_b, staged(Telling(handing_over=True)))
    on_a = FaultSpec(id="pause", fault="broker-pause", target="A/1", at=0.0, duration=1.0)
    assert not TRIGGERS["handing-over"](on_a, staged(Telling(handing_over=True)))
    for name in ("mirror-holds", "handing-over", "partly-promoted"):
        world = staged(
            Telling(silent=True), deployment=SimpleNamespace(clusters={"B": None}), topics={}
        )
        assert not TRIGGERS[name](SPEC, world), "a mirror that does not answer"
        assert not TRIGGERS[name](SPEC, staged(SimpleNamespace(), deployment=world.deployment)), (
            "one that cannot be asked"
        )


@pytest.mark.parametrize(
    ("leaders", "least", "true"),
    [
        ({0: 1, 1: 1001}, 1, True),
        ({0: 1, 1: 2}, 1, False),
        ({0: 1001, 1: 1001}, 1, False),
        ({0: 1}, 1, True),
        ({0: 1, 1: 1001}, 2, False),
        ({}, 1, False),
    ],
)
def test_partly_promoted_is_between_the_first_and_the_last_partition(
    monkeypatch: pytest.MonkeyPatch, leaders: dict[int, int], least: int, true: bool
) -> None:
    monkeypatch.setattr(
        triggers, "_leaders", lambda *_: {("A.orders", n): leader for n, leader in leaders.items()}
    )
    deployment = SimpleNamespace(clusters={"B": SimpleNamespace(brokers={1: None, 2: None})})
    topics = {"A.orders": 2, "B.orders": 9}
    assert (
        TRIGGERS["partly-promoted"](
            SPEC, staged(Telling(handing_over=True), deployment=deployment, topics=topics), least
        )
        is true
    )
    assert not TRIGGERS["partly-promoted"](
        SPEC, staged(Telling(), deployment=deployment, topics=topics), least
    )
