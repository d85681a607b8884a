"""Histories of one replica's log end, for last-stable-offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from linkflap.spark_verify.facts.partition_facts import ReplicaSample, Truncation, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import samples, view
from tests.unit.checks.logs import SECOND, Log, ints


def replica(
    *ends: int,
    broker: int = 2,
    high: Sequence[int] = (2, 2, 2, 2),
    epochs: Sequence[int] | None = None,
    truncations: Sequence[Truncation] = (),
    windows: Sequence[Window] = (),
    leaders: Sequence[int] = (1, 1, 1, 1),
) -> PartitionView:
    """Ends of one replica of a log that broker 1 leads, one each half second from second 1.1 on;
    and high watermarks, one each second from second 1 on."""
    return view(
        [Log("A").data(1, 2)],
        watermarks={
            "A": replace(
                samples(*((mark, mark) for mark in high), epochs=epochs), leader=ints(*leaders)
            )
        },
        windows=windows,
        truncations=truncations,
        replica_samples=[
            ReplicaSample(
                cluster="A",
                broker=broker,
                log_start=0,
                log_end=end,
                asked=(2 + number) * SECOND // 2 + SECOND // 10,
                returned=(2 + number) * SECOND // 2 + SECOND // 5,
            )
            for number, end in enumerate(ends)
        ],
    )


def fault(name: str, target: str, at: int) -> Window:
    """A fault of one second."""
    return Window(id="f", fault=name, target=target, start=at * SECOND, end=(at + 1) * SECOND)


REPLICAS_ACCEPTED = {
    "an old leader that a partition kept from learning it appended, and truncates": (
        replica(
            1,
            2,
            1,
            windows=[fault("partition", "A/3", 0)],
        ),
        {"A/native": 4},
    ),
    "an epoch with two leaders: one of the names is old": (
        replica(2, 1, broker=1, leaders=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
    "a replica that grows": (replica(0, 1, 2), {"A/native": 4}),
    "a replica lost what was not committed": (
        replica(1, 2, 1, high=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
    "a replica had not fetched from this leader before": (replica(2, 1), {"A/native": 4}),
    "another leader's records, before the election": (
        replica(1, 2, 1, high=(1, 1, 2, 2), epochs=(0, 0, 1, 1)),
        {"A/native": 4},
    ),
    "an unclean election took it": (
        replica(1, 2, 1, windows=[fault("unclean-election", "A", 2)]),
        {"A/native": 4},
    ),
    "its own broker was paused when it grew, and may have led without knowing better": (
        replica(1, 2, 1, windows=[fault("broker-pause", "A/2", 0)]),
        {"A/native": 4},
    ),
    "the leader is unknown": (replica(1, 2, 1, epochs=(-1, -1, -1, -1)), {"A/native": 4}),
    "a mirror truncated the log": (
        replica(
            1,
            2,
            1,
            truncations=[Truncation(link="B->A", cluster="A", offset=1, end=2, time=2 * SECOND)],
        ),
        {"A/native": 4},
    ),
    "the leader's replica lost what was not committed": (
        replica(2, 1, broker=1, high=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
}
