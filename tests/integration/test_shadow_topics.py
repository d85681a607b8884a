"""Topics and their configs: changed, deleted, made again, with a name that is taken, or with
configs that the destination does not support."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from linkflap.harness.mirrors.shadow.journal import PAUSE_AT
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from tests.events import Rows
from tests.shadow_sides import Shadowed
from tests.shadows import (
    OTHER,
    TOPIC,
    admin_of,
    all_end,
    assert_equal,
    configs_of,
    drained,
    ends,
    given_up,
    grow,
    make_topic,
    own_write,
    shadow,
    write_to,
)
from tests.waiting import eventually


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.parametrize(
    "again",
    [
        pytest.param(False, id="deleted", marks=pytest.mark.nightly),
        pytest.param(True, id="made again"),
    ],
)
def test_a_topic_that_is_deleted_on_the_destination_is_given_up_and_no_other(
    linkflap_deployment: Deployment, again: bool
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    for topic in (TOPIC, OTHER):
        make_topic(up, "A", topic, partitions=1)
        write_to(up, topic, 3)
    mirror = shadow(up, "A->B")
    mirror.start()
    drained(mirror)
    admin = admin_of(up, "B")
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    if again:
        eventually(
            "the topic to be gone", lambda: TOPIC not in admin.list_topics(timeout=60).topics
        )
        admin.create_topics(
            [NewTopic(TOPIC, 1, replica_assignment=[[1]], config={"retention.ms": "123456"})]
        )[TOPIC].result(20)
    # It may see the deletion before the topic is recreated, or only then.
    eventually(
        "the shadow to notice", lambda: f"topic {TOPIC} was deleted " in mirror.log.read_text()
    )
    for topic in (TOPIC, OTHER):
        write_to(up, topic, 2)
    all_end(up, "B", {(OTHER, 0): 5})
    mirror.crash()
    mirror.restart()
    write_to(up, OTHER, 1)
    all_end(up, "B", {(OTHER, 0): 6})
    assert mirror.lag() == 5, "what is given up is not mirrored"
    if again:
        assert own_write(b) == 0
        assert configs_of(up, "B")["retention.ms"] == "123456"
    mirror.stop()
    assert mirror.promotion() == {(TOPIC, 0): 0, (OTHER, 0): 6}
    (event,) = [data for kind, _, data in cast(Rows, mirror._recorder) if kind == "topic-given-up"]
    assert event["topic"] == TOPIC
    assert (
        "the destination of A->B: what was mirrored of it is gone, and nothing more is mirrored"
        in str(event["reason"])
    )
    assert_equal(up, "A", "B", [(OTHER, 0)])
    assert own_write(b, OTHER) == 6
    if again:
        assert ends(up.clusters["B"], partitions=[(TOPIC, 0)]) == {(TOPIC, 0): 1}
        assert configs_of(up, "B") == {"retention.ms": "123456"}
    else:
        assert TOPIC not in admin.list_topics(timeout=60).topics
    assert ends(up.clusters["A"], partitions=[(TOPIC, 0)]) == {(TOPIC, 0): 5}
    assert own_write(a) == 5


@pytest.mark.linkflap(topology="A->B")
def test_a_topic_that_cannot_be_made_is_given_up_and_no_other(
    linkflap_deployment: Deployment,
) -> None:
    """A name that another topic has on B by then, and one that B refuses: brokers treat A.o_ther
    and A.o.ther as one name."""
    up = linkflap_deployment
    refused, near = "A.o.ther", "A.o_ther"
    b = up.clusters["B"].bootstrap
    make_topic(up, "A", partitions=1)
    write_to(up, TOPIC, 3)
    mirror = shadow(up, "A->B")
    mirror.start()
    drained(mirror)
    make_topic(up, "B", OTHER, partitions=1, retention_ms=123456)
    make_topic(up, "B", near, partitions=1)
    assert own_write(b, OTHER) == 0
    for topic in (OTHER, refused):
        make_topic(up, "A", topic, partitions=1)
    eventually("both to be given up", lambda: given_up(mirror).keys() == {OTHER, refused})
    assert (
        f"topic {OTHER} exists on the destination of A->B already; remove it there, and it is "
        "copied" == given_up(mirror)[OTHER]
    )
    assert (
        f"topic {refused} could not be created: Topic '{refused}' collides with "
        in given_up(mirror)[refused]
    )
    grow(up, 2)
    eventually(
        "a record in the new partition",
        lambda: own_write(up.clusters["A"].bootstrap, partition=1) == 0,
    )
    all_end(up, "B", {(TOPIC, 0): 3, (TOPIC, 1): 1})
    mirror.crash()
    mirror.restart()
    assert own_write(b, OTHER) == 1
    assert configs_of(up, "B", OTHER) == {"retention.ms": "123456"}
    admin = admin_of(up, "B")
    admin.delete_topics([OTHER])[OTHER].result(20)
    write_to(up, OTHER, 1)
    all_end(up, "B", {(OTHER, 0): 1})
    drained(mirror)
    mirror.stop()
    assert mirror.promotion() == {(TOPIC, 0): 3, (TOPIC, 1): 1, (OTHER, 0): 1}
    assert_equal(up, "A", "B", [(TOPIC, 0), (TOPIC, 1), (OTHER, 0)])
    assert [own_write(b, topic) for topic in (TOPIC, OTHER, near)] == [3, 1, 0]


@pytest.mark.linkflap(topology="A->B")
def test_a_failover_goes_on_without_a_topic_that_was_written_down_and_never_made(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = linkflap_deployment
    make_topic(up, "A", partitions=1)
    write_to(up, TOPIC, 3)
    mirror = shadow(up, "A->B")
    mirror.__class__ = Shadowed  # one that tells its step
    assert isinstance(mirror, Shadowed)
    mirror.start()
    drained(mirror)
    mirror.crash()
    make_topic(up, "A", OTHER, partitions=1)
    monkeypatch.setenv(PAUSE_AT, "noted")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(mirror.restart)
        mirror.come_to("noted")
        mirror.crash()
        with pytest.raises(SetupError, match="ended"):
            starting.result(60)
    monkeypatch.delenv(PAUSE_AT)
    assert not mirror.notes().topics[OTHER].destination_id
    # else the shadow that fails over may create the topic before
    up.clusters["A"].brokers[1].kill()
    mirror.stop()
    assert mirror.promotion() == {(TOPIC, 0): 3}
    assert OTHER not in admin_of(up, "B").list_topics(timeout=60).topics
    assert configs_of(up, "B") == {}
    assert own_write(up.clusters["B"].bootstrap) == 3
    assert mirror._left().keys() == {TOPIC}, "a mirror back takes over what was mirrored"


# Configs of mirrored topics: those of the home, and those that the destination does not
# support.


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

        eventually("configs to be taken in", taken_in)
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
    eventually("A to take writes", lambda: own_write(up.clusters["A"].bootstrap, acks="all") == 3)
