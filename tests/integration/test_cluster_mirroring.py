"""Cluster Mirroring (KIP-1279) on a build of its branch; skipped where LINKFLAP_KIP1279_LIBS names
no directory of its jars."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from linkflap.chaos.cases import case_named
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.runner import Benches, run_case
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.cluster_mirroring import mirror as cluster_mirroring
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation, lacking
from linkflap.harness.runtimes.distribution.kafka import look_for
from linkflap.harness.wire.offsets import bounds, quiet
from linkflap.topologies import parse


def _named_build() -> str:
    """The directory that LINKFLAP_KIP1279_LIBS names, or nothing. Fails the module if it is no
    build of KIP-1279: each test would otherwise fail with a sentence that does not name it."""
    named = os.environ.get("LINKFLAP_KIP1279_LIBS", "")
    if not named:
        return ""
    try:
        build = look_for(named)
        wrong = "" if build and generation(build) else f" {lacking(build)}"
    except InputError as error:
        wrong = f": {error}"
    if wrong:
        pytest.fail(f"LINKFLAP_KIP1279_LIBS={named}{wrong}", pytrace=False)
    return named


LIBS = _named_build()
pytestmark = [
    pytest.mark.skipif(
        not LIBS,
        reason="LINKFLAP_KIP1279_LIBS names no build of KIP-1279 (docs/cluster-mirroring.md)",
    ),
]
TOPIC = "A.orders"
READ_ONLY_TOPIC = 134
PARTITIONS = [(TOPIC, number) for number in range(3)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A and three brokers of B, all of the build, with a mirror that is not started; and the events
    so far."""
    events = EventLog(tmp_path / "events.jsonl")
    topology = parse(f'A@"{LIBS}"->B@"{LIBS}":3')
    try:
        with runtime("process")(topology, folder=tmp_path, recorder=events) as up:
            up.clusters["A"].create_topic(TOPIC, partitions=3)
            mirror = make_mirror(
                MirrorSpec(kind="cluster-mirroring"), topology.links[0], up, events
            )
            yield SimpleNamespace(
                a=up.clusters["A"],
                b=up.clusters["B"],
                mirror=mirror,
                events=tmp_path / "events.jsonl",
            )
    finally:
        events.close()


def write(cluster: Cluster, partition: int) -> int:
    """The error code of one record to a partition, 0 where it was acknowledged."""
    codes: list[int] = []
    producer = Producer(
        quiet(cluster.bootstrap)
        | {"enable.idempotence": False, "acks": "all", "message.timeout.ms": 60_000}
    )
    producer.produce(
        TOPIC,
        b"x",
        partition=partition,
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    until(
        lambda: producer.flush(0.1) == 0 and codes,
        within=90,
        what=f"an answer to a write to partition {partition}",
    )
    return codes[0]


def ends(cluster: Cluster) -> dict[tuple[str, int], int]:
    return bounds(AdminClient(quiet(cluster.bootstrap)), PARTITIONS, "high", within=30)


def of_kind(pair: SimpleNamespace, kind: str) -> list[Any]:
    return [
        row["data"]
        for row in map(json.loads, pair.events.read_text().splitlines())
        if row["kind"] == kind
    ]


def test_what_is_mirrored_is_read_only_on_every_broker_until_it_is_promoted(
    pair: SimpleNamespace,
) -> None:
    assert [write(pair.a, number) for number in range(3)] == [0, 0, 0]
    pair.mirror.start()
    until(lambda: pair.mirror.lag() == 0, within=90, what="the mirror to catch up")
    leaders = {
        p.leader
        for p in AdminClient(quiet(pair.b.bootstrap))
        .list_topics(TOPIC, timeout=60)
        .topics[TOPIC]
        .partitions.values()
    }
    assert leaders == set(pair.b.brokers), "each broker leads one of them"
    assert [write(pair.b, number) for number in range(3)] == [READ_ONLY_TOPIC] * 3
    assert ends(pair.b) == dict.fromkeys(PARTITIONS, 1)
    pair.mirror.fail_over("planned")
    assert pair.mirror.promotion() == dict.fromkeys(PARTITIONS, 1), "the reset is B's own"
    assert [write(pair.b, number) for number in range(3)] == [0, 0, 0]
    assert not pair.mirror.alive


def test_a_failover_from_a_dead_source_is_refused_and_nothing_is_promoted(
    pair: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_mirroring, "STOP_SECONDS", 15.0)
    pair.mirror.start()
    for broker in pair.a.brokers.values():
        broker.kill()
    until(lambda: "FAILED" in pair.mirror._states(), within=90, what="partitions to be FAILED")
    with pytest.raises(
        FaultError, match=r"refused for 15 s with INVALID_CLUSTER_MIRROR_STATES \(145\)"
    ):
        pair.mirror.fail_over("forced")
    assert [refused["code"] for refused in of_kind(pair, "failover-refused")] == [145]
    assert write(pair.b, 0) == READ_ONLY_TOPIC
    assert pair.mirror.promotion() == {}


def test_there_and_back_with_what_was_never_mirrored_truncated(pair: SimpleNamespace) -> None:
    assert write(pair.a, 0) == 0
    pair.mirror.start()
    until(lambda: pair.mirror.lag() == 0, within=90, what="the mirror to catch up")
    pair.mirror.fail_over("planned")
    assert (write(pair.b, 0), write(pair.a, 0)) == (0, 0), "both are writable: their logs part at 1"
    back = pair.mirror.reversed()
    back.start()
    until(lambda: back.lag() == 0, within=90, what="the mirror back to catch up")
    noted = sorted(
        (found["partition"], found["offset"], found["end"]) for found in of_kind(pair, "truncation")
    )
    assert noted == [(0, 1, 2), (1, 0, 0), (2, 0, 0)]
    assert ends(pair.a)[TOPIC, 0] == ends(pair.b)[TOPIC, 0] == 3, (
        "a record, the reset, and B's record"
    )
    back.fail_over("planned")
    assert write(pair.a, 0) == 0


def test_verbs_that_the_kip_allows_are_answered_and_take_effect_as_its_model_says(
    tmp_path: Path,
) -> None:
    """The case's control; what it finds in other states is the build's own, and is in
    docs/findings."""
    with Benches(tmp_path / "runs") as benches:
        result = run_case(
            case_named("KIP-1279-verbs"),
            Variant(kafka=LIBS, client="java"),
            count=1,
            benches=benches,
        )
    assert (result.runs, result.controls) == (1, 1), (result.words, result.failures)
