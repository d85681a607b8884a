"""The sampler of a cluster: a client that gets no answers any more is replaced."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.capture import watermarks
from linkflap.harness.capture.watermarks import ClusterSampler
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunWriter


class Rows:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, row: Any) -> None:
        self.rows.append(row)


class Client:
    """An admin client; a `stuck` one gets no answer."""

    def __init__(self, *, stuck: bool) -> None:
        self._stuck = stuck

    def list_topics(self, timeout: float) -> SimpleNamespace:
        if self._stuck:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        led = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
        return SimpleNamespace(topics={"t": led})

    def list_offsets(self, asked: Any, **_: Any) -> dict[Any, Future[Any]]:
        answers = {}
        for partition in asked:
            answers[partition] = Future[Any]()
            answers[partition].set_result(SimpleNamespace(offset=7, leader_epoch=0))
        return answers


def sampled(monkeypatch: pytest.MonkeyPatch, stuck: list[bool], *, asked: int) -> list[Any]:
    """The rows of a sampler with these clients, in turn; it is stopped after so many rows."""
    made: list[Client] = []

    def client(_: object) -> Client:
        made.append(Client(stuck=stuck[min(len(made), len(stuck) - 1)]))
        return made[-1]

    monkeypatch.setattr(watermarks, "AdminClient", client)
    rows = Rows()
    writer = SimpleNamespace(watermarks=lambda _: rows, groups=lambda _: Rows())
    sampler = ClusterSampler("B", "h:1", {"t": 1}, [], cast(RunWriter, writer), interval=0.01)
    sampler.start()
    until(lambda: sampler.errors + sampler.samples >= asked, within=10, what="samples")
    sampler.ask_to_stop()
    sampler.join()
    return rows.rows


def test_a_client_that_gets_no_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sampled(monkeypatch, [True, True, False], asked=4)
    assert rows
    assert (rows[0].topic, rows[0].high_watermark) == ("t", 7)


def test_a_cluster_that_answers_nobody_has_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled(monkeypatch, [True], asked=3) == []
