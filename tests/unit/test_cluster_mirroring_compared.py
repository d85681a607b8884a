"""The topics of a mirror's source and destination, compared: what counts, what is left out, and how
long to wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.mirrors.cluster_mirroring.comparison import LEFT_OUT, agreed, compared
from linkflap.harness.model.events import ComparedTopic

SAME = ComparedTopic(topic="A.x", there=2, here=2, compared=1)
LATE = ComparedTopic(topic="A.x", there=2, here=0, compared=0)


def test_a_topic_that_is_the_same_has_nothing_that_differs() -> None:
    there = {"A.x": {"retention.ms": "1", "min.insync.replicas": "2"}}
    here = {"A.x": {"retention.ms": "1", "mirror.name": "A-B", "min.insync.replicas": "1"}}
    assert compared({"A.x": 2}, {"A.x": 2, "A.own": 1}, there, here) == (SAME,)


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_settings_that_mirrors_do_not_sync_by_default_may_differ(name: str) -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {name: "1"}}, {})
    assert row.differing is None


def test_a_setting_that_is_not_set_there_or_of_another_value_differs() -> None:
    there, here = (
        {"A.x": {"retention.ms": "1", "segment.ms": "2"}},
        {"A.x": {"retention.ms": "3", "delete.retention.ms": "4"}},
    )
    (row,) = compared({"A.x": 1}, {"A.x": 1}, there, here)
    assert row.differing == {
        "retention.ms": ("1", "3"),
        "segment.ms": ("2", None),
    }
    assert row.compared == 2


def test_settings_that_the_source_has_not_set_are_not_compared() -> None:
    (row,) = compared({"A.x": 1}, {"A.x": 1}, {"A.x": {}}, {"A.x": {"retention.ms": "1"}})
    assert (row.differing, row.compared) == (None, 0)


def test_a_missing_topic_is_reported_as_missing_only() -> None:
    (row,) = compared({"A.x": 2}, {}, {"A.x": {"retention.ms": "1"}}, {})
    assert (row.there, row.here, row.differing) == (2, 0, None)


def test_it_is_waited_until_all_agree_and_a_cluster_that_never_answers_proves_nothing() -> None:
    answers: Iterator[Sequence[ComparedTopic]] = iter([(LATE,), (SAME,)])
    found = agreed("A->B", lambda: next(answers), within=5)
    assert found is not None
    assert found.rows == (SAME,)
    late = agreed("A->B", lambda: (LATE,), within=0.05)
    assert late is not None
    assert late.rows == (LATE,)

    def silent() -> Sequence[ComparedTopic]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    assert agreed("A->B", silent, within=0.05) is None
