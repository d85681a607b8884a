"""One cell of the matrix of a shadow's steps and faults: a failover that is disturbed at one step,
observed from outside."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT, STEPS, Step
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from tests.shadow_sides import Shadowed, Sides, Traffic, forgotten, shadow
from tests.shadow_watch import Watch, assert_failed_over
from tests.shadows import ends

FAILING_OVER: tuple[Step, ...] = STEPS[STEPS.index("settling") :]
Break = Callable[[Deployment, Shadowed, Callable[[], None]], None]


def kill(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    """The failpoint of a failover in a child process; the second time, if the failover reaches it
    twice. `forget`: the next failover does not stop there."""
    step, pid = mirror.step(), mirror.pid
    mirror.crash()
    if step in FAILING_OVER:

        def again() -> bool:
            over = mirror.notes().phase == "handed-over"
            return over or (mirror.pid not in (None, pid) and mirror.step() == step)

        until(again, within=60, what="another process to come there too", state=mirror._state)
    forget()
    if mirror.notes().phase != "handed-over":
        mirror.crash()


def stall(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    mirror.pause()
    until(forgotten(deployment.clusters["B"]), within=30, every=0.1, what="its session to end")
    forget()
    mirror.resume()
    mirror.go_on()


def disconnect(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    assert mirror.sides is not None
    link = deployment.links["A->B"]
    mirror.sides.cut()
    link.cut()
    until(forgotten(deployment.clusters["B"]), within=30, every=0.1, what="its session to end")
    forget()
    mirror.sides.restore()
    link.restore()
    mirror.go_on()


BREAKS: dict[str, Break] = {"kill": kill, "stall": stall, "disconnect": disconnect}


def run_cell(
    deployment: Deployment, sides: Sides, step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mirrors and fails over, with a disturbance at `step`."""
    mirror = shadow(deployment, sides)
    try:
        _play(deployment, mirror, step, how, monkeypatch)
    finally:
        if mirror.alive:
            mirror.crash()


def _play(
    deployment: Deployment, mirror: Shadowed, step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = deployment.clusters["A"], deployment.clusters["B"]
    traffic = Traffic(a.bootstrap)
    traffic.write()
    monkeypatch.setenv(PAUSE_AT, step)
    with ThreadPoolExecutor(1) as pool, Watch(mirror, b.bootstrap).watching() as watch:
        if step not in FAILING_OVER:
            starting = pool.submit(mirror.start)
            until(
                lambda: mirror.step() == step,
                within=60,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
            try:
                starting.result(90)
            except SetupError:
                assert how == "kill"
                mirror.restart()
        else:
            mirror.start()
        markers = traffic.leave_open()
        until(
            lambda: mirror.lag() == 0,
            within=60,
            every=0.1,
            what="the mirror to drain",
            state=mirror._state,
        )
        mirrored = ends(a)
        until(lambda: watch.refused > 2, within=30, what="a refused write")
        stopping = pool.submit(mirror.stop)
        if step in FAILING_OVER:
            until(
                lambda: mirror.step() == step,
                within=90,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
        stopping.result(160)
        until(lambda: len({p for p, _ in watch.written}) == 2, within=30, what="B to take writes")
    assert watch.seen == []
    assert watch.looks > 5
    assert_failed_over(deployment, mirror, markers=markers, mirrored=mirrored)
