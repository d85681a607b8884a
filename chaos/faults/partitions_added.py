"""partitions-added: the topics at home on a cluster get more partitions while they are written,
read and mirrored.

Breaks    everything that has read its list of partitions once (KIP-195, CreatePartitions):
          producers, readers, mirrors, group offsets.
Bite      the cluster names the new partitions, and clients have written to one of them.
Heal      every cluster to which running mirrors copy the topics has as many partitions, each with a
          leader. The new partitions stay: Kafka cannot remove partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.reached import reached
from linkflap.chaos.faults.settings import number, settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, quiet

ANSWERS_WITHIN: Final = 20.0
HEALS_WITHIN: Final = 60.0


class PartitionsAdded:
    """Adds partitions to the topics of a cluster, and waits until mirrors have added them too."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {"add": 1}
    abouts: ClassVar[Mapping[str, str]] = {
        "add": "partitions that each topic gets, at least 1",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._add = int(number(settings(spec, self.defaults), "add"))
        if self._add < 1:
            raise InputError(
                f"option add of fault {spec.id!r} is {self._add}; it must be 1 or more partitions"
            )
        cluster_of(spec, world)  # raises InputError
        self._world, self._home = world, spec.target
        self._before: dict[str, int] = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

    def inject(self) -> None:
        self._before = {
            name: count
            for name, count in self._world.topics.items()
            if is_data_topic(name, (self._home,))
        }
        wanted = [NewPartitions(name, count + self._add) for name, count in self._before.items()]
        admin = self._admin(self._home)
        try:
            for added in admin.create_partitions(wanted, operation_timeout=ANSWERS_WITHIN).values():
                added.result(2 * ANSWERS_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise FaultError(
                f"cluster {self._home} did not add partitions to {', '.join(self._before)}: {error}"
            ) from error
        until(
            lambda: not self._missing(self._home),
            within=ANSWERS_WITHIN,
            what=f"leaders of new partitions on {self._home}",
        )
        for name, count in self._before.items():
            self._world.grown(name, count + self._add)

    def bite(self) -> Bite:
        return watch(
            self._world,
            "high watermarks of the new partitions",
            "above 0 in one of each topic",
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        added = [
            (name, count + n) for name, count in self._before.items() for n in range(self._add)
        ]
        ends = answered_bounds(self._admin(self._home), added, "high", within=5.0)
        written = {topic for (topic, _), end in ends.items() if end > 0}
        return bool(added) and written == set(self._before), {
            f"{topic}-{n}": end for (topic, n), end in sorted(ends.items())
        }

    def heal(self) -> Sequence[str]:
        checked = []
        for cluster in reached(self._home, self._world) if self._before else ():
            self._wait_for(cluster)
            checked.append(f"{cluster} has the new partitions of {', '.join(self._before)}")
        return checked or ["nothing was added"]

    def _wait_for(self, cluster: str) -> None:
        what = f"{cluster} to have the new partitions"
        try:
            until(
                lambda: not self._missing(cluster),
                within=HEALS_WITHIN,
                what=what,
                state=lambda: self._missing(cluster),
            )
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error

    def _missing(self, cluster: str) -> Sequence[str]:
        """The new partitions that a cluster's metadata does not list, or that have no leader
        there."""
        try:
            known = self._admin(cluster).list_topics(timeout=5.0).topics
        except KafkaException as error:
            return [str(error)]
        return [
            f"{name}-{partition}"
            for name, count in self._before.items()
            for partition in range(count, count + self._add)
            if name not in known
            or partition not in known[name].partitions
            or known[name].partitions[partition].leader < 0
        ]

    def _admin(self, cluster: str) -> AdminClient:
        return AdminClient(quiet(self._world.deployment.clusters[cluster].bootstrap))
