"""records-deleted: the older records of the topics at home on a cluster are deleted (DeleteRecords,
KIP-107) under load.

Breaks    readers and mirrors that have not read that far: they are out of range, and continue at
          the new log start. During a cut the deletion overtakes the mirror, as retention may.
Bite      the leader of every partition reports a log start at or above the requested one, and above
          the former one.
Heal      every cluster to which running mirrors copy the topics is beyond the new log starts.
          Deleted records stay deleted.

Everything below the last stable offset is deleted, so no batch and no transaction is divided.
Nothing else may be lost: no check looks for records below a log start, and every check looks for
those above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.cluster_target import cluster_of, cluster_reason
from linkflap.chaos.faults.reached import reached
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model import events
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, quiet

ANSWERS_WITHIN: Final = 20.0
BEGINS_WITHIN: Final = 30.0
FOLLOWS_WITHIN: Final = 60.0
Offsets = dict[tuple[str, int], int]


class RecordsDeleted:
    """Deletes the records of the topics of a cluster up to the last stable offset
    (DeleteRecords)."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        cluster_of(spec, world)  # raises InputError
        self._world, self._home = world, spec.target
        self._before: Offsets = {}
        self._wanted: Offsets = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return cluster_reason(target, topology)

    def inject(self) -> None:
        admin = self._admin(self._home)
        try:
            until(
                lambda: self._choose(admin),
                within=BEGINS_WITHIN,
                every=0.1,
                what=f"a stable record at home on {self._home}",
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; nothing was deleted") from error
        for (name, n), offset in self._wanted.items():
            self._world.recorder.write(
                events.RecordsDeleted(cluster=self._home, topic=name, partition=n, offset=offset)
            )
        asked = [TopicPartition(name, n, offset) for (name, n), offset in self._wanted.items()]
        try:
            for answer in admin.delete_records(asked, request_timeout=ANSWERS_WITHIN).values():
                answer.result(2 * ANSWERS_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise FaultError(f"cluster {self._home} did not delete records: {error}") from error

    def _choose(self, admin: AdminClient) -> bool:
        """Chooses the offsets up to which records are deleted. Returns whether there is something
        to delete."""
        topics = self._world.topics
        own = [
            (name, n)
            for name, count in topics.items()
            if is_data_topic(name, (self._home,))
            for n in range(count)
        ]
        start = answered_bounds(admin, own, "start", within=ANSWERS_WITHIN)
        stable = answered_bounds(admin, own, "stable", within=ANSWERS_WITHIN)
        self._wanted = {tp: end for tp, end in stable.items() if end > start.get(tp, end)}
        self._before = {tp: start[tp] for tp in self._wanted}
        return bool(self._wanted)

    def bite(self) -> Bite:
        expected = {f"{name}-{n}": offset for (name, n), offset in sorted(self._wanted.items())}
        return watch(self._world, "log starts as the leaders name them", expected, self._measure)

    def _measure(self) -> tuple[bool, object]:
        starts = answered_bounds(self._admin(self._home), self._wanted, "start", within=5.0)
        bit = bool(self._wanted) and all(
            starts.get(tp, -1) >= offset and starts[tp] > self._before[tp]
            for tp, offset in self._wanted.items()
        )
        return bit, {
            f"{name}-{n}": [self._before[name, n], starts.get((name, n))]
            for name, n in sorted(self._wanted)
        }

    def heal(self) -> Sequence[str]:
        if not self._wanted:
            return ["nothing was deleted"]
        checked = []
        for cluster in reached(self._home, self._world):
            self._wait_for(cluster)
            checked.append(
                f"{cluster} has come past the new log starts of {len(self._wanted)} partitions"
            )
        return checked

    def _wait_for(self, cluster: str) -> None:
        behind: list[str] = ["offsets"]

        def past() -> bool:
            ends = answered_bounds(self._admin(cluster), self._wanted, "high", within=5.0)
            behind[:] = [
                f"{name}-{n}"
                for (name, n), offset in self._wanted.items()
                if ends.get((name, n), -1) < offset
            ]
            return not behind

        what = f"{cluster} to come past the records that were deleted"
        try:
            until(past, within=FOLLOWS_WITHIN, every=0.1, what=what, state=lambda: behind[:5])
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error

    def _admin(self, cluster: str) -> AdminClient:
        return AdminClient(quiet(self._world.deployment.clusters[cluster].bootstrap))
