"""The shadow mirror killed, stalled and cut off at each of its steps, on real brokers: it
continues, and no client wrote too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from linkflap.harness.mirrors.shadow.journal import PAUSE_AT, STEPS, Step
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from tests.on_runtimes import deployed
from tests.shadow_sides import (
    Shadowed,
    Sides,
    Traffic,
    Watch,
    assert_failed_over,
    forgotten,
    shadow,
)
from tests.shadows import drained, ends
from tests.waiting import eventually

# One cell of the matrix of a shadow's steps and faults: a failover that is disturbed at one
# step, observed from outside.


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

        eventually("another process to come there too", again, state=mirror._state)
    forget()
    if mirror.notes().phase != "handed-over":
        mirror.crash()


def stall(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    mirror.pause()
    eventually("its session to end", forgotten(deployment.clusters["B"]))
    forget()
    mirror.resume()
    mirror.go_on()


def disconnect(deployment: Deployment, mirror: Shadowed, forget: Callable[[], None]) -> None:
    assert mirror.sides is not None
    link = deployment.links["A->B"]
    mirror.sides.cut()
    link.cut()
    eventually("its session to end", forgotten(deployment.clusters["B"]))
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
            mirror.come_to(step)
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
            try:
                starting.result(90)
            except SetupError:
                assert how == "kill"
                mirror.restart()
        else:
            mirror.start()
        markers = traffic.leave_open()
        drained(mirror)
        mirrored = ends(a)
        eventually("a refused write", lambda: watch.refused > 2)
        stopping = pool.submit(mirror.stop)
        if step in FAILING_OVER:
            mirror.come_to(step)
            BREAKS[how](deployment, mirror, partial(monkeypatch.delenv, PAUSE_AT, raising=False))
        stopping.result(160)
        eventually("B to take writes", lambda: len({p for p, _ in watch.written}) == 2)
    assert watch.seen == []
    assert watch.looks > 5
    assert_failed_over(deployment, mirror, markers=markers, mirrored=mirrored)


CONTINUOUS = {("appended", "kill"), ("handing-over", "disconnect")}
"""Cells that run every time; the others run nightly."""
MATRIX = [
    pytest.param(step, how, marks=() if (step, how) in CONTINUOUS else pytest.mark.nightly)
    for how in BREAKS
    for step in ("registered", "noted", "created", "narrowed", *FAILING_OVER)
    # who waits for the failover wakes a process that is done
    if (step, how) != ("handed-over", "stall")
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Sides]]:
    """A and three brokers of B, for one cell after the other, with a proxy in each path of a
    shadow."""
    folder = tmp_path_factory.mktemp("wide")
    with deployed("A->B:3", folder) as up:
        yield up, Sides(up, shadow(up).plain(), folder)


@pytest.mark.parametrize(("step", "how"), MATRIX)
def test_a_failover_goes_on_from_every_step(
    wide: tuple[Deployment, Sides], step: Step, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cell(*wide, step, how, monkeypatch)
