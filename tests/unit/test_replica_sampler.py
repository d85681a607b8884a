"""The thread that samples replicas: it outlives a runtime that cannot report its brokers, and does
not end without a word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from linkflap.harness.capture.replica_ends import AGAIN, ReplicaSampler
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import SampledReplica
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.wait import until
from tests.on_runtimes import Events


class Brokers:
    """The brokers of a cluster whose runtime answers each request for them with an error."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def values(self) -> None:
        self.asked += 1
        raise self.error


def sampler(brokers: Brokers) -> ReplicaSampler:
    cluster = cast(Cluster, SimpleNamespace(name="A", brokers=brokers))
    return ReplicaSampler(cluster, {"A.t": 1}, Events(), interval=0.01)


def test_a_runtime_that_does_not_report_its_brokers_is_asked_again() -> None:
    brokers = Brokers(EnvironmentFailure("the engine does not answer"))
    one = sampler(brokers)
    one.start()
    until(lambda: brokers.asked > 2, within=30, what="the runtime to be asked again")
    one.stop()
    one.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sampler_that_ended_by_itself_fails_the_run() -> None:
    brokers = Brokers(KeyError("a defect"))
    one = sampler(brokers)
    one.start()
    until(lambda: not one._thread.is_alive(), within=30, what="the thread to end")
    with pytest.raises(EnvironmentFailure, match="replicas of A ended during the run"):
        one.stop()
    one.stop()


def test_a_sampler_that_never_started_can_be_stopped() -> None:
    sampler(Brokers(KeyError())).stop()


def test_a_replica_that_does_not_change_is_recorded_every_few_seconds() -> None:
    one, at = sampler(Brokers(KeyError())), 10**18
    row = SampledReplica(topic="A.t", partition=0, broker=1, log_start=0, log_end=7)
    assert one._is_news(row, at)
    assert not one._is_news(row, at + AGAIN - 1)
    assert one._is_news(row, at + AGAIN)
    assert not one._is_news(row, at + AGAIN + 1)
    assert one._is_news(msgspec.structs.replace(row, log_end=6), at + AGAIN + 2)
