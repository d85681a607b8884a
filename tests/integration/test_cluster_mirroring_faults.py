"""The effects of admin verbs and of a lost coordinator on Cluster Mirroring, on a build; skipped if
none is configured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Producer

from linkflap.chaos.faults import FAULTS
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.cluster_mirroring.mirror import ClusterMirror
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.protocols import Bite, Deployment, World
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Option
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.wire.offsets import quiet
from linkflap.topologies import parse
from tests.integration.test_cluster_mirroring import LIBS, TOPIC, pytestmark

__all__ = ["pytestmark"]


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
        played = FAULTS[fault](spec, cast(World, world))
        try:
            played.inject()
            self.write()
            bitten.append(played.bite())
        finally:
            checked = played.heal()
        return checked

    def catches_up(self) -> None:
        self.write()
        until(lambda: self.mirror.lag() == 0, within=90, what="the mirror to catch up")


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
