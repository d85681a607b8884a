"""The world of a run in progress: the objects that faults receive, and which clusters and mirrors
are up."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from linkflap.harness.capture import logs
from linkflap.harness.capture.samplers import WatermarkSampler
from linkflap.harness.model.protocols import Deployment, Mirror, is_running
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads.clients import WorkloadClients


@dataclass(slots=True, kw_only=True)
class RunWorld:
    """The FaultWorld that faults see, and what the run itself needs beside it."""

    deployment: Deployment
    mirrors: dict[str, Mirror]
    clients: WorkloadClients
    recorder: RunWriter
    captures: logs.Captures
    sampler: WatermarkSampler
    topics: dict[str, int] = field(default_factory=dict)
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def stopping(self) -> bool:
        return self.ending.is_set()

    def take_up(self, mirror: Mirror) -> None:
        self.mirrors[mirror.link.name] = mirror

    def grown(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions
        self.clients.grown(topic, partitions)

    def sampled_groups(self, cluster: str) -> frozenset[str]:
        return self.sampler.clusters[cluster].sampled_groups

    def group_offsets(self, cluster: str, group: str) -> Mapping[TopicPartition, int]:
        """The committed offsets of a group, as they were last sampled."""
        return self.sampler.clusters[cluster].group_offsets(group)

    def capture(self, moment: str, cluster: str) -> None:
        if self.deployment.topology.attached and cluster not in self.running_clusters:
            # The cluster still answers behind the paths that are cut: later answers are not
            # captured.
            self.sampler.clusters[cluster].stop()
        self.captures.take(moment, cluster)

    @property
    def running_clusters(self) -> list[str]:
        """Clusters that have a running broker."""
        clusters = self.deployment.clusters
        return [name for name, c in clusters.items() if is_running(c)]

    def to_capture(self, died: Collection[str]) -> list[str]:
        """Clusters whose logs must still be captured when the run ends; `died`: those with brokers
        that exited by themselves.

        A dead cluster was captured by the fault that ended it, unless that fault failed; one that
        died by itself has no capture yet, or no new one.
        """
        running_clusters = self.running_clusters
        return [
            n
            for n in self.deployment.clusters
            if n in running_clusters or n in died or not self.captures.current(n)
        ]

    def capture_rest(self, died: Collection[str]) -> None:
        """Captures the logs that must still be captured when the run ends (`to_capture`)."""
        for name in self.to_capture(died):
            self.capture("2-end", name)

    @property
    def running_mirrors(self) -> list[Mirror]:
        return [mirror for mirror in list(self.mirrors.values()) if mirror.alive]

    @property
    def able_mirrors(self) -> list[Mirror]:
        """Mirrors that run between clusters that run."""
        up = self.running_clusters
        return [m for m in self.running_mirrors if m.link.source in up and m.link.destination in up]
