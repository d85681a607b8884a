"""Log end offsets, requested by a client that knew the partitions' leaders before they moved."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, bounds, quiet

pytestmark = pytest.mark.nightly
TOPIC_PARTITION = ("t", 0)


@pytest.mark.linkflap(topology="A:3->B")
def test_a_client_that_is_kept_asks_whoever_leads(linkflap_deployment: Deployment) -> None:
    cluster = linkflap_deployment.clusters["A"]
    kept, other = (AdminClient(quiet(cluster.bootstrap)) for _ in range(2))
    kept.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2, 3]])])["t"].result(60)

    def led_by(wanted: list[int]) -> None:
        def leader() -> int:
            return other.list_topics("t", timeout=60).topics["t"].partitions[0].leader

        until(
            lambda: leader() in wanted,
            within=60,
            every=0.1,
            what=f"one of {wanted} to lead",
            state=leader,
        )

    def answered() -> None:
        until(
            lambda: (
                answered_bounds(kept, [TOPIC_PARTITION], "high", within=5) == {TOPIC_PARTITION: 0}
            ),
            within=60,
            what="the end",
        )
        assert bounds(kept, [TOPIC_PARTITION], "stable", within=20) == {TOPIC_PARTITION: 0}

    led_by([1])
    answered()
    cluster.brokers[1].kill()
    led_by([2, 3])
    answered()
    cluster.brokers[1].start()
    led_by([1])
    answered()
    for broker in cluster.brokers.values():
        broker.kill()
    assert answered_bounds(kept, [TOPIC_PARTITION], "high", within=1) == {}
