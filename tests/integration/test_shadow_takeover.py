"""A failback's takeover that is killed or stopped at a step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from tests.failback import away, led_by_its_own, revived, same_everywhere, truncations
from tests.shadow_sides import Shadowed, Sides, forgotten
from tests.shadows import TOPIC_PARTITIONS, Writer, drained, ends, own_write, shadowed

pytestmark = pytest.mark.linkflap(topology="A->B")
TAKING_OVER = ("planned", "joined", "claimed", "elected", "alone", "truncating", "truncated")
"""Steps of a takeover (failback), in order: other shadows do not reach them."""


@pytest.mark.nightly
def test_a_takeover_that_is_killed_at_every_step_goes_on(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    away(linkflap_deployment, mirror)
    revived(a)
    tail = ends(a.bootstrap)
    back = cast(Shadowed, mirror.reversed())
    promoted = mirror.promotion()
    back.__class__ = Shadowed  # one that tells its step
    not_truncated = TAKING_OVER[: TAKING_OVER.index("alone")]
    for step in TAKING_OVER:
        monkeypatch.setenv(PAUSE_AT, step)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(back.restart if back.log.exists() else back.start)
            until(
                cast(Any, lambda s=step: back.step() == s),
                within=60,
                every=0.05,
                what=f"the takeover to stand at {step}",
            )
            back.crash()
            with pytest.raises(SetupError, match="ended"):
                started.result(60)
        if step in not_truncated:
            # Nothing is lost before the shadow leads alone: A is as it was.
            assert all(ends(a.bootstrap)[tp] >= tail[tp] for tp in TOPIC_PARTITIONS)
        else:
            assert not isinstance(own_write(a.bootstrap, **{"message.timeout.ms": 2000}), int)
    monkeypatch.delenv(PAUSE_AT)
    back.restart()
    assert {tp: where for tp, (where, _) in truncations(events, "B->A").items()} == promoted
    Writer(b.bootstrap).write(2)
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["stall", "disconnect"])
@pytest.mark.parametrize("step", TAKING_OVER)
def test_a_takeover_that_is_stopped_at_a_step_goes_on(
    linkflap_deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    step: str,
    how: str,
) -> None:
    """Past the end of its session: when it comes back, A has taken back the partitions that the
    shadow did not lead alone."""
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    away(linkflap_deployment, mirror)
    revived(a)
    tail, promoted = ends(a.bootstrap), mirror.promotion()
    back = cast(Shadowed, mirror.reversed())
    back.__class__ = Shadowed
    plain = back.plain()
    back.sides = Sides(linkflap_deployment, plain, tmp_path, destination="A")
    back_to_b = linkflap_deployment.links["B->A"]
    monkeypatch.setenv(PAUSE_AT, step)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(back.start)
        until(
            lambda: back.step() == step,
            within=60,
            every=0.05,
            what=f"the takeover to stand at {step}",
        )
        if how == "stall":
            back.pause()
        else:
            back.sides.cut()
            back_to_b.cut()
        until(forgotten(a, plain.broker_id), within=120, every=0.1, what="its session to end")
        if step in TAKING_OVER[: TAKING_OVER.index("alone")]:
            assert all(ends(a.bootstrap)[tp] >= tail[tp] for tp in TOPIC_PARTITIONS)
        else:
            assert not isinstance(own_write(a.bootstrap, **{"message.timeout.ms": 2000}), int)
        monkeypatch.delenv(PAUSE_AT)
        if how == "stall":
            back.resume()
        else:
            back.sides.restore()
            back_to_b.restore()
        back.go_on()
        started.result(120)
    assert {tp: where for tp, (where, _) in truncations(events, "B->A").items()} == promoted
    Writer(b.bootstrap).write(2)
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)
