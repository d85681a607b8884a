"""When committed offsets of groups, replicas, watermarks and settings of topics are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.capture import samplers
from linkflap.harness.capture.samplers import AGAIN, ClusterSampler, GroupSampler, ReplicaSampler
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import SampledReplica, SettingsSampled
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import RunWriter
from tests.on_runtimes import Events
from tests.waiting import eventually


class Asked(GroupSampler):
    """Counts the groups that it asks for."""

    def __init__(self) -> None:
        writer = SimpleNamespace(groups=lambda cluster: None)
        super().__init__("B", {}, ["relay"], cast(RunWriter, writer))
        self.asked: list[str] = []

    def _sample(self, group: str, partitions: Sequence[TopicPartition], within: float) -> None:
        self.asked.append(group)


def test_the_last_sample_of_a_run_is_taken_right_after_another() -> None:
    groups = Asked()
    groups.sample([("orders", 0)], within=1.0)
    groups.sample([("orders", 0)], within=1.0)
    assert groups.asked == ["relay"]
    groups.sample_next()
    groups.sample([("orders", 0)], within=1.0)
    assert groups.asked == ["relay", "relay"]


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
    eventually("the runtime to be asked again", lambda: brokers.asked > 2)
    one.stop()
    one.stop()


def test_a_sampler_that_ended_by_itself_fails_the_run() -> None:
    brokers = Brokers(KeyError("a defect"))
    one = sampler(brokers)
    one.start()
    eventually("the thread to end", lambda: not one.alive)
    with pytest.raises(EnvironmentFailure, match="replicas of A ended early: KeyError: 'a defect'"):
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

    monkeypatch.setattr(samplers, "AdminClient", client)
    rows = Rows()
    writer = SimpleNamespace(watermarks=lambda _: rows, groups=lambda _: Rows())
    sampler = ClusterSampler("B", "h:1", {"t": 1}, [], cast(RunWriter, writer), interval=0.01)
    sampler.start()
    eventually("samples", lambda: sampler.errors + sampler.samples >= asked)
    sampler.stop()
    return rows.rows


def test_a_client_that_gets_no_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sampled(monkeypatch, [True, True, False], asked=4)
    assert rows
    assert (rows[0].topic, rows[0].high_watermark) == ("t", 7)


def test_a_cluster_that_does_not_run_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Client] = []

    def client(_: object) -> Client:
        made.append(Client(stuck=True))
        return made[-1]

    monkeypatch.setattr(samplers, "AdminClient", client)
    writer = SimpleNamespace(watermarks=lambda _: Rows(), groups=lambda _: Rows())
    sampler = ClusterSampler(
        "B", "h:1", {"t": 1}, [], cast(RunWriter, writer), interval=0.01, runs=lambda _: False
    )
    sampler.start()
    eventually("samples without an answer", lambda: sampler.errors >= 3)
    sampler.stop()
    assert len(made) == 1


def test_a_cluster_without_an_answer_has_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled(monkeypatch, [True], asked=3) == []


# The sampler of topics' settings, with clients that answer, or do not.


class SettingRows:
    def __init__(self) -> None:
        self.rows: list[SettingsSampled] = []

    def write(self, row: SettingsSampled) -> None:
        self.rows.append(row)


class SettingsClient:
    """Answers if its `number` is in `answering`."""

    made = 0
    answering: frozenset[int]

    def __init__(self, settings: object) -> None:
        type(self).made += 1
        self.number = self.made

    def describe_configs(self, wanted: Any, *, request_timeout: float) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        if self.number in self.answering:
            entry = SimpleNamespace(name="retention.ms", value="1", source=1)
            answer.set_result({"retention.ms": entry})
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(wanted, answer)


def stopped_at_once(monkeypatch: pytest.MonkeyPatch, *answering: int) -> list[SettingsSampled]:
    class Mine(SettingsClient):
        pass

    Mine.answering = frozenset(answering)
    monkeypatch.setattr(samplers, "AdminClient", Mine)
    rows: Any = SettingRows()
    sampler = samplers.SettingsSampler({"A": "127.0.0.1:1"}, {"t": 1}, rows)
    sampler.ask_to_stop()
    sampler.start()
    sampler.stop()
    assert Mine.made == (1 if 1 in answering else 2)
    return list(rows.rows)


@pytest.mark.parametrize("answering", [1, 2])
def test_another_client_asks_where_one_got_no_answer(
    monkeypatch: pytest.MonkeyPatch, answering: int
) -> None:
    (row,) = stopped_at_once(monkeypatch, answering)
    assert (row.cluster, row.topics, row.before) == ("A", {"t": {"retention.ms": "1"}}, 0)


def test_a_cluster_that_does_not_answer_gives_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopped_at_once(monkeypatch) == []


def test_settings_of_a_cluster_that_does_not_run_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samplers, "AdminClient", None)
    rows: Any = SettingRows()
    sampler = samplers.SettingsSampler({"A": "h:1"}, {"t": 1}, rows, runs=lambda _: False)
    sampler.ask_to_stop()
    sampler.start()
    sampler.stop()
    assert rows.rows == []
