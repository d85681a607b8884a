"""Brokers of B that die and come back, and a controller that moves, before and during a
failover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from tests import quorum, shadows
from tests.shadow_sides import Shadowed
from tests.shadow_watch import Watch, assert_failed_over, mirroring
from tests.shadows import TOPIC, TOPIC_PARTITIONS, ends

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    "step", ["", "settling", "settled", "before-epoch", "appended", "handing-over", "reassigned"]
)
def test_a_broker_of_b_that_dies_is_left_behind_and_comes_back(
    wide: Deployment, mirror: Shadowed, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before (no step) and at each step of the failover; afterwards it truncates, catches up and
    joins every ISR."""
    if step:
        monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    broken = wide.clusters["B"].brokers[2]
    with (
        ThreadPoolExecutor(1) as pool,
        Watch(mirror, wide.clusters["B"].bootstrap).watching() as watch,
    ):
        if not step:
            broken.kill()
        stopping = pool.submit(mirror.stop)
        if step:
            until(
                lambda: mirror.step() == step,
                within=60,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            broken.kill()
            mirror.go_on()
        stopping.result(160)
        until(lambda: watch.written, within=120, what="B to take writes")
        broken.start()
    assert watch.seen == []
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


def test_a_broker_that_was_away_and_has_more_is_truncated(
    wide: Deployment, mirror: Shadowed
) -> None:
    """It was dead when the others settled: the records that only it had are not in the promoted
    log."""
    mirroring(wide, mirror)
    a, b = wide.clusters["A"], wide.clusters["B"]
    for broker in (1, 3):
        b.brokers[broker].pause()
    shadows.own_write(a.bootstrap)
    tp = TOPIC_PARTITIONS[0]
    until(
        lambda: shadows.headers(b.brokers[2], tp)["last_offset"][-1] + 1 == ends(a)[tp],
        within=120,
        what="2 to have more",
    )
    b.brokers[2].kill()
    for broker in (1, 3):
        b.brokers[broker].resume()
    mirror.stop()
    b.brokers[2].start()
    until(lambda: shadows.own_write(b.bootstrap) is not None, within=120, what="B to take writes")
    markers = sum(len(note.appended) for note in mirror.notes().partitions[TOPIC].values())
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirror.promotion())


def test_a_broker_that_comes_back_with_less_is_not_elected(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dead when the others settled, and comes back for the hand-over of a shadow that was
    killed there."""
    b = wide.clusters["B"]
    mirror.start()
    b.brokers[2].kill()
    markers, mirrored = mirroring(wide, mirror)
    monkeypatch.setenv(PAUSE_AT, "handing-over")
    mirror.crash()
    mirror.restart()
    until(
        lambda: mirror.lag() == 0,
        within=60,
        every=0.1,
        what="the mirror to drain",
        state=mirror._state,
    )
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(mirror.stop)
        until(
            lambda: mirror.step() == "handing-over",
            within=60,
            what="the hand-over",
            state=mirror._state,
        )
        monkeypatch.delenv(PAUSE_AT)
        b.brokers[2].start()
        mirror.crash()
        stopping.result(160)
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)


@pytest.mark.parametrize("step", ["mirroring", "before-epoch", "handing-over", "reassigned"])
def test_the_controller_of_b_moves(
    wide: Deployment, mirror: Shadowed, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step != "mirroring":
        monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    b = wide.clusters["B"]
    active = b.brokers[quorum.active_controller(b)]
    with ThreadPoolExecutor(1) as pool, Watch(mirror, b.bootstrap).watching() as watch:
        if step == "mirroring":
            active.kill()
            shadows.own_write(wide.clusters["A"].bootstrap)
            until(
                lambda: mirror.lag() == 0,
                within=60,
                every=0.1,
                what="the mirror to go on",
                state=mirror._state,
            )
            mirrored = ends(wide.clusters["A"])
            mirror.stop()
        else:
            stopping = pool.submit(mirror.stop)
            until(
                lambda: mirror.step() == step,
                within=60,
                what=f"the shadow at {step}",
                state=mirror._state,
            )
            active.kill()
            mirror.go_on()
            stopping.result(160)
        until(lambda: watch.written, within=120, what="B to take writes")
        active.start()
    assert watch.seen == []
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored)
