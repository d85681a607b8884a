"""topic-sync: the smallest histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.partition_facts import Comparison, TopicSettings, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import SECOND, Log, but, promoted, view
from tests.unit.checks.verdicts import Rejected, anomalies, unjudged

NAME = "topic-sync"
RETENTION = ("retention.ms", "1000", None)


def topic(
    *differing: tuple[str, str | None, str | None],
    there: int = 2,
    here: int = 2,
    at: int = 9,
    link: str = "A->B",
    missing: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> Comparison:
    return Comparison(
        link=link,
        there=there,
        here=here,
        differing=differing,
        time=at * SECOND,
        missing=missing,
        beside=beside,
    )


def seen(*comparisons: Comparison) -> PartitionView:
    return view([Log("A").data(1), Log("B").data(1)], comparisons=comparisons)


ACCEPTED: dict[str, tuple[PartitionView, dict[str, int]]] = {
    "the same on both": (seen(topic()), {"B/mirrored": 1}),
    "the same at last": (seen(topic(RETENTION, at=8), topic(at=9)), {"B/mirrored": 1}),
    "each way by itself": (seen(topic(), topic(link="B->A")), {"A/mirrored": 1, "B/mirrored": 1}),
    "nothing compared": (seen(), {}),
}
REJECTS = {
    "topic-missing": Rejected(seen(topic(here=0)), "B", -1),
    "partitions-differ": Rejected(seen(topic(here=1)), "B", -1),
    "setting-differs": Rejected(seen(topic(RETENTION)), "B", -1),
    "acl-differs": Rejected(seen(topic(missing=["u may read"])), "B", -1),
}


HOME = {"retention.ms": "1000", "min.insync.replicas": "2"}
MIRRORED = {"retention.ms": "-1", "cleanup.policy": "delete", "min.insync.replicas": "1"}
RESTORED = {"retention.ms": "1000", "min.insync.replicas": "1"}


def promoted_with(
    *samples: tuple[str, int, Mapping[str, str]], unknown: Sequence[str] = (), **rest: Any
) -> PartitionView:
    """A->B was failed over in second 500 by the shadow; (cluster, second, settings) samples."""
    made = view(
        [Log("A").data(1), Log("B").data(1)], mirror_kind="shadow", promotions=[promoted(1)],
        **rest,
    )  # fmt: skip
    settings = tuple(
        TopicSettings(cluster=cluster, asked=at * SECOND, settings=own, until=FOREVER)
        for cluster, at, own in samples
    )
    return but(made, settings=settings, unknown_settings=frozenset(unknown))


def synced_then(own: Mapping[str, str]) -> PartitionView:
    """A->B was failed over by Cluster Mirroring; B's topic had these settings after that."""
    samples = [("A", 1, HOME), ("B", 1, HOME), ("B", 502, own)]
    seen = promoted_with(*samples)
    return but(seen, mirror=declared(MirrorSpec(kind="cluster-mirroring", options={})))


BEFORE = (("A", 1, HOME), ("B", 1, MIRRORED))
ACCEPTED |= {
    "synced": (synced_then({"retention.ms": "1000", "flush.ms": "5"}), {"B/mirrored": 1}),
    "restored": (promoted_with(*BEFORE, ("B", 502, RESTORED)), {"B/mirrored": 1}),
    "restored within seconds": (promoted_with(*BEFORE, ("B", 509, RESTORED)), {"B/mirrored": 1}),
    "changed at home just before": (
        promoted_with(*BEFORE, ("A", 495, {"retention.ms": "7"}), ("B", 502, RESTORED)),
        {"B/mirrored": 1},
    ),
    "of brokers": (
        promoted_with(
            ("A", 1, {
                **HOME,
                "leader.replication.throttled.replicas": "0:1",
                "diskless.enable": "true",
            }),
            ("B", 502, RESTORED),
        ), {"B/mirrored": 1},
    ),
    "unknown to the destination": (
        promoted_with(("A", 1, {**HOME, "new": "1"}), ("B", 502, RESTORED), unknown=["new"]),
        {"B/mirrored": 1},
    ),
    "changed by an unclean election there": (
        promoted_with(
            *BEFORE, ("B", 502, RESTORED), ("B", 600, {"unclean.leader.election.enable": "true"}),
            windows=[
                Window(
                    id="u", fault="unclean-election", target="B", start=599 * SECOND,
                    end=700 * SECOND,
                )
            ],
        ), {"B/mirrored": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("own", [{}, {"retention.ms": "-1"}])
def test_settings_that_a_mirror_synced_stay_when_it_fails_over(own: Mapping[str, str]) -> None:
    """Nor does anybody change it afterwards."""
    assert anomalies(NAME, synced_then(own)) == [("setting-differs", "B", -1)]


@pytest.mark.parametrize(
    ("samples", "cluster"), [([("A", 1, HOME)], "B"), ([("B", 502, RESTORED)], "A")]
)
def test_without_samples_of_one_cluster_nothing_is_known(
    samples: list[tuple[str, int, Mapping[str, str]]], cluster: str
) -> None:
    (reason,) = unjudged(NAME, promoted_with(*samples))
    assert reason == f"nothing says what was set on A.t on {cluster}"


def test_a_cluster_that_did_not_answer_after_its_failover_is_not_judged_by_samples_before() -> None:
    made = promoted_with(*BEFORE)
    home, stale = made.settings
    for until, found in ((499, []), (505, []), (511, [("setting-differs", "B", -1)])):
        stale = replace(stale, until=until * SECOND)
        history = but(made, settings=(home, stale))
        assert anomalies(NAME, history) == found
        if not found:
            assert unjudged(NAME, history) == ["nothing says what was set on A.t on B"]


def test_a_cluster_that_did_not_answer_is_asked_later() -> None:
    paused = Window(
        id="p", fault="broker-pause", target="B/1", start=501 * SECOND, end=520 * SECOND
    )
    late = promoted_with(*BEFORE, ("B", 525, RESTORED), windows=[paused])
    assert anomalies(NAME, late) == []


@pytest.mark.parametrize(
    "left",
    [
        (),
        (("B", 502, MIRRORED),),
        (("B", 502, {**RESTORED, "retention.ms": "-1"}),),
        (("B", 502, {**RESTORED, "retention.bytes": "-1"}),),
        (("B", 502, {"min.insync.replicas": "1"}),),
        (("B", 502, {**RESTORED, "min.insync.replicas": "3"}),),
        (("B", 502, RESTORED), ("B", 600, MIRRORED)),
    ],
)
def test_setting_that_a_failover_does_not_restore_differs(
    left: Sequence[tuple[str, int, Mapping[str, str]]],
) -> None:
    assert anomalies(NAME, promoted_with(*BEFORE, *left)) == [("setting-differs", "B", -1)]


def test_a_mirror_of_a_mirror_restores_what_is_set_at_home() -> None:
    second = replace(promoted(1, source="B", cluster="C"))
    samples = (*BEFORE, ("C", 1, MIRRORED), ("C", 502, RESTORED))
    chain = promoted_with(*samples, topology="A->B->C")
    assert anomalies(NAME, but(chain, promotions=[second])) == []


@pytest.mark.parametrize(
    "differing", [("retention.ms", "1000", "2000"), ("retention.ms", "1000", None)]
)
def test_a_setting_that_lacks_or_has_another_value_differs(
    differing: tuple[str, str | None, str | None],
) -> None:
    assert anomalies(NAME, seen(topic(differing))) == [("setting-differs", "B", -1)]


def test_last_comparison_reports_partitions_and_settings_that_differ() -> None:
    both = topic(RETENTION, here=1)
    assert anomalies(NAME, seen(topic(at=8), both)) == [
        ("partitions-differ", "B", -1),
        ("setting-differs", "B", -1),
    ]


def test_an_acl_that_is_there_beside_the_source_s_differs_as_well() -> None:
    assert anomalies(NAME, seen(topic(beside=["u may read"]))) == [("acl-differs", "B", -1)]
