"""Failback on real brokers: the reverse mirror takes over, truncates what was never mirrored, and
the logs are equal; failbacks that are refused, killed or stopped."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.journal import PAUSE_AT
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.protocols import Deployment, Mirror
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.wire.librdkafka import quiet
from tests import shadows
from tests.events import Rows as Events
from tests.shadow_sides import (
    Shadowed,
    Sides,
    away,
    forgotten,
    led_by_its_own,
    revived,
    same_everywhere,
    truncations,
)
from tests.shadows import (
    SAME,
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    deleted,
    drained,
    ends,
    headers,
    own_write,
    shadowed,
)
from tests.waiting import eventually

pytestmark = pytest.mark.linkflap(topology="A->B")


def mirrored(up: Deployment, transactions: int) -> tuple[ShadowMirror, Events]:
    """A shadow that runs, and A with so many transactions; (mirror, events)."""
    mirror, events = shadowed(up)
    mirror.start()
    Writer(up.clusters["A"].bootstrap).write(transactions)
    return mirror, events


def stopped_when_equal(up: Deployment, mirror: Mirror) -> None:
    drained(mirror)
    same_everywhere(up)
    mirror.stop()


def test_a_round_trip(linkflap_deployment: Deployment) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 6)
    with pytest.raises(
        InputError,
        match="the mirror of A->B cannot be reversed before it has failed over; stop it first",
    ):
        mirror.reversed()
    tail = away(linkflap_deployment, mirror)
    promoted = mirror.promotion()
    assert all(promoted[tp] < tail[tp] for tp in TOPIC_PARTITIONS)
    revived(a)
    assert ends(a.bootstrap) == tail
    back = mirror.reversed()
    back.start()
    truncated = truncations(events, "B->A")
    assert {tp: where for tp, (where, _) in truncated.items()} == promoted
    assert all(truncated[tp][1] >= tail[tp] for tp in TOPIC_PARTITIONS)
    assert own_write(a.bootstrap) == "POLICY_VIOLATION"
    Writer(b.bootstrap).write(2)
    stopped_when_equal(linkflap_deployment, back)
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)
    assert back.promotion() == ends(b.bootstrap) == ends(a.bootstrap) == ends(a.bootstrap, "stable")
    assert isinstance(own_write(a.bootstrap), int)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rounds", "options"),
    [
        (3, {}),
        (3, {"failback_point": "epoch"}),
        (1, {"leader_epochs": "keep", "producer_ids": "keep"}),
    ],
    ids=["offset", "epoch", "keep"],
)
def test_rounds_of_ping_pong(
    linkflap_deployment: Deployment, rounds: int, options: dict[str, str]
) -> None:
    mirror, events = shadowed(linkflap_deployment, **options)
    mirror.start()
    for _ in range(2 * rounds):
        here = linkflap_deployment.clusters[mirror.link.source]
        Writer(here.bootstrap).write(3)
        tail = away(linkflap_deployment, mirror)
        promoted = mirror.promotion()
        revived(here)
        mirror = mirror.reversed()
        mirror.start()
        truncated = truncations(events, mirror.link.name)
        assert {tp: where for tp, (where, _) in truncated.items()} == promoted
        assert all(truncated[tp][1] >= tail[tp] > promoted[tp] for tp in TOPIC_PARTITIONS)
        drained(mirror)
        same_everywhere(linkflap_deployment)
    mirror.stop()
    led_by_its_own(linkflap_deployment.clusters["A"])
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_a_broker_that_was_down_during_the_failback_loses_its_tail_when_it_comes_back(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, _ = mirrored(linkflap_deployment, 4)
    # It dies first, or brokers that were killed beside it would wait for it to lead (KIP-966).
    away(linkflap_deployment, mirror, first=3)
    revived(a, without=(3,))
    back = mirror.reversed()
    back.start()
    drained(back)
    same_everywhere(linkflap_deployment)
    a.brokers[3].start()
    Writer(b.bootstrap).write(2)

    def caught_up() -> bool:
        return all(
            headers(a.brokers[3], tp)["crc"] == headers(b.brokers[1], tp)["crc"]
            for tp in TOPIC_PARTITIONS
        )

    eventually("broker 3 to have what the others have", caught_up)
    stopped_when_equal(linkflap_deployment, back)
    led_by_its_own(a, replicas=3)
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A@3.9.2->B@4.1.2")
def test_releases_of_different_years(linkflap_deployment: Deployment) -> None:
    a = linkflap_deployment.clusters["A"]
    mirror, _ = mirrored(linkflap_deployment, 4)
    away(linkflap_deployment, mirror)
    revived(a)
    back = mirror.reversed()
    back.start()
    away(linkflap_deployment, back, dead=False)
    led_by_its_own(a)
    forth = back.reversed()  # now B's log is cut: it was written to after the link was
    forth.start()
    stopped_when_equal(linkflap_deployment, forth)


@pytest.mark.nightly
def test_transactions_that_the_dead_left_open_are_ended_after_the_failback(
    linkflap_deployment: Deployment,
) -> None:
    """A's coordinator owes an ABORT to partitions that the shadow leads: it waits until brokers
    lead them, and clients wait with it."""
    a = linkflap_deployment.clusters["A"]
    mirror, _ = shadowed(linkflap_deployment)
    mirror.start()
    left = Producer(
        quiet(a.bootstrap) | {"transactional.id": "left", "transaction.timeout.ms": 600_000}
    )
    left.init_transactions(60)
    Writer(a.bootstrap).write(2)
    left.begin_transaction()
    left.produce(TOPIC, b"open", partition=0)
    left.flush(60)
    away(linkflap_deployment, mirror)
    revived(a)
    back = mirror.reversed()
    back.start()
    drained(back)
    before = ends(linkflap_deployment.clusters["B"].bootstrap)
    late = Producer(quiet(a.bootstrap) | {"transactional.id": "left"})
    # The new incarnation makes the coordinator abort the old one's open transaction, which it
    # cannot do yet.
    with pytest.raises(KafkaException):
        late.init_transactions(8)
    assert ends(a.bootstrap) == before
    same_everywhere(linkflap_deployment)
    back.stop()
    led_by_its_own(a)
    eventually("the coordinator to end what was left open", lambda: _initialised(late))
    late.begin_transaction()
    late.produce(TOPIC, b"after", partition=0)
    late.commit_transaction(60)
    assert ends(a.bootstrap) == ends(a.bootstrap, "stable")


def _initialised(producer: Producer) -> bool:
    try:
        producer.init_transactions(5)
    except KafkaException:
        return False
    return True


# Refused failbacks: another topic has that name, or a log has lost mirrored records; those are
# mirrored back by epoch.


@pytest.mark.nightly
def test_a_topic_that_is_not_the_one_that_was_mirrored_is_refused_and_left_as_it_is(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 2)
    away(linkflap_deployment, mirror)
    revived(a)
    admin = AdminClient(quiet(a.bootstrap))
    deleted(admin, TOPIC)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    eventually("the topic that was made again", lambda: own_write(a.bootstrap) == 0)
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
    deleted(admin, TOPIC)
    back.restart()  # as the sentence says: it is copied whole
    stopped_when_equal(linkflap_deployment, back)
    assert back.promotion() == ends(b.bootstrap)


@pytest.mark.nightly
def test_a_name_that_was_given_on_both_sides_since_is_refused_before_anything_is_truncated(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 4)
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
    deleted(admins["A"], new)
    back.restart()
    stopped_when_equal(linkflap_deployment, back)
    assert back.promotion() == ends(b.bootstrap) | {(new, 0): 1}


@pytest.mark.nightly
def test_a_log_that_has_lost_what_was_mirrored_is_refused_by_offset_and_copied_again_by_epoch(
    linkflap_deployment: Deployment,
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 4)
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
    stopped_when_equal(linkflap_deployment, back)
    assert ends(a.bootstrap) == ends(b.bootstrap)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A:3->B")
def test_records_that_an_unclean_election_lost_at_home_come_back_by_epoch(
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
    eventually("an unclean election on A", lambda: isinstance(own_write(a.bootstrap), int))
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

    eventually("both replicas of A to have what B has", same)
    back.stop()
    assert back.promotion() == {tp: 13}
    eventually("A to take writes", lambda: own_write(a.bootstrap) == 13)
    epochs = headers(a.brokers[2], tp)["leader_epoch"]
    assert epochs == sorted(epochs)
    assert epochs[13] > epochs[5] > epochs[4], "an epoch and an offset name one batch"


# A failback's takeover that is killed or stopped at a step.


TAKING_OVER = ("planned", "joined", "claimed", "elected", "alone", "truncating", "truncated")
"""Steps of a takeover (failback), in order: other shadows do not reach them."""


@pytest.mark.nightly
def test_a_takeover_that_is_killed_at_every_step_goes_on(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 4)
    away(linkflap_deployment, mirror)
    revived(a)
    tail = ends(a.bootstrap)
    back = cast(Shadowed, mirror.reversed())
    promoted = mirror.promotion()
    back.__class__ = Shadowed  # one that tells its step
    not_truncated = TAKING_OVER[: TAKING_OVER.index("alone")]
    for step in TAKING_OVER:
        monkeypatch.setenv(PAUSE_AT, step)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(back.restart if back.log.exists() else back.start)
            eventually(
                f"the takeover to stand at {step}", cast(Any, lambda s=step: back.step() == s)
            )
            back.crash()
            with pytest.raises(SetupError, match="ended"):
                started.result(60)
        if step in not_truncated:
            # Nothing is lost before the shadow leads alone: A is as it was.
            assert all(ends(a.bootstrap)[tp] >= tail[tp] for tp in TOPIC_PARTITIONS)
        else:
            assert not isinstance(own_write(a.bootstrap, timeout_ms=2000), int)
    monkeypatch.delenv(PAUSE_AT)
    back.restart()
    assert {tp: where for tp, (where, _) in truncations(events, "B->A").items()} == promoted
    Writer(b.bootstrap).write(2)
    stopped_when_equal(linkflap_deployment, back)
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["stall", "disconnect"])
@pytest.mark.parametrize("step", TAKING_OVER)
def test_a_takeover_that_is_stopped_at_a_step_goes_on(
    linkflap_deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    step: str,
    how: str,
) -> None:
    """Past the end of its session: when it comes back, A has taken back the partitions that the
    shadow did not lead alone."""
    a, b = (linkflap_deployment.clusters[name] for name in "AB")
    mirror, events = mirrored(linkflap_deployment, 4)
    away(linkflap_deployment, mirror)
    revived(a)
    tail, promoted = ends(a.bootstrap), mirror.promotion()
    back = cast(Shadowed, mirror.reversed())
    back.__class__ = Shadowed
    plain = back.plain()
    back.sides = Sides(linkflap_deployment, plain, tmp_path, destination="A")
    back_to_b = linkflap_deployment.links["B->A"]
    monkeypatch.setenv(PAUSE_AT, step)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(back.start)
        eventually(f"the takeover to stand at {step}", lambda: back.step() == step)
        if how == "stall":
            back.pause()
        else:
            back.sides.cut()
            back_to_b.cut()
        eventually("its session to end", forgotten(a, plain.broker_id))
        if step in TAKING_OVER[: TAKING_OVER.index("alone")]:
            assert all(ends(a.bootstrap)[tp] >= tail[tp] for tp in TOPIC_PARTITIONS)
        else:
            assert not isinstance(own_write(a.bootstrap, timeout_ms=2000), int)
        monkeypatch.delenv(PAUSE_AT)
        if how == "stall":
            back.resume()
        else:
            back.sides.restore()
            back_to_b.restore()
        back.go_on()
        started.result(120)
    assert {tp: where for tp, (where, _) in truncations(events, "B->A").items()} == promoted
    Writer(b.bootstrap).write(2)
    stopped_when_equal(linkflap_deployment, back)
    led_by_its_own(a)
    same_everywhere(linkflap_deployment)
