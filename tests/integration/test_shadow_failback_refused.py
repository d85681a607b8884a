"""Refused failbacks: another topic has that name, or a log has lost mirrored records; those are
mirrored back by epoch."""

from __future__ import annotations

import shutil
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests import shadows
from tests.events import Rows as Events
from tests.failback import away, led_by_its_own, revived, same_everywhere, truncations
from tests.shadows import SAME, TOPIC, Writer, drained, ends, headers, own_write, shadowed

pytestmark = pytest.mark.linkflap(topology="A->B")


@pytest.mark.nightly
def test_a_topic_that_is_not_the_one_that_was_mirrored_is_refused_and_left_as_it_is(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(2)
    away(linkflap_deployment, mirror)
    revived(a)
    admin = AdminClient(quiet(a.bootstrap))
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    until(
        lambda: TOPIC not in admin.list_topics(timeout=60).topics,
        within=120,
        what="the topic to be gone",
    )
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    until(lambda: own_write(a.bootstrap) == 0, within=120, what="the topic that was made again")
    back = mirror.reversed()
    with pytest.raises(
        InputError,
        match=(
            f"topic {TOPIC} exists on the destination of B->A but is not the one that was mirrored"
        ),
    ):
        back.start()
    assert not truncations(events, "B->A")
    led_by_its_own(a)
    assert own_write(a.bootstrap) == 1
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    until(
        lambda: TOPIC not in admin.list_topics(timeout=60).topics,
        within=120,
        what="the topic to be gone",
    )
    back.restart()  # as the sentence says: it is copied whole
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    assert back.promotion() == ends(b.bootstrap)


@pytest.mark.nightly
def test_a_name_that_was_given_on_both_sides_since_is_refused_before_anything_is_truncated(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    tail = away(linkflap_deployment, mirror, dead=False)
    admins, new = (
        {cluster.name: AdminClient(quiet(cluster.bootstrap)) for cluster in (a, b)},
        "A.new",
    )
    for cluster in (a, b):
        admins[cluster.name].create_topics([NewTopic(new, 1, 1)])[new].result(30)
        assert shadows.own_write(cluster.bootstrap, new) == 0
    back = mirror.reversed()
    with pytest.raises(
        InputError, match=f"topic {new} exists on the destination of B->A already; remove it there"
    ):
        back.start()
    assert not truncations(events, "B->A")
    led_by_its_own(a)
    assert ends(a.bootstrap) == tail
    assert shadows.own_write(a.bootstrap, new) == 1
    admins["A"].delete_topics([new])[new].result(20)
    until(
        lambda: new not in admins["A"].list_topics(timeout=60).topics,
        within=120,
        what="the topic to be gone",
    )
    back.restart()
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    assert back.promotion() == ends(b.bootstrap) | {(new, 0): 1}


@pytest.mark.nightly
def test_a_log_that_has_lost_what_was_mirrored_is_refused_by_offset_and_copied_again_by_epoch(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = shadowed(linkflap_deployment)
    mirror.start()
    Writer(a.bootstrap).write(4)
    away(linkflap_deployment, mirror)
    promoted = mirror.promotion()
    shutil.rmtree(a.brokers[1].log_dir / f"{TOPIC}-0")
    revived(a)
    assert ends(a.bootstrap)[TOPIC, 0] == 0
    with pytest.raises(
        InputError, match=f"{TOPIC}-0 was mirrored up to offset .* differs from offset 0 on"
    ):
        mirror.reversed().start()
    assert not truncations(events, "B->A")
    assert own_write(a.bootstrap) == 0
    cast(Any, mirror).spec = MirrorSpec(kind="shadow", options={"failback_point": "epoch"})
    back = mirror.reversed()
    back.start()
    assert truncations(events, "B->A")[TOPIC, 0] == (0, 1)
    assert truncations(events, "B->A")[TOPIC, 1][0] == promoted[TOPIC, 1]
    drained(back)
    same_everywhere(linkflap_deployment)
    back.stop()
    assert ends(a.bootstrap) == ends(b.bootstrap)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_what_an_unclean_election_lost_at_home_comes_back_by_epoch(
    linkflap_deployment: Deployment,
) -> None:
    """A's brokers restart without the one that had all mirrored records, and elect one that lacks
    some; it is written to."""
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    admin, tp = AdminClient(quiet(a.bootstrap)), (TOPIC, 0)
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=config)])[
        TOPIC
    ].result(60)
    events = Events()
    mirror = make_mirror(
        MirrorSpec(kind="shadow"),
        linkflap_deployment.topology.links[0],
        linkflap_deployment,
        events,
    )
    mirror.start()
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5))
    a.brokers[2].stop()
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5, 10))
    drained(mirror)
    side_by_side(a.brokers[broker].kill for broker in (1, 3))
    mirror.stop()
    assert mirror.promotion() == {tp: 10}
    assert [own_write(b.bootstrap) for _ in range(3)] == [10, 11, 12]
    side_by_side(a.brokers[broker].start for broker in (2, 3))
    until(
        lambda: isinstance(own_write(a.bootstrap), int), within=90, what="an unclean election on A"
    )
    assert headers(a.brokers[2], tp)["base_offset"][:6] == list(range(6))
    refused = mirror.reversed()
    with pytest.raises(
        InputError, match=f"{TOPIC}-0 was mirrored up to offset 10, .* differs from offset 5 on"
    ):
        refused.start()
    assert not truncations(events, "B->A")
    tail = ends(a.bootstrap, partitions=[tp])[tp]
    cast(Any, mirror).spec = MirrorSpec(kind="shadow", options={"failback_point": "epoch"})
    back = mirror.reversed()
    back.start()
    assert truncations(events, "B->A") == {tp: (5, tail)}
    drained(back)
    wanted = headers(b.brokers[1], tp)
    a.brokers[1].start()  # with the lost records, in the epoch in which they were written

    def same() -> bool:
        return all(
            [headers(a.brokers[broker], tp)[key] for key in SAME] == [wanted[key] for key in SAME]
            for broker in (1, 2)
        )

    until(same, within=60, every=0.2, what="both replicas of A to have what B has")
    back.stop()
    assert back.promotion() == {tp: 13}
    until(lambda: own_write(a.bootstrap) == 13, within=60, what="A to take writes")
    epochs = headers(a.brokers[2], tp)["leader_epoch"]
    assert epochs == sorted(epochs)
    assert epochs[13] > epochs[5] > epochs[4], "an epoch and an offset name one batch"
