"""mirror-reverse: reverses a mirror that has failed over. Its old source then follows its old
destination: failback begins.

Does    starts dead brokers of the link's source, and captures the source's logs with the records
        that were never mirrored. Then a mirror over the reverse link truncates those records and
        copies the other cluster's. Clients stay where they are: a failover along the reverse link
        moves them back.
Bite    all that the new source had when the reverse mirror was running has reached the new
        destination.
Heal    the reverse mirror is alive. It stays, and so do the brokers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.failover import mirrored_way
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import FaultError, InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, Mirror, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import bounds, quiet

LED_WITHIN: Final = 60.0
REACHES_WITHIN: Final = 60.0
_ASK_SECONDS: Final = 5.0


class MirrorReverse:
    """Reverses a mirror that has failed over."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        if spec.target not in world.mirrors:
            known = ", ".join(sorted(world.mirrors)) or "none"
            raise InputError(
                f"fault {spec.id!r} reverses the mirror {spec.target!r}, but the mirrors are "
                f"{known}"
            )
        self._world, self._spec = world, spec
        link = world.mirrors[spec.target].link
        self._cluster = world.deployment.clusters[link.source]
        self._there = AdminClient(quiet(world.deployment.clusters[link.destination].bootstrap))
        self._homes = tuple(cluster.name for cluster in world.deployment.topology.clusters)
        self._mirror: Mirror | None = None
        self._written_before = -1

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        link = Target.parse(target).link
        if link and {link, link.reverse} <= set(topology.links):
            own = f"a mirror of its own runs from {link.destination} to {link.source}"
            return f"{own}; {target} can be reversed where there is no such link"
        return mirrored_way(target, topology)

    def inject(self) -> None:
        mirror = self._world.mirrors[self._spec.target].reversed()
        side_by_side(
            broker.start for broker in self._cluster.brokers.values() if broker.state == "stopped"
        )
        self._led()
        self._world.capture(f"1-{self._spec.id}", self._cluster.name)
        self._world.take_up(mirror)
        mirror.start()
        self._mirror = mirror
        self._written_before = self._written()

    def _led(self) -> None:
        """Waits until every existing data partition has a leader. Raises DeadlineExceeded."""
        admin = AdminClient(quiet(self._cluster.bootstrap))
        waiting: list[str] = []

        def led() -> bool:
            nonlocal waiting
            with contextlib.suppress(KafkaException):
                found = admin.list_topics(timeout=_ASK_SECONDS).topics
                waiting = [
                    f"{name}-{number}"
                    for name, topic in found.items()
                    if is_data_topic(name, self._homes)
                    for number, partition in topic.partitions.items()
                    if partition.leader < 0
                ]
                return not waiting
            return False

        until(
            led,
            within=LED_WITHIN,
            every=0.1,
            what=f"{self._cluster.name} to lead its partitions",
            state=lambda: waiting[:5],
        )

    def _written(self) -> int:
        """The sum of the high watermarks of the new source's partitions; -1 if it does not
        answer."""
        try:
            topics = self._there.list_topics(timeout=_ASK_SECONDS).topics
            partitions = [
                (n, p)
                for n, topic in topics.items()
                if is_data_topic(n, self._homes)
                for p in topic.partitions
            ]
            return sum(bounds(self._there, partitions, "high", within=_ASK_SECONDS).values())
        except KafkaException:
            return -1

    def bite(self) -> Bite:
        name = (
            f"offsets of the new source that have not reached {self._cluster.name}, of those it had"
            " at the start"
        )
        return watch(self._world, name, 0, self._measure, within=REACHES_WITHIN, falling=True)

    def _measure(self) -> tuple[bool, object]:
        written = self._written()
        lag = self._mirror.lag() if self._mirror is not None else None
        if lag is None or min(written, self._written_before) < 0:
            return False, None
        left = max(0, lag - (written - self._written_before))
        return left == 0, left

    def heal(self) -> Sequence[str]:
        if self._mirror is None:
            raise FaultError(
                f"the mirror of {self._spec.target} was not reversed by fault {self._spec.id}: see "
                "its log"
            )
        if not self._mirror.alive:
            raise FaultError(
                f"the mirror of {self._mirror.link.name} ended after fault {self._spec.id} had "
                "begun it: see its log"
            )
        return [f"mirror {self._mirror.link.name} alive", f"brokers of {self._cluster.name} up"]
