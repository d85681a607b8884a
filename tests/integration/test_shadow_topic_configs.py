"""Configs of mirrored topics: those of the home, and those that the destination does not
support."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from tests.events import Rows
from tests.mirrored_topics import OTHER, admin_of, configs_of, given_up, grow, write_to
from tests.shadows import TOPIC, all_end, drained, make_topic, own_write, shadow

AT_HOME = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "7200000",
    "min.insync.replicas": "1",
    "max.message.bytes": "2000000",
}


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A@3.9.2->B")
def test_configs_that_the_destinations_release_does_not_have_are_left_out(
    linkflap_deployment: Deployment,
) -> None:
    """Before the start and afterwards: releases from 4.0 on have no
    message.timestamp.difference.max.ms."""
    up, legacy = (
        linkflap_deployment,
        {"message_timestamp_difference_max_ms": 1_000_000, "segment_ms": 7_200_000},
    )
    for topic in (TOPIC, OTHER):
        make_topic(up, "A", topic, partitions=1, **(legacy if topic == OTHER else {}))
        write_to(up, topic, 2)
    mirror = shadow(up, "A->B")
    mirror.start()
    make_topic(up, "A", "A.later", partitions=1, **legacy)
    write_to(up, "A.later", 2)
    grow(up, 2)
    all_end(up, "B", {(TOPIC, 0): 2, (TOPIC, 1): 0, (OTHER, 0): 2, ("A.later", 0): 2})
    assert given_up(mirror) == {}
    drained(mirror)
    mirror.stop()
    (event,) = [data for kind, _, data in cast(Rows, mirror._recorder) if kind == "mirror-stopped"]
    unknown = {
        name: topic["unknown_configs"]
        for name, topic in cast(dict[str, Any], event["topics"]).items()
        if topic["unknown_configs"]
    }
    assert unknown == {
        topic: ["message.timestamp.difference.max.ms"] for topic in (OTHER, "A.later")
    }
    assert configs_of(up, "B", OTHER) == configs_of(up, "B", "A.later") == {"segment.ms": "7200000"}


@pytest.mark.linkflap(topology="A->B->C")
def test_configs_are_those_of_the_home_after_a_failover_behind_another_mirror(
    linkflap_deployment: Deployment,
) -> None:
    """B is still a mirror when C is promoted, and has the configs that a mirrored topic must
    have."""
    up = linkflap_deployment
    make_topic(
        up, "A", partitions=1, **{name.replace(".", "_"): value for name, value in AT_HOME.items()}
    )
    first, second = (shadow(up, link) for link in ("A->B", "B->C"))
    first.start()
    second.start()
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        TOPIC,
        incremental_configs=[
            ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry(
                "max.compaction.lag.ms", "99000", incremental_operation=AlterConfigOpType.SET
            ),
        ],
    )
    admin = admin_of(up, "A")
    admin.incremental_alter_configs([resource])[resource].result(20)
    wanted = {name: value for name, value in AT_HOME.items() if name != "max.message.bytes"}
    wanted |= {"retention.ms": "3600000", "max.compaction.lag.ms": "99000"}
    assert configs_of(up, "A") == wanted
    for mirror in (first, second):

        def taken_in(m: ShadowMirror = mirror) -> bool:
            return m.notes().topics[TOPIC].configs == wanted

        until(taken_in, within=60, every=0.2, what="configs to be taken in")
    for cluster in "BC":
        there = configs_of(up, cluster)
        assert (there["retention.ms"], there["cleanup.policy"], there["max.compaction.lag.ms"]) == (
            "-1",
            "delete",
            "99000",
        )
        assert "max.message.bytes" not in there
    second.stop()
    assert configs_of(up, "C") == wanted
    assert configs_of(up, "B")["retention.ms"] == "-1"
    first.stop()
    assert configs_of(up, "B") == wanted


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_a_smaller_cluster_asks_for_no_more_replicas_than_it_has_and_home_keeps_its_own_number(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    make_topic(up, "A", partitions=1, min_insync_replicas=2)
    write_to(up, TOPIC, 2)
    mirror = shadow(up, "A->B")
    mirror.start()
    drained(mirror)
    mirror.stop()
    assert configs_of(up, "B") == {"min.insync.replicas": "1"}
    assert own_write(up.clusters["B"].bootstrap, acks="all") == 2
    back = mirror.reversed()
    back.start()
    assert configs_of(up, "A")["min.insync.replicas"] == "1", "while it is mirrored"
    drained(back)
    back.stop()
    assert configs_of(up, "A") == {"min.insync.replicas": "2"}
    until(
        lambda: own_write(up.clusters["A"].bootstrap, acks="all") == 3,
        within=60,
        what="A to take writes",
    )
