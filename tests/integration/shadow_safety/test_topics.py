"""Partitions that are added and topics that are deleted, before and during a failover."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests import shadows
from tests.events import Rows
from tests.quorum import pending
from tests.shadow_sides import Shadowed, forgotten
from tests.shadow_watch import Watch, assert_failed_over, mirroring
from tests.shadows import TOPIC, TOPIC_PARTITIONS

pytestmark = pytest.mark.nightly
OTHER = "A.other"
SESSION_SECONDS = 2.0
"""A shadow's session may end after this long without heartbeats (broker.session.timeout.ms, less
the interval between two)."""


def test_growth_is_narrowed_by_the_next_process(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added partitions have real brokers in their ISR until the shadow removes them: it died in
    between, and was restarted."""
    monkeypatch.setenv(PAUSE_AT, "grown")
    mirroring(wide, mirror)
    grow(wide)
    until(
        lambda: mirror.step() == "grown", within=60, what="the shadow at grown", state=mirror._state
    )
    monkeypatch.delenv(PAUSE_AT)
    with Watch(mirror, wide.clusters["B"].bootstrap, window=True).watching() as watch:
        began = time.monotonic()
        mirror.crash()
        mirror._spawn()
        until(
            lambda: (now := mirror._ask()) and not now.fenced,
            within=60,
            what="the shadow to be back",
            state=mirror._state,
        )
        away = time.monotonic() - began
        lost = f"{TOPIC}-2 is led by broker"
        until(
            lambda: lost in mirror.log.read_text() or mirror.lag() == 0,
            within=120,
            what="its end",
            state=mirror._state,
        )
    if lost in mirror.log.read_text() and away > SESSION_SECONDS:
        pytest.skip(
            f"this machine took {away:.1f} s to start a process: its session had ended, as in the "
            "next test"
        )
    assert not watch.written
    mirror.stop()
    assert mirror.promotion()[TOPIC, 2] == 1


def test_growth_that_was_lost_is_reported_and_holds_nobody_up(
    wide: Deployment, mirror: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended in the window for longer than its session: a real broker leads an empty
    partition, which is not mirrored."""
    monkeypatch.setenv(PAUSE_AT, "grown")
    markers, mirrored = mirroring(wide, mirror)
    grow(wide)
    until(
        lambda: mirror.step() == "grown", within=60, what="the shadow at grown", state=mirror._state
    )
    mirror.pause()
    until(forgotten(wide.clusters["B"]), within=120, every=0.1, what="its session to end")
    mirror.resume()
    mirror.go_on()
    message = f"{TOPIC}-2 is led by broker"
    until(
        lambda: message in mirror.log.read_text(),
        within=120,
        what="the shadow to tell",
        state=mirror._state,
    )
    assert mirror.lag()
    mirror.stop()
    assert mirror.promotion()[TOPIC, 2] == 0
    assert {tp: mirror.promotion()[tp] for tp in TOPIC_PARTITIONS} == mirrored
    assert markers == 3


@pytest.mark.parametrize(
    ("step", "then"),
    [
        *(
            (step, "")
            for step in ("settled", "before-epoch", "appended", "handing-over", "reassigned")
        ),
        *((step, "made again") for step in ("before-epoch", "handing-over", "reassigned")),
        *((step, "killed") for step in ("before-epoch", "reassigned")),
    ],
)
def test_a_topic_that_is_deleted_on_b_in_the_middle_holds_no_other_up(
    wide: Deployment, mirror: Shadowed, step: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once; a new topic with that name is not the mirror's, and does not block the
    next process."""
    a, b = (wide.clusters[name].bootstrap for name in "AB")
    shadows.make_topic(wide, "A", OTHER)
    writer = shadows.Writer(a, OTHER)
    writer.begin()  # this transaction is open in the failover too
    monkeypatch.setenv(PAUSE_AT, step)
    markers, mirrored = mirroring(wide, mirror)
    admin = AdminClient(quiet(b))
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(mirror.stop)
        until(
            lambda: mirror.step() == step,
            within=60,
            what=f"the shadow at {step}",
            state=mirror._state,
        )
        admin.delete_topics([OTHER])[OTHER].result(20)
        if then == "made again":
            until(
                lambda: OTHER not in admin.list_topics(timeout=60).topics,
                within=60,
                what="the topic to be gone",
            )
            new = NewTopic(OTHER, 2, replica_assignment=[[1, 2], [2, 3]])
            admin.create_topics([new])[OTHER].result(20)
        monkeypatch.delenv(PAUSE_AT)
        if then == "killed":
            mirror.crash()
        mirror.go_on()
        stopping.result(160)
    mirror.stop()
    reported = [data for kind, _, data in cast(Rows, mirror._recorder) if kind == "topic-given-up"]
    assert [one["topic"] for one in reported] == [OTHER]
    assert f"topic {OTHER} was deleted " in str(reported[0]["reason"])
    assert [kind for kind, _, _ in cast(Rows, mirror._recorder)].count("mirror-stopped") == 1
    promoted = mirror.promotion()
    assert {tp: promoted[tp] for tp in TOPIC_PARTITIONS} == mirrored
    until(
        lambda: not pending(wide.clusters["B"]), within=60, every=0.2, what="reassignments to end"
    )
    if then == "made again":
        there = admin.list_topics(timeout=60).topics[OTHER].partitions
        assert [sorted(there[n].replicas) for n in (0, 1)] == [[1, 2], [2, 3]]
        assert shadows.own_write(b, OTHER) == 0
    else:
        assert OTHER not in admin.list_topics(timeout=60).topics
    gone = {tp: end for tp, end in promoted.items() if tp[0] == OTHER}
    assert_failed_over(wide, mirror, markers=markers, mirrored=mirrored | gone)


def grow(wide: Deployment) -> None:
    """A third partition on A, with one record."""
    a = wide.clusters["A"].bootstrap
    admin = AdminClient(quiet(a))
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    until(
        lambda: isinstance(shadows.own_write(a, partition=2), int),
        within=120,
        what="the new partition of A",
    )
