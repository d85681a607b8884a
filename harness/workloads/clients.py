"""All workload clients of a run together: what faults are handed (harness.model.protocols.Clients), and what a run drives.

Order at the end of a run: `stop_producers`, then `drain` of the readers, then `stop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.model.protocols import Recorder
from harness.model.wait import until
from harness.workloads.crew import Crew, Producers, WorkloadProgress

MOVE_WITHIN = 30.0


class WorkloadClients:
    """The clients of several workloads. Safe from several threads as far as each call goes."""

    def __init__(self, workloads: Sequence[Crew[Any]], recorder: Recorder) -> None:
        self.workloads = workloads
        self._recorder = recorder

    def start(self) -> None:
        for workload in self.workloads:
            workload.start()

    def open_transactions(self, cluster: str) -> int:
        """Transactions that have written something and are not ended, on this cluster, now."""
        return sum(workload.open_transactions(cluster) for workload in self.workloads)

    def acknowledged_since(self, time: int, cluster: str) -> int:
        """Records acknowledged on this cluster by operations that returned after `time`."""
        return sum(workload.acknowledged_since(time, cluster) for workload in self.workloads)

    def grown(self, topic: str, partitions: int) -> None:
        """A topic has so many partitions now; its clients take that in before their next operation, or when they look again."""
        for workload in self.workloads:
            workload.grown(topic, partitions)

    def pause(self, cluster: str) -> None:
        """Lets producers' operations in flight end and begins no new ones; returns when nothing is in flight."""
        for workload in self.workloads:
            workload.pause(cluster)

    def move(self, source: str, destination: str, *, drained: bool) -> None:
        """Producers and following readers of `source` go on at `destination`; returns when all have let go of `source`.

        drained: operations in flight have a grace to end; else they are info at once. Paused clients work again afterwards.
        """
        asked = [c for w in self.workloads for c in w.ask_to_move(source, destination, drained=drained)]
        until(
            lambda: all(client.moved for client in asked),
            within=MOVE_WITHIN,
            what=f"clients of {source} to move to {destination}",
            state=lambda: [client.name for client in asked if not client.moved],
        )
        self._recorder.event("clients-moved", source, to=destination)

    def stop_producers(self) -> None:
        """Stops everything that writes; readers read on."""
        self._stop([workload for workload in self.workloads if isinstance(workload, Producers)])

    def drain(self, ends: Mapping[str, Mapping[tuple[str, int], int]], *, within: float) -> None:
        """Every reader reads on to `ends`: cluster -> (topic, partition) -> offset. Before `stop`."""
        for workload in self.workloads:
            workload.drain(ends, within=within)

    def stop(self) -> None:
        """Stops every client and waits for its thread; safe to call twice, and after a failed start."""
        self._stop(self.workloads)

    def _stop(self, workloads: Sequence[Crew[Any]]) -> None:
        for workload in workloads:
            workload.ask_to_stop()
        for workload in workloads:
            workload.stop()

    @property
    def crashes(self) -> list[str]:
        """Clients that died of an error of ours; each was also written as an event."""
        return [crash for workload in self.workloads for crash in workload.crashes]

    def progress(self) -> WorkloadProgress:
        """Counts so far over all clients; cheap, and safe from any thread."""
        return sum((workload.progress() for workload in self.workloads), WorkloadProgress())
