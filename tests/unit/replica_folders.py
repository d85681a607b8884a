"""Folders of replicas, and clusters none of whose brokers runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from linkflap.harness.capture.replicas import PartitionFolder
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.protocols import Broker
from tests.kafka_log import batch, ours, segment


@dataclass
class DeadBroker:
    """The part of a stopped broker that capture needs: its id and its folder."""

    id: int
    log_dir: Path
    cluster: str = "A"
    state: str = "stopped"


def replica(
    tmp_path: Path, number: int, records: int, *, topic: str = "A.x", epoch: int = 0
) -> PartitionFolder:
    broker = DeadBroker(number, tmp_path / str(number))
    folder = broker.log_dir / f"{topic}-0"
    segment(folder, [batch(offset, [ours(offset)]) for offset in range(records)])
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    return PartitionFolder(broker=cast(Broker, broker), topic=topic, partition=0, folder=folder)


def sampled(leader: int, high_watermark: int) -> Watermark:
    return Watermark(
        time=1, returned=2, cluster="A", leader=leader, topic="A.x", partition=0, log_start=0,
        last_stable=0,
        high_watermark=high_watermark,
    )  # fmt: skip


class NoCluster:
    """A cluster without a running broker: it gets no request."""

    name, bootstrap = "A", "127.0.0.1:1"

    def __init__(self, *found: PartitionFolder) -> None:
        self.brokers = {replica.broker.id: replica.broker for replica in found}
