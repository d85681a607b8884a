"""Producers of the destination that are older than the mirror: a jump of producer ids does not
affect them."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.protocols import Deployment, Mirror, Recorder
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import until
from linkflap.harness.workloads import library, librdkafka, process, worker
from linkflap.harness.workloads.protocol import Channel, Command
from linkflap.recording import run as recording
from linkflap.spark_verify.verdict.judge import Judgement
from tests.consequences import (
    BEYOND,
    PLANNED,
    READERS,
    SELDOM,
    Seen,
    assert_lost_in_silence,
    judged,
    run_of,
)

pytestmark = pytest.mark.spark
OLDER = run_of("older", SELDOM, *READERS, schedule=(PLANNED,), duration=10.0, minimums=BEYOND)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Judgement:
    """A run whose clients have had producers on B since before the mirror, as applications on both
    clusters have."""
    waiting: list[Standby] = []

    def make(
        spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
    ) -> Mirror:
        mirror = cast(Any, make_mirror(spec, link, deployment, recorder))
        start = mirror.start

        def start_later() -> None:
            waiting.extend(
                Standby(deployment.clusters["B"].bootstrap) for _ in range(SELDOM.clients)
            )
            start()

        mirror.start = start_later
        return cast(Mirror, mirror)

    def taken_over(config: dict[str, Any]) -> Producer:
        chosen = next(
            (one for one in waiting if one.bootstrap == config["bootstrap.servers"]), None
        )
        if chosen is None:
            return Producer(config)
        waiting.remove(chosen)
        chosen.hears = config["stats_cb"]
        return chosen.producer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "make_mirror", make)
        patch.setattr(library, "Producer", taken_over)
        patch.setattr(worker, "spawn", in_thread)
        return judged((OLDER,), tmp_path_factory.mktemp("consequences-older"), spark)[OLDER.name]


class InThread:
    """A stand-in for a client process, for clients that have to be in this one."""

    def __init__(self, end: socket.socket) -> None:
        self.pid = 0
        self._thread = threading.Thread(
            target=process.serve, args=(Channel(end, Command),), daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def poll(self) -> int | None:
        return None if self.alive else 0

    def kill(self) -> None: ...


def in_thread(name: str, end: socket.socket, *, folder: Path, log: Path) -> InThread:
    return InThread(end.dup())


class Standby:
    """A producer that has had its id for long; its new owner gets its reports."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, answers = bootstrap, cast(list[str], [])
        self.hears = answers.append
        config = librdkafka.producer_config(bootstrap, "", timeout=10.0, compression="none")
        own = {
            "statistics.interval.ms": cast(Any, library).STATISTICS_MS,
            "logger": cast(Any, library).QUIET,
        }
        self.producer = Producer({**config, **own, "stats_cb": lambda text: self.hears(text)})

        def known() -> bool:
            self.producer.poll(0.1)
            return (
                bool(answers) and json.loads(answers[-1]).get("eos", {}).get("producer_id", -1) >= 0
            )

        until(known, within=60, what="a producer to have its id")


@pytest.mark.nightly
def test_a_jump_does_not_reach_producers_of_the_destination_that_are_older_than_the_mirror(
    older: Judgement,
) -> None:
    """Their ids were allocated before the jump: their first records are acknowledged and lost."""
    seen = Seen(older)
    assert_lost_in_silence(seen)
    assert {"ghost-ack", "lost-write", "producer-id-collision"} <= seen.kinds()
    for anomaly in seen.of_kind("producer-id-collision"):
        assert anomaly.evidence["producer_id"] in range(SELDOM.clients)
