"""last-stable-offset: high watermarks of a mirror that leads, against the followers that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from linkflap.spark_verify.facts.partition_facts import ReplicaSample, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import samples, view
from tests.unit.checks.logs import SECOND, Log, ints
from tests.unit.checks.replica_histories import stop
from tests.unit.checks.verdicts import anomalies

NAME = "last-stable-offset"
FOUND = [("high-watermark-ahead", "B", 1)]


def led(
    *highs: int,
    ends: Sequence[int],
    leaders: Sequence[int] | None = None,
    epochs: Sequence[int] | None = None,
    beside: float = 0.1,
    **rest: Any,
) -> PartitionView:
    """High watermarks of B's partition, one each second from second 1 on, led by a mirror; and the
    ends of broker 2's log, each right after one of them."""
    return view(
        [Log("A").data(1, 2), Log("B").data(1, 2)],
        mirror_kind="shadow",
        topology="A->B:3",
        watermarks={
            "B": replace(
                samples(*((high, high) for high in highs), epochs=epochs),
                leader=ints(*(leaders or [1000] * len(highs))),
            )
        },
        replica_samples=[
            ReplicaSample(
                cluster="B", broker=2, log_start=0, log_end=end,
                asked=int((at + beside) * SECOND), returned=int((at + beside) * SECOND) + 1,
            )
            for at, end in enumerate(ends, start=1)
        ],
        **rest,
    )  # fmt: skip


def test_a_follower_in_sync_has_what_readers_were_shown() -> None:
    assert anomalies(NAME, led(0, 1, 2, 2, ends=[0, 1, 2, 2])) == []
    assert anomalies(NAME, led(0, 1, 2, 2, ends=[0, 1, 1, 2])) == FOUND


FAULT = Window(id="f", fault="broker-pause", target="B/2", start=SECOND, end=2 * SECOND)


@pytest.mark.parametrize(
    "history",
    [
        led(0, 1, 2, 2, ends=[0, 0, 0, 2]),
        led(0, 0, 1, 1, 1, 2, 2, ends=[0, 1, 1, 1, 1, 1, 2]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], leaders=[1, 1, 1, 1]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], leaders=[1000, 1000, 1000, 3]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], epochs=[4, 5, 5, 5]),
        led(0, 1, 2, 1, ends=[0, 1, 1, 1], epochs=[4, 4, 4, 5]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], windows=[FAULT]),
        led(0, 1, 2, 2, ends=[0, 1, 1, 2], stops=[replace(stop(3, [(2, 1)]), cluster="B")]),
    ],
    ids=[
        "it never fetched",
        "it had not fetched for seconds",
        "a broker leads",
        "the mirror led no more",
        "a new leader epoch",
        "the log was truncated",
        "a fault of its broker",
        "its mirror's end truncated it",
    ],
)
def test_what_proves_nothing(history: PartitionView) -> None:
    assert "high-watermark-ahead" not in [kind for kind, *_ in anomalies(NAME, history)]
