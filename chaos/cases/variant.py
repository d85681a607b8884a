"""The variant of a result: which Kafka, which clients, and which transaction protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from linkflap.harness.model.topology import DEFAULT_KAFKA

Client = Literal["librdkafka", "java", "wire"]
"""Who writes: confluent-kafka, the Java client of the release under test, or requests that the case
itself sends (kio)."""
Protocol = Literal["", "V1", "V2"]
"""Version of the transaction protocol that the cluster has (KIP-890); empty: whatever the release
starts with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What one result is about: a Kafka, by version or directory, who writes, and the transaction
    protocol."""

    kafka: str = DEFAULT_KAFKA
    client: Client = "librdkafka"
    transactions: Protocol = ""

    @property
    def title(self) -> str:
        return " ".join(
            filter(
                None,
                (
                    f"Kafka {self.kafka}",
                    self.client,
                    f"transactions {self.transactions}" * bool(self.transactions),
                ),
            )
        )
