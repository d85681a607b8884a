"""Histories of one replica's log end, for last-stable-offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from linkflap.spark_verify.facts.partition_facts import (
    MirrorStop,
    ReplicaSample,
    Truncation,
    Window,
)
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
    leaders: Sequence[int] | None = None,
    stops: Sequence[MirrorStop] = (),
    every: float = 0.5,
    cluster: str = "A",
) -> PartitionView:
    """Ends of one replica of a log that broker 1 leads, each so many seconds from second 1.1 on;
    and high watermarks, one each second from second 1 on."""
    asked = [SECOND + int(number * every * SECOND) + SECOND // 10 for number in range(len(ends))]
    return view(
        [Log("A").data(1, 2)],
        watermarks={
            cluster: replace(
                samples(*((mark, mark) for mark in high), epochs=epochs),
                leader=ints(*(leaders or [1] * len(high))),
            )
        },
        windows=windows,
        truncations=truncations,
        stops=stops,
        replica_samples=[
            ReplicaSample(
                cluster=cluster,
                broker=broker,
                log_start=0,
                log_end=end,
                asked=at,
                returned=at + SECOND // 10,
            )
            for at, end in zip(asked, ends, strict=True)
        ],
    )


def stop(at: int, truncated: Sequence[tuple[int, int]] = ()) -> MirrorStop:
    """A mirror's end in the log, which truncated it or did not."""
    return MirrorStop(
        link="B->A",
        cluster="A",
        time=at * SECOND,
        mirrored=2,
        promoted=2,
        truncated=truncated,
        appended=(),
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
    "a mirror truncated the log when it stopped": (
        replica(1, 2, 1, stops=[stop(2, truncated=[(2, 1)])]),
        {"A/native": 4},
    ),
    "the leader before appended what it still had to send, without knowing of the election": (
        replica(1, 1, 2, 1, high=(1, 1, 2, 2), epochs=(0, 1, 1, 1), leaders=(2, 1, 1, 1)),
        {"A/native": 4},
    ),
    "the leader's replica lost what was not committed": (
        replica(2, 1, broker=1, high=(1, 1, 1, 2)),
        {"A/native": 4},
    ),
}
