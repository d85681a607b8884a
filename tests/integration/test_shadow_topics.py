"""Topics that changed, or cannot be created: deleted, recreated, with other configs at home, or
with a name that is taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from confluent_kafka.admin import (
    NewTopic,
)

from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT
from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from tests.events import Rows
from tests.mirrored_topics import OTHER, admin_of, configs_of, given_up, grow, write_to
from tests.shadow_sides import Shadowed
from tests.shadows import TOPIC, all_end, assert_equal, drained, ends, make_topic, own_write, shadow


@pytest.mark.linkflap(topology="A->B")
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
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
        until(
            lambda: TOPIC not in admin.list_topics(timeout=60).topics,
            within=60,
            what="the topic to be gone",
        )
        admin.create_topics(
            [NewTopic(TOPIC, 1, replica_assignment=[[1]], config={"retention.ms": "123456"})]
        )[TOPIC].result(20)
    # It may see the deletion before the topic is recreated, or only then.
    until(
        lambda: f"topic {TOPIC} was deleted " in mirror.log.read_text(),
        within=60,
        what="the shadow to notice",
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
    until(
        lambda: given_up(mirror).keys() == {OTHER, refused},
        within=60,
        every=0.2,
        what="both to be given up",
    )
    assert (
        f"topic {OTHER} exists on the destination of A->B already; remove it there, and it is "
        "copied" == given_up(mirror)[OTHER]
    )
    assert (
        f"topic {refused} could not be created: Topic '{refused}' collides with "
        in given_up(mirror)[refused]
    )
    grow(up, 2)
    until(
        lambda: own_write(up.clusters["A"].bootstrap, partition=1) == 0,
        within=60,
        what="a record in the new partition",
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
        until(
            lambda: mirror.step() == "noted",
            within=60,
            what="the shadow at noted",
            state=mirror._state,
        )
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
