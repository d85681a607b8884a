"""Compares a history of clients with the log."""

from __future__ import annotations

from collections import Counter

from linkflap.harness.model.history import Operation, Poll
from tests.workload_rig import Log


def acked(operation: Operation) -> dict[tuple[str, int, int], int]:
    """(topic, partition, offset) -> uid of every acknowledged record."""
    return {
        (send.topic, send.partition, offset + n): send.first_uid + index + n
        for send in operation.sends
        for index, count, offset in send.acks
        for n in range(count)
    }


def uids_of(operation: Operation) -> set[int]:
    return {send.first_uid + n for send in operation.sends for n in range(send.count)}


def uids_in(log: Log) -> Counter[int]:
    return Counter(uid for partition in log.values() for uid in partition.values())


def returns(operations: list[Operation]) -> list[Operation]:
    return [o for o in operations if o.phase == "return"]


def assert_truthful(
    operations: list[Operation], cluster: str, everything: Log, committed: Log
) -> None:
    """Every acknowledgement has its record, every confirmed ending its effect, and nothing occurs
    twice."""
    seen, visible = uids_in(everything), uids_in(committed)
    assert max(seen.values()) == 1
    for operation in returns(operations):
        if operation.cluster != cluster:
            continue
        for (topic, partition, offset), uid in acked(operation).items():
            assert everything[topic, partition].get(offset) == uid, operation
        refused = {
            s.first_uid + i + n
            for s in operation.sends
            for i, count in s.refused
            for n in range(count)
        }
        assert not refused & seen.keys()
        uids = uids_of(operation) - refused
        if operation.kind == "send" and operation.outcome == "ok":
            assert uids <= visible.keys()
        if operation.ending == "commit" and operation.outcome == "ok":
            assert uids <= visible.keys(), operation
        if operation.ending == "commit" and operation.outcome == "fail":
            assert not uids & visible.keys(), operation
        if operation.ending == "abort" and operation.outcome == "ok":
            assert not uids & visible.keys(), operation


def assert_polls_match(polls: list[Poll], cluster: str, log: Log) -> None:
    for poll in polls:
        for part in poll.fetched:
            for uid, offset, count in part.runs:
                for n in range(count):
                    assert (
                        poll.cluster != cluster
                        or log[part.topic, part.partition].get(offset + n) == uid + n
                    )
