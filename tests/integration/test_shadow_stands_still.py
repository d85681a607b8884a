"""A shadow that stops copying because brokers silently skip the batches that it serves."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from linkflap.chaos.scenarios.base import default_workloads
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.protocols import Mirror
from linkflap.harness.model.verdict import Verdict
from linkflap.recording import run as recording
from linkflap.report.progress import Progress
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from tests.consequences import PAIR, TOPIC, run_of
from tests.shadows import drained

pytestmark = pytest.mark.spark
STALLED = run_of("stalled", *default_workloads(PAIR, "A"), duration=4.0)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Judgement, str]:
    """A run whose shadow stamps leader epochs that its partitions do not have."""

    def make(*given: Any) -> Mirror:
        mirror = cast(Any, make_mirror(*given))
        start = mirror.start

        def start_and_stall() -> None:
            start()
            stall(mirror, TOPIC, 2)

        mirror.start = start_and_stall
        return cast(Mirror, mirror)

    folder = tmp_path_factory.mktemp("consequences-stalled") / STALLED.name
    with pytest.MonkeyPatch.context() as patch, Progress() as progress:
        patch.setattr(recording, "make_mirror", make)
        with pytest.raises(EnvironmentFailure) as raised:
            recording.record(
                STALLED, runtime="process", folder=folder, command="pytest", progress=progress
            )
    return verify([folder], spark=spark)[0], str(raised.value)


def stall(
    mirror: ShadowMirror, topic: str, partitions: int, *, at: int = 40, ahead: int = 6
) -> None:
    """Makes the shadow serve batches from offset `at` on with a leader epoch that their partitions
    do not have yet."""
    drained(mirror)
    mirror.crash()
    journal = Journal(mirror.log.parent)
    for number in range(partitions):
        note = journal.partition(topic, number)
        note.epochs = [
            *note.epochs,
            (max((epoch for epoch, _ in note.epochs), default=0) + ahead, at),
        ]
    journal.save()
    mirror.restart()


@pytest.mark.nightly
def test_a_mirror_that_stands_still_is_not_called_valid(stalled: tuple[Judgement, str]) -> None:
    """Brokers silently skip batches of a leader epoch above the partition's (KAFKA-18723)."""
    judgement, message = stalled
    assert "the failover does not get past the phase settling" in message
    assert judgement.verdict is Verdict.UNKNOWN
    assert message in cast(str, judgement.document["reason"])
