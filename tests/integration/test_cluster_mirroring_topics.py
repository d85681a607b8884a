"""Topics, their settings and ACLs, and the mirror's own records, on a build of Cluster Mirroring;
skipped if none is configured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import KafkaException
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

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.cluster_mirroring.admin import MIRRORING
from linkflap.harness.mirrors.cluster_mirroring.comparison import (
    acls_of,
    agrees,
    awaited,
    settings_of,
)
from linkflap.harness.mirrors.cluster_mirroring.mirror import ClusterMirror
from linkflap.harness.mirrors.cluster_mirroring.state_topic import differing, ids_of, latest, read
from linkflap.harness.model.events import ComparedTopic
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.wire.offsets import quiet
from linkflap.topologies import parse
from tests.integration.test_cluster_mirroring import LIBS, TOPIC, pytestmark

__all__ = ["pytestmark"]
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


def test_what_an_admin_of_the_destination_changes_is_the_source_s_again(both: Both) -> None:
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
            return settings_of(both.b, [TOPIC])[TOPIC][RETENTION] == "7200000" and not own
        return False

    until(as_before, within=60, what="B's topic to be as A's", every=0.2)
    assert agrees(both.compared())


def test_what_a_mirror_leaves_out_by_its_own_settings_differs(both: Both) -> None:
    """Last, since its mirror syncs less from now on."""
    own = both.mirror._name
    both.mirror._admin.change(own, "mirror.topic.properties.exclude", RETENTION)
    both.mirror._admin.change(own, "mirror.acls.include", "TOPIC;*;READ")

    def gone() -> bool:
        with suppress(KafkaException):
            return len((acls_of(both.b, [TOPIC]) or {TOPIC: ()})[TOPIC]) == 1
        return False

    until(gone, within=60, what="B to have one ACL less", every=0.2)
    alter(both.a, "3600000")
    row = both.compared()
    assert row.differing == {RETENTION: ("3600000", "7200000")}
    assert row.missing == ("deny write to User:linkflap-nobody from *",)
    assert not agrees(row)
