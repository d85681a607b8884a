"""org.apache.kafka.clients.consumer.KafkaShareConsumer (KIP-932): a member of a share group, which
acknowledges each record.

The group's start offset, its isolation level, and how long a record stays acquired are configs of
the group on the brokers. They are set before a member joins.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from linkflap.harness.model.topology import TopicPartition as Partition
from linkflap.harness.workloads.java.clients import JavaClients
from linkflap.harness.workloads.java.consumer import LEAVES_WITHIN, Consumed
from linkflap.harness.workloads.java.errors import JavaError, raised

ANSWERS_WITHIN: Final = 10_000
"""Timeout for the coordinator of a group, in milliseconds."""
Acknowledgement = Literal["accept", "release", "reject", "renew"]


@dataclass(frozen=True, slots=True)
class Acquired(Consumed):
    """A record that this member has acquired: its poll, and its delivery count, this delivery
    included."""

    number: int = 0
    deliveries: int = 0


class JavaShareConsumer:
    """One member of a share group, used by one thread at a time. Raises confluent-kafka's
    KafkaException."""

    def __init__(self, clients: JavaClients, config: Mapping[str, object]) -> None:
        """`config` has Java's names."""
        self._clients, self._group = clients, str(config["group.id"])
        kafka = clients.bridge.java.org.apache.kafka.clients
        self._types = kafka.consumer.AcknowledgeType
        entered = {
            name: value
            for name, value in config.items()
            if name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))
        }
        with raised():
            self._admin = clients.admin(
                {
                    **entered,
                    "default.api.timeout.ms": ANSWERS_WITHIN,
                    "request.timeout.ms": ANSWERS_WITHIN,
                }
            )
            self._client = clients.share_consumer(config)
            self._accept = clients.accepting(self._client)
            self._polled = clients.listed()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Sets the configs of the group. Returns once the brokers have confirmed them."""
        bridge = self._clients.bridge
        java, kafka = bridge.java, bridge.java.org.apache.kafka
        with self._raising():
            resource = kafka.common.config.ConfigResource(
                kafka.common.config.ConfigResource.Type.GROUP, self._group
            )
            ops = java.java.util.ArrayList()
            for name, value in settings.items():
                entry = kafka.clients.admin.ConfigEntry(name, value)
                ops.add(
                    kafka.clients.admin.AlterConfigOp(
                        entry, kafka.clients.admin.AlterConfigOp.OpType.SET
                    )
                )
            changes = java.java.util.HashMap()
            changes.put(resource, ops)
            self._admin.incrementalAlterConfigs(changes).all().get()

    def subscribe(self, topics: Sequence[str]) -> None:
        with self._raising():
            self._client.subscribe(list(topics))

    def acquire(self, timeout: float) -> list[Acquired]:
        """The records of one poll. Every record has to be acknowledged before the next poll."""
        with self._raising():
            polled = self._client.poll(self._clients.duration(timeout))
            if not polled.count():
                return []
            self._polled = self._clients.listed(polled)
            records = self._clients.acquired(polled)
        return [
            Acquired((topic, partition), at, header, number=number, deliveries=count)
            for number, (topic, partition, at, header, count) in enumerate(records)
        ]

    def acknowledge(self, otherwise: Mapping[Acknowledgement, Sequence[Acquired]]) -> None:
        """Accepts the records of the last poll, except those in `otherwise`; `confirm` sends it."""
        with self._raising():
            self._polled.forEach(self._accept)
            for how, records in otherwise.items():
                for each in records:
                    self._client.acknowledge(
                        self._polled.get(each.number), getattr(self._types, how.upper())
                    )

    def confirm(self, timeout: float) -> dict[Partition, str]:
        """Sends acknowledgements and waits for the answers: partition -> the error, empty if all
        were confirmed."""
        with self._raising():
            answered = self._client.commitSync(self._clients.duration(timeout))
            found: dict[Partition, str] = {}
            for each in answered.entrySet():
                where, failed = each.getKey(), each.getValue()
                text = str(failed.get().toString()) if failed.isPresent() else ""
                found[str(where.topic()), int(where.partition())] = text
        return found

    def starts(self) -> dict[Partition, int]:
        """The group's start offset in each partition, as its coordinator has it: every record below
        it is finished."""
        java = self._clients.bridge.java
        with self._raising():
            asked = java.java.util.HashMap()
            asked.put(self._group, java.org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec())
            found = (
                self._admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(self._group).get()
            )
            return {
                (str(each.getKey().topic()), int(each.getKey().partition())): int(
                    each.getValue().startOffset()
                )
                for each in found.entrySet()
                if each.getValue() is not None
            }

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        try:
            with raised():
                yield
        except JavaError as error:
            raise self._clients.errors.raising(error) from error

    def discard(self) -> None:
        """Closes both clients in a thread that is not joined. Brokers give unacknowledged records
        to other members."""

        def close() -> None:
            with contextlib.suppress(JavaError), raised():
                self._client.close(self._clients.duration(LEAVES_WITHIN))
            with contextlib.suppress(JavaError), raised():
                self._admin.close(self._clients.duration(0.0))

        threading.Thread(target=close, name="closing a share consumer", daemon=True).start()
