"""Measures the lag of a mirror from the records on both sides. The mirror's own report is compared
with it, and never replaces it.

The lag of a source partition is the number of records after the last one that has arrived on the
destination. A record that was lost before that one does not count: waiting would not make it
arrive, and the anomaly lost-write reports it. linkflap's own clients read both sides directly.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.mm2_progress import reader
from linkflap.harness.mirrors.topics import data_topics
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.guarantee import Isolation
from linkflap.harness.model.payload import FOREIGN, uid_in
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition, bounds, quiet

_BATCH: Final = 5000
_ASK: Final = 2.0
_READ_WITHIN: Final = 20.0


class _Side:
    """One cluster's data topics, read from their beginning. Not thread-safe."""

    def __init__(self, bootstrap: str, homes: tuple[str, ...], isolation: Isolation) -> None:
        self._homes, self._isolation = homes, isolation
        self._admin = AdminClient(quiet(bootstrap))
        self._reader: Consumer = reader(bootstrap, isolation)
        self._positions: dict[Partition, int] = {}

    def read(self, take: Callable[[Partition, int], None]) -> None:
        """Reads the new records up to the current ends, and passes the key of each to `take`, in
        order. Raises KafkaException when the cluster does not answer, DeadlineExceeded when records
        do not arrive."""
        partitions = [
            (t, p)
            for t, count in data_topics(self._admin, self._homes, within=_ASK).items()
            for p in range(count)
        ]
        ends = bounds(
            self._admin,
            partitions,
            "stable" if self._isolation == "read_committed" else "high",
            within=_ASK,
        )
        if new := [partition for partition in partitions if partition not in self._positions]:
            self._positions |= dict.fromkeys(new, 0)
            known = {partition: at or OFFSET_BEGINNING for partition, at in self._positions.items()}
            self._reader.assign([TopicPartition(t, p, at) for (t, p), at in known.items()])

        def read_on() -> bool:
            for message in self._reader.consume(_BATCH, timeout=0.05 if self._missing(ends) else 0):
                self._took(message, take)
            return not self._missing(ends)

        until(read_on, within=_READ_WITHIN, every=0.0, what="the ends of partitions to be read")

    def _missing(self, ends: dict[Partition, int]) -> bool:
        return any(self._positions[partition] < end for partition, end in ends.items())

    def _took(self, message: Message, take: Callable[[Partition, int], None]) -> None:
        partition, offset = (str(message.topic()), cast(int, message.partition())), message.offset()
        if partition not in self._positions or offset is None:
            return
        if message.error() is not None:  # partition end; before it only markers and aborted records
            self._positions[partition] = max(self._positions[partition], offset)
            return
        take(partition, _key(message))
        self._positions[partition] = offset + 1

    def close(self) -> None:
        self._reader.close()


def _key(message: Message) -> int:
    """The identity of a record on both sides: its payload id, else a digest of its key, value and
    timestamp."""
    uid = uid_in(cast("list[tuple[str, bytes | None]] | None", message.headers()))
    if uid != FOREIGN:
        return uid
    content = (message.key() or b"", message.value() or b"", message.timestamp()[1])
    return -2 - int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=7).digest())


class Order:
    """The records of one partition that have not arrived yet, in the source's order."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._among: set[int] = set()
        self._ahead: set[int] = set()
        """Records that arrived before they were read at the source, and repeated records."""

    def sent(self, key: int) -> None:
        self._waiting.append(key)
        self._among.add(key)
        if key in self._ahead:
            self._ahead.discard(key)
            self.arrived(key)

    def arrived(self, key: int) -> None:
        """Removes this record and all earlier ones."""
        if key not in self._among:
            self._ahead.add(key)
            return
        while self._waiting:
            earlier = self._waiting.popleft()
            self._among.discard(earlier)
            if earlier == key:
                return

    @property
    def behind(self) -> int:
        return len(self._waiting)


class Behind:
    """Both sides of one link. Thread-safe."""

    def __init__(
        self, source: str, destination: str, homes: tuple[str, ...], isolation: Isolation
    ) -> None:
        self._source, self._destination = (
            _Side(source, homes, isolation),
            _Side(destination, homes, isolation),
        )
        self._orders: dict[Partition, Order] = defaultdict(Order)
        self._lock = threading.Lock()

    def count(self) -> int | None:
        """The lag in records; None while a side does not answer."""
        with self._lock:
            try:
                self._source.read(lambda partition, key: self._orders[partition].sent(key))
                self._destination.read(lambda partition, key: self._orders[partition].arrived(key))
            except (KafkaException, DeadlineExceeded):
                return None
            return sum(order.behind for order in self._orders.values())

    def close(self) -> None:
        with self._lock:
            self._source.close()
            self._destination.close()
