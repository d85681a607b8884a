"""Cluster Mirroring (KIP-1279) on a build of its branch: its mirrors, topics and ACLs, admin verbs
and a lost coordinator; skipped where LINKFLAP_KIP1279_LIBS names no directory of its jars."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from linkflap.chaos.cases import case_named
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.runner import Benches, run_case
from linkflap.chaos.faults import FAULTS
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.cluster_mirroring.admin import MIRRORING
from linkflap.harness.mirrors.cluster_mirroring.comparison import acls_of, agrees, awaited
from linkflap.harness.mirrors.cluster_mirroring.mirror import ClusterMirror
from linkflap.harness.mirrors.cluster_mirroring.state_topic import differing, ids_of, latest, read
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.events import ComparedTopic
from linkflap.harness.model.protocols import Bite, Cluster, Deployment, FaultWorld
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Option
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation, lacking
from linkflap.harness.runtimes.distribution.kafka import look_for
from linkflap.harness.wire.librdkafka import bounds, quiet, settings_on_topics
from linkflap.topologies import parse
from tests.waiting import eventually


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
pytestmark = pytest.mark.skipif(
    not LIBS, reason="LINKFLAP_KIP1279_LIBS names no build of KIP-1279 (docs/cluster-mirroring.md)"
)


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
    eventually(
        f"an answer to a write to partition {partition}", lambda: producer.flush(0.1) == 0 and codes
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


def test_mirrored_topic_is_read_only_on_every_broker_until_its_promotion(
    pair: SimpleNamespace,
) -> None:
    assert [write(pair.a, number) for number in range(3)] == [0, 0, 0]
    pair.mirror.start()
    eventually("the mirror to catch up", lambda: pair.mirror.lag() == 0)
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


def test_there_and_back_with_what_was_never_mirrored_truncated(pair: SimpleNamespace) -> None:
    assert write(pair.a, 0) == 0
    pair.mirror.start()
    eventually("the mirror to catch up", lambda: pair.mirror.lag() == 0)
    pair.mirror.fail_over("planned")
    assert (write(pair.b, 0), write(pair.a, 0)) == (0, 0), "both are writable: their logs part at 1"
    back = pair.mirror.reversed()
    back.start()
    eventually("the mirror back to catch up", lambda: back.lag() == 0)
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


# Topics, their settings and ACLs, and the mirror's own records, on a build of Cluster
# Mirroring; skipped if none is configured.


RETENTION = "retention.ms"
OWN = "User:of-b-alone"


@dataclass
class Both:
    """Admins of A and B, and the mirror between them."""

    a: AdminClient
    b: AdminClient
    mirror: ClusterMirror

    def compared(self) -> ComparedTopic:
        found = awaited("A->B", self.a, self.b, ("A",), self.mirror.disagreeing)
        assert found is not None
        (row,) = found.rows
        return row


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("topics")
    log, topology = EventLog(folder / "events.jsonl"), parse(f'A@"{LIBS}"->B@"{LIBS}"')
    try:
        with runtime("process")(topology, folder=folder, recorder=log) as up:
            up.clusters["A"].create_topic(TOPIC, partitions=2)
            spec = MirrorSpec(kind="cluster-mirroring")
            mirror = cast(ClusterMirror, make_mirror(spec, topology.links[0], up, log))
            mirror.start()
            a, b = (AdminClient(quiet(up.clusters[name].bootstrap)) for name in "AB")
            yield Both(a=a, b=b, mirror=mirror)
    finally:
        log.close()


def alter(admin: AdminClient, value: str) -> None:
    entry = ConfigEntry(RETENTION, value, incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([topic]).values():
        future.result(30)


def test_settings_and_acls_of_the_source_s_topic_are_synced(both: Both) -> None:
    alter(both.a, "7200000")
    row = both.compared()
    assert agrees(row), row
    assert (row.there, row.here, row.acls) == (2, 2, 2)
    assert row.compared >= 1


def test_the_mirror_s_records_are_what_describe_says(both: Both) -> None:
    rows = both.mirror._rows()
    assert {row.state for row in rows} == {MIRRORING}
    found = latest(read(both.mirror._destination.bootstrap))
    assert len(found) == len(rows)
    assert set(found.values()) == {MIRRORING}
    assert both.compared().recorded == ()
    wrong = differing(both.mirror._name, {}, ids_of(both.b, [TOPIC]), rows)
    assert len(wrong[TOPIC]) == 2


def test_change_by_an_admin_of_the_destination_is_undone_by_the_mirror(both: Both) -> None:
    alter(both.a, "7200000")
    alter(both.b, "1234567")
    acl = AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        OWN,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in both.b.create_acls([acl]).values():
        future.result(30)

    def as_before() -> bool:
        with suppress(KafkaException):
            acls = acls_of(both.b, [TOPIC]) or {}
            own = any(OWN in words for words in acls.get(TOPIC, ()))
            return (
                settings_on_topics(both.b, [TOPIC], within=10)[TOPIC][RETENTION] == "7200000"
                and not own
            )
        return False

    eventually("B's topic to be as A's", as_before)
    assert agrees(both.compared())


def test_settings_that_a_mirror_leaves_out_differ(both: Both) -> None:
    """Last, since its mirror syncs less from now on."""
    own = both.mirror._name
    both.mirror._admin.change(own, "mirror.topic.properties.exclude", RETENTION)
    both.mirror._admin.change(own, "mirror.acls.include", "TOPIC;*;READ")

    def gone() -> bool:
        with suppress(KafkaException):
            return len((acls_of(both.b, [TOPIC]) or {TOPIC: ()})[TOPIC]) == 1
        return False

    eventually("B to have one ACL less", gone)
    alter(both.a, "3600000")
    row = both.compared()
    assert row.differing == {RETENTION: ("3600000", "7200000")}
    assert row.missing == ("deny write to User:linkflap-nobody from *",)
    assert not agrees(row)


# The effects of admin verbs and of a lost coordinator on Cluster Mirroring, on a build; skipped
# if none is configured.


@dataclass
class Mirrored:
    """A and B, with a mirror of one topic, and what is recorded."""

    up: Deployment
    mirror: ClusterMirror
    log: EventLog
    events: Path

    def write(self) -> None:
        producer = Producer(quiet(self.up.clusters["A"].bootstrap) | {"acks": "all"})
        for number in range(3):
            producer.produce(TOPIC, b"x", partition=number)
        assert producer.flush(60) == 0

    def play(self, fault: str, target: str, bitten: list[Bite], **options: Option) -> Sequence[str]:
        """Plays a fault; returns what its heal checked. `bitten` has its bite, also if it did not
        bite."""
        spec = FaultSpec(
            id=f"1-{fault}", fault=fault, target=target, at=0, duration=1, options=options
        )
        world = SimpleNamespace(
            deployment=self.up,
            mirrors={"A->B": self.mirror},
            recorder=self.log,
            stopping=False,
            topics={TOPIC: 3},
        )
        played = FAULTS[fault](spec, cast(FaultWorld, world))
        try:
            played.inject()
            self.write()
            bitten.append(played.bite())
        finally:
            checked = played.heal()
        return checked

    def catches_up(self) -> None:
        self.write()
        eventually("the mirror to catch up", lambda: self.mirror.lag() == 0)


@contextmanager
def made(folder: Path, brokers: int) -> Iterator[Mirrored]:
    log, topology = EventLog(folder / "events.jsonl"), parse(f'A@"{LIBS}"->B@"{LIBS}":{brokers}')
    try:
        with runtime("process")(topology, folder=folder, recorder=log) as up:
            up.clusters["A"].create_topic(TOPIC, partitions=3)
            mirror = cast(
                ClusterMirror,
                make_mirror(MirrorSpec(kind="cluster-mirroring"), topology.links[0], up, log),
            )
            mirror.start()
            yield Mirrored(up=up, mirror=mirror, log=log, events=folder / "events.jsonl")
    finally:
        log.close()


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    """B has one broker. With three the build truncates B to offset 0 whenever a partition's
    metadata changes (docs/findings/cluster-mirroring-truncates-to-zero.md)."""
    with made(tmp_path_factory.mktemp("mirrored"), brokers=1) as found:
        yield found


def test_verbs_of_a_mirror_in_use_agree_with_the_model(mirrored: Mirrored) -> None:
    bitten: list[Bite] = []
    checked = mirrored.play("mirror-verbs", "A->B", bitten, steps=8)
    assert bitten[0].bit, bitten[0].measured
    assert checked == ["1 topics are mirrored"]
    mirrored.catches_up()
    (row,) = [
        row["data"]
        for row in map(json.loads, mirrored.events.read_text().splitlines())
        if row["kind"] == "verbs-played"
    ]
    assert len(row["steps"]) == 8
    assert "wrong" not in row, row
    assert "unanswered" not in row, row
    (write,) = row["writes"]
    assert write.endswith("on broker 1 was refused with 134")


def test_a_source_at_other_addresses_is_mirrored_past_proxies_that_are_cut(
    mirrored: Mirrored,
) -> None:
    proxies = mirrored.mirror.source_addresses()
    assert sorted(proxies) == sorted(mirrored.up.links["A->B"].bootstrap.split(","))
    bitten: list[Bite] = []
    checked = mirrored.play("mirror-source-moved", "A->B", bitten)
    assert bitten[0].bit, bitten[0].measured
    assert mirrored.mirror.source_addresses() == proxies
    assert checked[-1] == "3 partitions caught up"
    mirrored.catches_up()


def test_the_coordinator_of_a_mirror_is_lost_and_another_takes_over(tmp_path: Path) -> None:
    """Whether its broker joins the ISR again is up to the build: if not, the fault says so, and
    logs were truncated to offset 0. So is whether the mirror ever catches up."""
    with made(tmp_path, brokers=3) as mirrored:
        coordinator = mirrored.mirror.coordinator()
        assert coordinator in mirrored.up.clusters["B"].brokers
        bitten: list[Bite] = []
        checked, failed = list[str](), ""
        try:
            checked = list(mirrored.play("mirror-coordinator-loss", "B", bitten))
        except FaultError as error:
            failed = str(error)
        if failed:
            assert "to be in the ISR again" in failed
            logs = "".join(
                one.log.read_text() for one in mirrored.up.clusters["B"].brokers.values()
            )
            assert "to offset 0 below high watermark" in logs
        else:
            assert any("in the ISR of all" in line for line in checked)
        (bite,) = bitten
        assert bite.bit, bite.measured
        assert cast(dict[str, object], bite.measured)["lost"] == coordinator
