"""Group offsets that a shadow syncs: which groups, up to which offset, and when not."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.shadows import TOPIC, Writer, drained, ends, make_topic, shadow

pytestmark = pytest.mark.linkflap(topology="A->B")


def commit(bootstrap: str, group: str, offset: int, partition: int = 0) -> None:
    consumer = Consumer(quiet(bootstrap) | {"group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    consumer.close()


class Groups:
    """The committed offsets on a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._admin = bootstrap, AdminClient(quiet(bootstrap))

    def names(self) -> set[str]:
        # A client that has known the shadow waits for it for a while after it has left: a new one
        # gets the current brokers.
        admin = AdminClient(quiet(self._bootstrap))
        return {
            group.group_id
            for group in admin.list_consumer_groups(request_timeout=60).result(90).valid
        }

    def offset(self, group: str, partition: int = 0) -> int | None:
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=60
        )[group]
        return next(
            (p.offset for p in asked.result(20).topic_partitions if p.partition == partition), None
        )

    def come_to(self, group: str, offset: int) -> None:
        until(
            lambda: self.offset(group) == offset,
            within=60,
            every=0.1,
            what=group,
            state=lambda: self.offset(group),
        )


def test_groups_are_filtered_clamped_left_alone_while_active_and_no_more_synced_after_a_failover(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    make_topic(up, "A")
    writer = Writer(a)
    mirror = shadow(up, "A->B", groups="app-.*")
    mirror.start()
    writer.write(6)
    drained(mirror)
    here, end = Groups(b), ends(up.clusters["B"])[TOPIC, 0]

    live = Consumer(
        quiet(b)
        | {"group.id": "app-live", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    live.subscribe([TOPIC])
    until(lambda: live.consume(1, 0.5), within=60, what="a member of app-live to read the mirror")
    live.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    commit(a, "app-live", 20)
    commit(a, "other", 20)
    commit(a, "app-ahead", 10_000)  # a mirror that is behind looks like this
    commit(a, "app-plain", 30)
    here.come_to("app-plain", 30)
    here.come_to("app-ahead", end)
    commit(a, "app-plain", 25)  # back again: by then the others have been looked at once more
    here.come_to("app-plain", 25)
    assert here.offset("app-live") == 3
    assert "other" not in here.names()
    until(
        lambda: "group app-live is not synced: it is " in mirror.log.read_text(),
        within=60,
        what="it to be reported",
    )
    live.close()
    here.come_to("app-live", 20)

    admin, begin = AdminClient(quiet(a)), TopicPartition(TOPIC, 0, 40)
    admin.delete_records([begin])[begin].result(20)
    here.come_to("app-plain", 40)  # B's log start
    mirror.stop()
    commit(a, "app-plain", 50)
    commit(a, "app-new", 50)
    assert not mirror.alive
    assert here.offset("app-plain") == 40
    assert "app-new" not in here.names()
    assert here.offset("app-ahead") == end


@pytest.mark.nightly
def test_a_mirror_back_is_there_when_groups_are_synced_whose_members_died_with_the_cluster(
    linkflap_deployment: Deployment,
) -> None:
    """A, alive again, keeps its dead reader as a member until the session ends; a failback before
    that would make the group replay."""
    up = linkflap_deployment
    a, b = up.clusters["A"], up.clusters["B"]
    make_topic(up, "A")
    writer = Writer(a.bootstrap)
    mirror = shadow(up, "A->B")
    mirror.start()
    writer.write(3)
    settings = {
        "group.id": "app",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 20_000,
    }
    reader = Consumer(quiet(a.bootstrap) | settings)
    reader.subscribe([TOPIC])
    until(lambda: reader.consume(1, 0.5), within=60, what="a member of app to read A")
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    drained(mirror)
    Groups(b.bootstrap).come_to("app", 7)
    a.brokers[1].kill()
    reader.close()  # it can tell nobody
    mirror.stop()
    end = ends(up.clusters["B"])[TOPIC, 0]
    commit(b.bootstrap, "app", end)
    a.brokers[1].start()
    back = mirror.reversed()
    back.start()
    assert Groups(a.bootstrap).offset("app") == end
    back.stop()
    assert back.notes().unsynced == {}
    assert Groups(a.bootstrap).offset("app") == end
