"""The sampler of topics' settings, with clients that answer, or do not."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.capture import topic_settings
from linkflap.harness.model.events import SettingsSampled


class Rows:
    def __init__(self) -> None:
        self.rows: list[SettingsSampled] = []

    def write(self, row: SettingsSampled) -> None:
        self.rows.append(row)


class Client:
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
    class Mine(Client):
        pass

    Mine.answering = frozenset(answering)
    monkeypatch.setattr(topic_settings, "AdminClient", Mine)
    rows: Any = Rows()
    sampler = topic_settings.SettingsSampler({"A": "127.0.0.1:1"}, {"t": 1}, rows)
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
