"""Settling, with fake followers: whose log is the longest, who gets the rest, and who is not waited
for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linkflap.harness.mirrors.shadow import failover
from linkflap.harness.mirrors.shadow.failover import FailoverRun
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import MirroredLog
from linkflap.harness.model.errors import DeadlineExceeded
from tests.shadows import config

TOPIC_PARTITION = ("A.t", 0)


@pytest.fixture
def settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailoverRun:
    monkeypatch.setattr(failover, "WAKE_SECONDS", 0.2)
    monkeypatch.setattr(failover, "LEAVE_SECONDS", 0.5)
    real = {"INTERNAL": {broker: "127.0.0.1:1" for broker in (1, 2, 3)}}
    mirrored = MirroredLog(config(real=real), Journal(tmp_path))
    mirrored.brokers = frozenset((1, 2, 3))
    mirrored.journal.notes.phase = "settling"
    mirrored.lead(mirrored.add(*TOPIC_PARTITION), 4)
    topics: Any = SimpleNamespace(
        placement=SimpleNamespace(replicas=lambda _number, _topic: [1, 2, 3])
    )
    parts: list[Any] = [SimpleNamespace() for _ in range(5)]
    return FailoverRun(mirrored, parts[0], parts[1], topics, *parts[2:])


def fetching(
    made: FailoverRun, offsets: dict[int, int], *, epoch_from: int = 0, most: int = 1000
) -> asyncio.Task[None]:
    """Followers that fetch, truncate and catch up, by at most `most` offsets at each look."""
    partition = made._log.partitions[TOPIC_PARTITION]

    async def fetch() -> None:
        while True:
            if partition.raise_to >= 0:
                made._log.lead(partition, partition.raise_to)
            for broker, offset in offsets.items():
                if partition.leader_epoch >= epoch_from:
                    partition.heard(broker, offset, partition.leader_epoch, 4)
                    offsets[broker] = (
                        offset if partition.end < 0 else min(partition.end, offset + most)
                    )
            await asyncio.sleep(0.01)

    return asyncio.create_task(fetch())


def settle(made: FailoverRun, *followers: tuple[dict[int, int], int], most: int = 1000) -> int:
    async def play() -> int:
        tasks = [
            fetching(made, offsets, epoch_from=epoch, most=most) for offsets, epoch in followers
        ]
        try:
            await asyncio.wait_for(made.settled(), 60)
        finally:
            for task in tasks:
                task.cancel()
        return made._log.partitions[TOPIC_PARTITION].end

    return asyncio.run(play())


def test_the_longest_live_replica_is_the_log(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 9, 3: 0}, 0)) == 9


def test_who_comes_back_with_more_when_it_was_settled_is_truncated(settling: FailoverRun) -> None:
    settling._log.journal.notes.phase = "ending"
    note = settling._log.partitions[TOPIC_PARTITION].note
    note.mirrored, note.appended = 7, [(7, "ABORT")]
    assert settle(settling, ({1: 8, 2: 8, 3: 12}, 0)) == 8
    assert note.appended == [(7, "ABORT")]


def test_what_was_noted_and_nobody_has_was_not_appended(settling: FailoverRun) -> None:
    settling._log.journal.notes.phase = "ending"
    note = settling._log.partitions[TOPIC_PARTITION].note
    note.mirrored, note.appended = 7, [(7, "ABORT"), (8, "ABORT")]
    assert settle(settling, ({1: 8, 2: 7, 3: 7}, 0)) == 8
    assert note.appended == [(7, "ABORT")]


def test_a_replica_that_failed_is_woken_by_a_new_epoch(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 7}, 0), ({3: 7}, 5)) == 7
    assert settling._log.partitions[TOPIC_PARTITION].leader_epoch == 5
    assert settling.live(settling._log.partitions[TOPIC_PARTITION]) == {1, 2, 3}


def test_a_replica_that_does_not_wake_is_left_behind(settling: FailoverRun) -> None:
    assert settle(settling, ({1: 7, 2: 9}, 0)) == 9
    assert settling.live(settling._log.partitions[TOPIC_PARTITION]) == {1, 2}


def test_replicas_that_have_much_to_copy_are_waited_for(
    settling: FailoverRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "STEP_SECONDS", 2)
    assert settle(settling, ({1: 300, 2: 0, 3: 300}, 0), most=1) == 300


def test_replicas_that_stand_still_are_not(
    settling: FailoverRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "STEP_SECONDS", 0.5)
    with pytest.raises(
        DeadlineExceeded,
        match=r"the replicas of A\.t-0 have not caught up, and made no progress for 0\.5 s",
    ):
        settle(settling, ({1: 100, 2: 0, 3: 100}, 0), most=0)
