"""The error of a hand-over that does not end in time: partitions without a leader, or what remains
when all have one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.harness.mirrors.shadow import failover
from linkflap.harness.mirrors.shadow.destination.client import Led, MetadataSnapshot, Topic
from linkflap.harness.mirrors.shadow.failover import Handover
from linkflap.harness.mirrors.shadow.journal import Journal, TopicNote
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from tests.shadows import config


def handing(folder: Path, monkeypatch: pytest.MonkeyPatch, *, leader: int) -> Handover:
    """A destination whose only partition has this leader, and that refuses config changes."""
    monkeypatch.setattr(failover, "WITHIN_SECONDS", 0.2)
    mirrored = MirroredLog(config(), Journal(folder))
    mirrored.journal.notes.topics["A.t"] = TopicNote(source_id="s", destination_id="d")
    mirrored.add("A.t", 0)
    led = Led(leader=leader, epoch=1, replicas=(leader,), in_sync=(leader,))

    async def picture() -> MetadataSnapshot:
        return MetadataSnapshot(brokers={}, topics={"A.t": Topic(id="d", partitions={0: led})})

    async def refuse() -> None:
        raise EnvironmentFailure("topic A.t could not be configured: not today")

    placement = SimpleNamespace(replicas=lambda _number, _topic: [leader])
    topics: Any = SimpleNamespace(placement=placement, gone=set(), restore_configs=refuse)
    destination: Any = SimpleNamespace(picture=picture)
    membership: Any = SimpleNamespace()
    return Handover(mirrored, destination, topics, membership)


@pytest.mark.parametrize(
    ("leader", "sentence"),
    [
        (
            1,
            (
                "all partitions are handed over, but their configs or replicas were not restored "
                "within 0.2 s (topic A.t could not be configured"
            ),
        ),
        (1000, "A.t-0 could not be handed over in 0.2 s; see the brokers' logs"),
    ],
)
def test_a_partition_is_named_only_while_it_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: int, sentence: str
) -> None:
    made = handing(tmp_path, monkeypatch, leader=leader)
    with pytest.raises(DeadlineExceeded) as raised:
        asyncio.run(made.run(lambda _: frozenset()))
    assert sentence in str(raised.value)
