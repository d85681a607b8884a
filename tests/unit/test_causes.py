"""Causes: anomalies are ranked, grouped under their cause, and summed up in one sentence."""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter

import pytest

from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.causes import TRACED, rank
from linkflap.spark_verify.verdict.shown import EXAMPLES, show
from tests.unit.found_anomalies import (
    ALL,
    NAMES,
    collision,
    found,
    ghost,
    lost,
    marker,
    ranked,
    uid,
    unseen,
    visible,
)


def test_an_id_collision_is_the_cause_of_what_it_led_to() -> None:
    anomalies = [unseen(12, 0), lost(12, 0), collision(6, 12), ghost(12, 0)]
    assert ranked(*anomalies) == [
        ("producer-id-collision", {"ghost-ack": 1, "lost-write": 1, "unseen-write": 1})
    ]
    (cause,) = rank(anomalies, REGISTRY)
    assert cause.first == 2


def test_another_payload_at_another_offset_has_a_cause_of_its_own() -> None:
    assert ranked(ghost(12, 0), lost(12, 0), lost(500, 44)) == [
        ("ghost-ack", {"lost-write": 1}),
        ("lost-write", {}),
    ]


def test_records_of_a_range_follow_from_any_of_it() -> None:
    assert ranked(lost(10, 0, records=20), unseen(25, 15)) == [("lost-write", {"unseen-write": 1})]
    assert ranked(lost(10, 0, records=20), unseen(30, 20)) == [
        ("lost-write", {}),
        ("unseen-write", {}),
    ]


def test_of_one_cluster_and_not_of_another() -> None:
    other = found("ghost-ack", "ghost-ack", 3, cluster="C", producer_id=6, uid=uid(9, 1))
    assert ranked(collision(6), other) == [("producer-id-collision", {}), ("ghost-ack", {})]


def test_the_source_of_a_mirrored_record_is_the_same_thing() -> None:
    hole = found("order-equality", "mirror-hole", 7, source="A", source_offset=5, records=2)
    gone = found("lost-write", "lost-write", 6, cluster="A")
    assert ranked(gone, hole) == [("mirror-hole", {"lost-write": 1})]


@pytest.mark.parametrize(
    ("offset", "partition", "follows"),
    [(139, 0, True), (20, 0, True), (19, 0, False), (139, 1, False)],
)
def test_a_state_follows_from_what_is_before_it_in_its_partition(
    offset: int, partition: int, follows: bool
) -> None:
    shown_as_data = found(
        "order-equality",
        "mirrored-aborted",
        20,
        records=10,
        uid=uid(9, 3),
        source="A",
        source_offset=20,
    )
    sample = found(
        "last-stable-offset",
        "lso-mismatch",
        offset,
        partition=partition,
        last_stable=offset,
        recomputed=20,
    )
    assert ranked(sample, shown_as_data)[0] == (
        "mirrored-aborted",
        {"lso-mismatch": 1} if follows else {},
    )


def test_kinds_of_one_check_at_one_offset_are_one() -> None:
    above = found("last-stable-offset", "lso-above-high-watermark", 12)
    differs = found("last-stable-offset", "lso-mismatch", 12)
    assert ranked(differs, above) == [("lso-above-high-watermark", {"lso-mismatch": 1})]


def test_the_member_with_the_most_consequences_names_the_cause() -> None:
    anomalies = [collision(5, 3), collision(6, 12), ghost(12, 0, pid=6)]
    (cause,) = rank(anomalies, REGISTRY)
    assert (cause.first, list(cause.members)) == (1, [1, 0])


def test_a_mirrored_anomaly_is_the_same_anomaly() -> None:
    """A chain: C has B's copy of the source's marker, and another marker that C wrote itself."""
    anomalies = [
        marker("C"),
        visible("C"),
        marker("B"),
        visible("B"),
        replace(marker("C", "B", first_offset=29), offset=30),
    ]

    def upstream(anomaly: Anomaly) -> str:
        return {"C": "B", "B": "A"}[anomaly.cluster]

    causes = rank(anomalies, REGISTRY, upstream)
    assert [(c.cluster, c.kind, c.led_to) for c in causes] == [
        ("B", "byte-divergence", 3),
        ("C", "byte-divergence", 0),
    ]
    assert anomalies[causes[0].first] == marker("B")
    alone = rank(anomalies, REGISTRY)
    assert [(c.cluster, len(c.members)) for c in alone] == [("B", 1), ("C", 2)]


def test_clusters_that_have_it_from_each_other_are_not_followed_for_ever() -> None:
    causes = rank(
        [marker("B"), marker("C")], REGISTRY, lambda anomaly: "B" if anomaly.cluster == "C" else "C"
    )
    assert [(c.cluster, c.led_to) for c in causes] == [("C", 1)] or [
        (c.cluster, c.led_to) for c in causes
    ] == [("B", 1)]


def test_a_cause_without_harm_says_what_it_can_come_to() -> None:
    shown = show([collision(6, 12)], ALL, REGISTRY, NAMES)
    assert (
        shown.cause
        == "On B producer id 6 belongs to two producers at A.orders-0 @ 12 (idempotent-2, and one"
        " whose batches were mirrored up to offset 90); no client was seen to be harmed, but "
        "where epoch and sequence meet, a broker takes a record of the one for a repeat of the "
        "other's, acknowledges it and does not append it."
    )
    sample = found("last-stable-offset", "lso-mismatch", 12, last_stable=12, recomputed=3)
    harmless = show([marker(markers=None), sample], ALL, REGISTRY, NAMES).cause
    assert (
        "no client was seen to be harmed, but what only the source's bytes say is lost to whoever "
        "reads B." in harmless
    )
    assert "no client" not in show([marker(), visible()], ALL, REGISTRY, NAMES).cause
    assert "no client" not in show([lost(12, 0)], ALL, REGISTRY, NAMES).cause


def test_a_batch_that_differs_from_several_sources_is_counted_once() -> None:
    assert (
        "mirrored batches"
        not in show([marker("C", "A"), marker("C", "B")], ALL, REGISTRY, NAMES).cause
    )


def test_of_each_check_one_consequence_is_said_what_harms_clients_first() -> None:
    hole = found("order-equality", "mirror-hole", 22, uid=uid(7, 0), source="A", source_offset=22)
    phantom = found("order-equality", "mirror-phantom", 22, uid=uid(8, 0), source="A")
    sample = found("last-stable-offset", "lso-mismatch", 23, last_stable=23, recomputed=3)
    said = show([marker(), hole, phantom, lost(22, 0), sample], ALL, REGISTRY, NAMES).cause
    assert said.endswith("; 1 mirrored record is missing, 1 acknowledged write is lost, "
                         "1 sample of the last stable offset "
                         "contradicts the bytes.")  # fmt: skip


def test_what_is_allowed_causes_nothing() -> None:
    allowed = found("order-equality", "mirrored-duplicate", 5, allowed=True, uid=uid(7, 0))
    assert ranked(allowed, found("duplicate", "mirrored-duplicate", 5, uid=uid(7, 0))) == [
        ("mirrored-duplicate", {})
    ]
    assert ranked(allowed) == []


def test_the_order_of_anomalies_does_not_matter() -> None:
    anomalies = [
        unseen(12, 0),
        lost(12, 0),
        collision(6, 12),
        ghost(12, 0),
        lost(70, 9),
        collision(2, 99),
    ]
    assert ranked(*anomalies) == ranked(*anomalies[::-1])


def test_many_are_counted_where_the_first_of_them_is() -> None:
    anomalies = [ghost(n, n) for n in range(TRACED + 5)] + [lost(n, n) for n in range(TRACED + 5)]
    assert ranked(*anomalies) == [("ghost-ack", {"lost-write": TRACED + 5})]


def test_checks_follow_from_others_and_never_in_a_circle() -> None:
    graph = {name: check.follows for name, check in REGISTRY.items()}
    assert set().union(*graph.values()) <= set(REGISTRY)
    TopologicalSorter(graph).prepare()


def test_what_proves_nothing_is_no_cause() -> None:
    shown = show([lost(12, 0)], frozenset(), REGISTRY, NAMES)
    assert (shown.cause, shown.causes) == ("", [])
    assert [a.cause for a in shown.anomalies] == [0]


def test_the_anomaly_that_names_a_cause_is_never_left_out() -> None:
    anomalies = [
        *(collision(100 + n, n) for n in range(EXAMPLES + 10)),
        collision(6, 900),
        ghost(12, 0),
    ]
    shown = show(anomalies, ALL, REGISTRY, NAMES)
    assert (shown.anomalies[0].offset, shown.causes[0].anomaly, shown.left_out) == (900, 1, 10)
    assert shown.causes[0].count == EXAMPLES + 11
