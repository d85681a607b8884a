"""Truncated logs: to the last stable offset at a failover, and after the source's own
truncation."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, quiet
from tests.events import Rows
from tests.shadows import SAME, TOPIC, drained, ends, headers, own_write, shadowed

pytestmark = pytest.mark.linkflap(topology="A->B")


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["truncate-once", "truncate-stable"])
def test_truncation_goes_back_to_the_last_stable_offset(
    linkflap_deployment: Deployment, rule: str
) -> None:
    """X begins before Y, and Y commits before X does: truncated at X's beginning the log has no
    marker of Y, and Y is open."""
    a, b = (linkflap_deployment.clusters[name].bootstrap for name in "AB")
    mirror, _ = shadowed(linkflap_deployment, open_transactions=rule)
    mirror.start()
    y, x = (Producer(quiet(a) | {"transactional.id": name}) for name in "yx")
    for producer in (y, x):
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(TOPIC, b"begun", partition=0)  # y at offset 0, x at 1
        producer.flush(60)
    y.commit_transaction(60)
    drained(mirror)
    mirror.stop()
    # Y was committed on A. Truncated to 1 it has lost its marker; truncated until nothing is open
    # it is gone.
    assert mirror.promotion()[TOPIC, 0] == (1 if rule == "truncate-once" else 0)
    assert ends(b, "stable")[TOPIC, 0] == 0


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
@pytest.mark.parametrize("epochs", ["rewrite", "keep"])
def test_a_source_that_was_truncated_by_an_unclean_election_is_followed(
    linkflap_deployment: Deployment, epochs: str
) -> None:
    """Records that only the dead leader had are truncated on B too, and A's new records have
    another leader epoch there."""
    a, b = linkflap_deployment.clusters["A"], linkflap_deployment.clusters["B"]
    admin = AdminClient(quiet(a.bootstrap))
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=config)])[
        TOPIC
    ].result(60)
    mirror = make_mirror(
        MirrorSpec(kind="shadow", options={"leader_epochs": epochs}),
        linkflap_deployment.topology.links[0],
        linkflap_deployment,
        Rows(),
    )
    tp = (TOPIC, 0)
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5))
    mirror.start()
    drained(mirror)
    a.brokers[2].stop()
    assert [own_write(a.bootstrap) for _ in range(5)] == list(range(5, 10))
    drained(mirror)
    a.brokers[1].kill()
    a.brokers[2].start()
    until(lambda: own_write(a.bootstrap) == 5, within=90, what="an unclean election on A")
    reaching = AdminClient(quiet(b.bootstrap))
    # While the shadow raises leader epochs the partition has no leader for a moment.
    until(
        lambda: answered_bounds(reaching, [tp], "high", within=5) == {tp: 6},
        within=60,
        what="B to be truncated and to follow",
    )
    drained(mirror)
    there, here = headers(a.brokers[2], tp), headers(b.brokers[1], tp)
    assert [here[name] for name in SAME] == [there[name] for name in SAME]
    assert here["leader_epoch"][5] > here["leader_epoch"][4]
    if epochs == "keep":
        assert here["leader_epoch"] == there["leader_epoch"]
    mirror.stop()
    assert mirror.promotion()[tp] == 6
