"""The mirrored log that the parts of the shadow share: its partitions, the stamping of their
batches, and the event that wakes waiting followers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from linkflap.harness.mirrors.shadow.failpoints import Steps
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.log import producer_ids
from linkflap.harness.mirrors.shadow.log.batches import Stamped, stamp
from linkflap.harness.mirrors.shadow.log.leader_epochs import Lineage
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire.messages import Message

WINDOW_BYTES: Final = 4 << 20
"""Limit of one partition's window. A single larger batch may exceed it."""
BUDGET_BYTES: Final = 48 << 20
"""Limit of all windows together."""
_NEVER: Final = (1 << 63) - 1


class Bell:
    """Wakes all tasks that wait for `next`. A task takes `next` before it checks its condition, so
    that it misses no change."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


class MirroredLog:
    """Partitions by name, and topic names by id on either side."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self.config, self.journal = config, journal
        self.steps = Steps.of(os.environ)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lost: set[TopicPartition] = set()
        """Partitions that a real broker leads although nothing was handed over. They are not in
        `partitions`."""
        self.names: dict[Message, str] = {}
        """Topic id on the destination -> name."""
        self.source_names: dict[Message, str] = {}
        self.brokers: frozenset[int] = frozenset()
        """The live real brokers of the destination."""
        self._ids = producer_ids.mapping(config.options, config.source_cluster_id)
        self._bell = Bell()
        self.room = Bell()
        """Rung when a window has released data."""

    @property
    def bell(self) -> asyncio.Event:
        """An event that is set once, at the next change that may concern a waiting follower."""
        return self._bell.next

    def ring(self) -> None:
        self._bell.ring()

    def has(self, partition: Partition) -> bool:
        """Whether the partition is still mirrored: its topic may have been deleted during an
        await."""
        return self.partitions.get((partition.topic, partition.number)) is partition

    @property
    def held(self) -> int:
        """Bytes in all windows."""
        return sum(partition.held for partition in self.partitions.values())

    def memory(self) -> int:
        """Bytes of memory that the windows use.

        Any view of a frame keeps the whole frame in memory. So when the budget is used up, data
        that uses less than half of its frame is copied out.
        """
        pieces = [piece for partition in self.partitions.values() for piece in partition.window]
        if (size := _memory(pieces)) < BUDGET_BYTES:
            return size
        used = Counter[int]()
        for piece in pieces:
            used[id(piece.frame)] += len(piece.data)
        for piece in pieces:
            if used[id(piece.frame)] * 2 < len(piece.frame):
                piece.data = memoryview(bytearray(piece.data))
        return _memory(pieces)

    def add(self, topic: str, number: int) -> Partition:
        """The partition, with its state from the journal."""
        tp = topic, number
        if tp not in self.partitions:
            note = self.journal.partition(topic, number)
            self.partitions[tp] = Partition(
                topic=topic,
                number=number,
                note=note,
                epochs=Lineage(note.epochs),
                source_epochs=Lineage(note.source_epochs),
            )
        return self.partitions[tp]

    def stamped(self, partition: Partition, raw: memoryview, position: int) -> Stamped:
        """The source's answer to a fetch at `position`, stamped for the destination. Journals new
        leader epochs first.

        With leader_epochs=keep, the log has the source's epochs. Then batches above the partition's
        leader epoch are held back until that is raised (`raise_to`).
        """
        keep = self.config.options.leader_epochs == "keep"
        at: Callable[[int, int], int] = (
            (lambda _, epoch: epoch) if keep else (lambda base, _: partition.epochs.at(base))
        )
        known = partition.source_epochs.at(position - 1)
        made = stamp(
            raw, position=position, below=_NEVER, source_epoch=known, epoch_at=at, ids=self._ids
        )
        changed = [partition.source_epochs.begin(epoch, start) for epoch, start in made.epochs]
        if keep:
            changed += [partition.epochs.begin(epoch, start) for epoch, start in made.epochs]
            newest = max((epoch for epoch, _ in made.epochs), default=-1)
            if newest > partition.leader_epoch:
                partition.raise_to = newest
        if made.top_producer > self.journal.notes.top_producer:
            # In steps of 100, so that not every new producer writes the journal. The option `jump`
            # adds a margin of its own.
            self.journal.notes.top_producer = made.top_producer + 100
            changed.append(True)
        if any(changed):
            self.remember([partition])
        return made

    def remember(self, partitions: Iterable[Partition]) -> None:
        """Writes the partitions' epochs to the journal."""
        for partition in partitions:
            partition.note.epochs = partition.epochs.entries
            partition.note.source_epochs = partition.source_epochs.entries
        self.journal.save()

    def lead(self, partition: Partition, epoch: int) -> None:
        """The shadow leads the partition in `epoch`: offsets that were not served before belong to
        that epoch. While the read position is unknown, only the leader epoch is set."""
        partition.leader_epoch = epoch
        if partition.raise_to <= epoch:
            partition.raise_to = -1
        if partition.position < 0:
            return
        if self.config.options.leader_epochs == "rewrite" and partition.epochs.begin(
            epoch, partition.served
        ):
            # Batches in the window beyond `served` carry the previous epoch.
            partition.drop_window(min(partition.position, partition.served))
        self.remember([partition])


def _memory(pieces: Iterable[Stamped]) -> int:
    return sum({id(piece.frame): len(piece.frame) for piece in pieces}.values())
