"""The mirrored log as the shadow's parts share it: its partitions, how batches are stamped, and
what wakes followers."""

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
"""What one partition may hold; one batch more when that is larger."""
BUDGET_BYTES: Final = 48 << 20
"""What all partitions together may hold."""
_NEVER: Final = (1 << 63) - 1


class Bell:
    """Wakes who waits for `next`, which is taken before looking for what to wait for: so no change
    is missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


class MirroredLog:
    """Partitions by name, and by topic id on either side."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self.config, self.journal = config, journal
        self.steps = Steps.of(os.environ)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lost: set[TopicPartition] = set()
        """Partitions that real brokers lead though nothing was handed over; they are nowhere else
        here."""
        self.names: dict[Message, str] = {}
        """Topic id on the destination -> name."""
        self.source_names: dict[Message, str] = {}
        self.brokers: frozenset[int] = frozenset()
        """Real brokers of the destination that are alive."""
        self._ids = producer_ids.mapping(config.options, config.source_cluster_id)
        self._bell = Bell()
        self.room = Bell()
        """Rung when something has left a window."""

    @property
    def bell(self) -> asyncio.Event:
        """Set, once, when anything changes that a waiting follower may want."""
        return self._bell.next

    def ring(self) -> None:
        self._bell.ring()

    def has(self, partition: Partition) -> bool:
        """Whether it is mirrored still: somebody may have deleted its topic while something was
        waited for."""
        return self.partitions.get((partition.topic, partition.number)) is partition

    @property
    def held(self) -> int:
        """Bytes in all windows."""
        return sum(partition.held for partition in self.partitions.values())

    def memory(self) -> int:
        """Bytes of memory that windows take.

        A frame stays whole while any of it is in a window: when all the budget is used, what is
        left of frames that are hardly in use is moved out of them.
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
        """The partition, with what the journal knows of it."""
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
        """What the source answered to a fetch at `position`, as it is on the destination. Takes
        down new epochs first.

        With leader epochs kept, the log's own epochs are the source's, and batches above the
        partition's leader epoch are held back until that is raised.
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
            # In steps, so that the file is not written for every new producer: a jump has a margin
            # of its own.
            self.journal.notes.top_producer = made.top_producer + 100
            changed.append(True)
        if any(changed):
            self.remember([partition])
        return made

    def remember(self, partitions: Iterable[Partition]) -> None:
        """Writes down the partitions' epochs."""
        for partition in partitions:
            partition.note.epochs = partition.epochs.entries
            partition.note.source_epochs = partition.source_epochs.entries
        self.journal.save()

    def lead(self, partition: Partition, epoch: int) -> None:
        """The shadow leads it in an epoch: what was not served before is that epoch's. Nothing more
        while it is not known."""
        partition.leader_epoch = epoch
        if partition.raise_to <= epoch:
            partition.raise_to = -1
        if partition.position < 0:
            return
        if self.config.options.leader_epochs == "rewrite" and partition.epochs.begin(
            epoch, partition.served
        ):
            # What the window holds beyond `served` carries the epoch before.
            partition.drop_window(min(partition.position, partition.served))
        self.remember([partition])


def _memory(pieces: Iterable[Stamped]) -> int:
    return sum({id(piece.frame): len(piece.frame) for piece in pieces}.values())
