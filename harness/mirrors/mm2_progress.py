"""The progress of a MirrorMaker 2 worker, read from Connect's own records on the destination.

Connect writes a source offset only after the destination acknowledged every record up to it. So a
position read here is never ahead of the mirrored records. It trails them by up to
`offset.flush.interval.ms` (at-least-once) or one transaction (exactly-once).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition, quiet

_BATCH: Final = 5000
_TRACE: Final = 4000
"""How many characters of a stack trace are kept: its causes come after many frames."""


def reader(bootstrap: str, isolation: str) -> Consumer:
    """A consumer without group management that reports the end of a partition."""
    return Consumer(
        quiet(bootstrap)
        | {
            "group.id": "linkflap-mirror-progress",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
            "allow.auto.create.topics": False,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A connector (`task` is -1), or one of its tasks, has a new state; `trace` is the stack trace
    of a failure."""

    connector: str
    task: int
    state: str
    trace: str


class ConnectProgress:
    """Connect's compacted internal topics of one link, as tables. Not thread-safe."""

    def __init__(self, link: LinkSpec, bootstrap: str) -> None:
        self._link = link
        self._topics = (mm2_config.offsets_topic(link), mm2_config.status_topic(link))
        self._admin = AdminClient(quiet(bootstrap))
        self._reader = reader(bootstrap, "read_committed")
        self._assigned = False
        self.positions: dict[Partition, int] = {}
        """Source partition -> the first offset that is not known to be mirrored."""
        self.states: dict[str, str] = {}
        """Connector and task states as Connect wrote them, for example `task
        MirrorSourceConnector-0` -> RUNNING."""
        self._changes: list[StateChange] = []

    def close(self) -> None:
        self._reader.close()

    def refresh(self) -> bool:
        """Reads new records. False while Connect has not created its topics."""
        if not self._assigned and not self._assign():
            return False
        while messages := self._reader.consume(_BATCH, timeout=0):
            for message in messages:
                self._take(message)
        return True

    def changes(self) -> list[StateChange]:
        """State changes since the last call, in the order in which Connect wrote them."""
        changes, self._changes = self._changes, []
        return changes

    def running_tasks(self) -> list[str]:
        """The source connector's tasks that Connect reports as running."""
        prefix = f"task {mm2_config.SOURCE_CONNECTOR}-"
        return [
            name
            for name, state in self.states.items()
            if name.startswith(prefix) and state == "RUNNING"
        ]

    def forget_states(self) -> None:
        """Forgets what Connect reported about a worker that died. Called before a restart."""
        self.refresh()
        self.states.clear()
        self._changes.clear()

    def _assign(self) -> bool:
        known = self._admin.list_topics(timeout=10).topics
        if not all(topic in known for topic in self._topics):
            return False
        self._reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in self._topics])
        self._assigned = True
        ended: set[str] = set()

        def read_through() -> bool:
            for message in self._reader.consume(_BATCH, timeout=0.05):
                if _at_end(message):
                    ended.add(message.topic() or "")
                else:
                    self._take(message)
            return len(ended) == len(self._topics)

        until(
            read_through,
            within=20,
            what=f"Connect's internal topics of {self._link.name}",
            state=lambda: sorted(ended),
        )
        return True

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if message.error() is not None or key is None:
            return
        content = json.loads(value) if value else None
        if message.topic() == self._topics[0]:
            self._take_offset(json.loads(key), content)
        else:
            self._take_state(_text(key), content)

    def _take_offset(self, key: list[object], value: object) -> None:
        connector, where = key
        if connector != mm2_config.SOURCE_CONNECTOR or not isinstance(where, dict):
            return
        partition = (str(where["topic"]), int(where["partition"]))
        if isinstance(value, dict):
            self.positions[partition] = int(value["offset"]) + 1
        else:
            self.positions.pop(partition, None)

    def _take_state(self, key: str, value: object) -> None:
        _, _, rest = key.partition("-")
        kind, _, name = rest.partition("-")
        if key.startswith("status-") and kind in ("connector", "task"):
            row = value if isinstance(value, dict) else {"state": "REMOVED"}
            before, self.states[f"{kind} {name}"] = (
                self.states.get(f"{kind} {name}"),
                str(row["state"]),
            )
            if before != row["state"]:
                connector, _, number = name.rpartition("-") if kind == "task" else (name, "", "-1")
                trace = str(row.get("trace") or "")[:_TRACE]
                self._changes.append(
                    StateChange(
                        connector=connector, task=int(number), state=str(row["state"]), trace=trace
                    )
                )


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key


def _at_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


class Gap:
    """Counts the records of the source between two offsets that a consumer with the mirror's
    isolation level gets.

    An offset difference says little, because control records and aborted transactions take offsets
    but are never mirrored. Counts are cached, so that an unchanged gap is read only once. Not
    thread-safe.
    """

    def __init__(self, bootstrap: str, isolation: str) -> None:
        self._reader = reader(bootstrap, isolation)
        self._counts: dict[Partition, tuple[int, int, int]] = {}

    def close(self) -> None:
        self._reader.close()

    def count(self, partition: Partition, start: int, end: int, *, within: float) -> int | None:
        """Records in [start, end), or None when they could not be read in `within` seconds."""
        kept = self._counts.get(partition)
        if kept and kept[:2] == (start, end):
            return kept[2]
        try:
            counted = sum(1 for _ in self._records(partition, start, end, within))
        except DeadlineExceeded:
            return None
        self._counts[partition] = (start, end, counted)
        return counted

    def _records(
        self, partition: Partition, start: int, end: int, within: float
    ) -> Iterator[Message]:
        self._reader.assign([TopicPartition(*partition, start)])
        taken: list[Message] = []

        def read_through() -> bool:
            for message in self._reader.consume(_BATCH, timeout=0.05):
                offset = message.offset()
                if _at_end(message) or (offset is not None and offset >= end):
                    return True
                if message.error() is None:
                    taken.append(message)
            return False

        try:
            until(
                read_through,
                within=within,
                what=f"the tail of {partition[0]}-{partition[1]}",
                every=0.0,
            )
        finally:
            self._reader.unassign()
        yield from taken
