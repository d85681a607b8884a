"""The records of one poll, as runs per partition: (uid, offset, how many), both rising by one, in
the order of the poll."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from linkflap.harness.model.payload import FOREIGN, uid_in
from linkflap.harness.model.topology import TopicPartition as Partition
from linkflap.harness.workloads.library import ClientMessage

Runs = tuple[tuple[int, int, int], ...]


def fetched(messages: Iterable[ClientMessage]) -> dict[Partition, Runs]:
    """The runs of each partition. Records of other programs have uid FOREIGN and runs of one."""
    collected: dict[Partition, list[list[int]]] = {}
    for message in messages:
        tp, offset = partition_of(message), message.offset()
        if tp is None or offset is None:
            continue
        uid = uid_in(cast("Sequence[tuple[str, bytes | None]] | None", message.headers()))
        runs = collected.setdefault(tp, [])
        if runs and uid != FOREIGN:
            last = runs[-1]
            if last[0] != FOREIGN and uid == last[0] + last[2] and offset == last[1] + last[2]:
                last[2] += 1
                continue
        runs.append([uid, offset, 1])
    return {
        tp: tuple((uid, offset, count) for uid, offset, count in runs)
        for tp, runs in collected.items()
    }


def partition_of(message: ClientMessage) -> Partition | None:
    """The partition of a message or event; None when it concerns none."""
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None or partition < 0 else (topic, partition)
