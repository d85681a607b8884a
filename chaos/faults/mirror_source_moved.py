"""mirror-source-moved: the addresses of a mirror's source change: its settings name others, and
nobody answers at the old ones.

Breaks    every connection of the mirror to its source. The new addresses are those that the
          source's brokers give their clients, with no proxy in the path; the link's proxies refuse
          connections. Faults of links do not reach this mirror meanwhile.
Bite      what the source got after the proxies were cut has reached the destination.
Heal      the settings name the proxies again, which let connections through, and all that the
          source had then has arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.administered import link_reason, mirror_of
from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import TopicPartition, Topology, is_data_topic
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import answered_bounds, quiet

CROSSES_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 5.0


class MirrorSourceMoved:
    """Changes the addresses of a mirror's source and cuts the old ones; restores the old addresses
    at the end."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._spec, self._world, self._mirror = spec, world, mirror_of(spec, world)
        on = Target.parse(spec.target)
        self._link = world.deployment.links[spec.target]
        self._source, self._destination = (
            world.deployment.clusters[name] for name in (on.source, on.destination)
        )
        self._homes = tuple(cluster.name for cluster in world.deployment.topology.clusters)
        self._before: Sequence[str] = ()
        self._at_cut: Mapping[TopicPartition, int] = {}
        self._new: Mapping[TopicPartition, int] = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return link_reason(target, topology)

    def inject(self) -> None:
        self._before = self._mirror.source_addresses()
        self._mirror.move_source(
            [broker.client_address for broker in self._source.brokers.values()]
        )
        self._link.cut(owner=self._spec.id)
        self._at_cut = self._ends(self._source.bootstrap)

    def _ends(self, address: str) -> Mapping[TopicPartition, int]:
        """High watermarks of the source's data topics; partitions without a leader are left out."""
        admin = AdminClient(quiet(address))
        known = self._world.topics
        wanted = [
            (name, n)
            for name, count in known.items()
            if is_data_topic(name, self._homes)
            for n in range(count)
        ]
        return answered_bounds(admin, wanted, "high", within=_ANSWERS_WITHIN)

    def bite(self) -> Bite:
        expected = "records past the proxies that are cut"
        name = (
            f"offsets that {self._source.name} got after the cut, and of those how many are on "
            f"{self._destination.name}"
        )
        return watch(self._world, name, expected, self._measure, within=CROSSES_WITHIN)

    def _measure(self) -> tuple[bool, object]:
        if not self._new:
            now = self._ends(self._source.bootstrap)
            self._new = {tp: end for tp, end in now.items() if end > self._at_cut.get(tp, end)}
        there = self._ends(self._destination.bootstrap) if self._new else {}
        crossed = [tp for tp, end in self._new.items() if there.get(tp, -1) >= end]
        bit = bool(crossed) and len(crossed) == len(self._new)
        return bit, {"partitions_written": len(self._new), "crossed": len(crossed)}

    def heal(self) -> Sequence[str]:
        self._link.restore(owner=self._spec.id)
        if not self._before:
            return ["nothing was moved"]
        self._mirror.move_source(self._before)
        named = self._mirror.source_addresses()
        if sorted(named) != sorted(self._before):
            raise FaultError(
                f"the mirror of {self._spec.target} names {', '.join(named)} as its source, not "
                f"{', '.join(self._before)}"
            )
        wanted, left = self._ends(self._source.bootstrap), list[str]()
        if not wanted:
            raise FaultError(
                f"cluster {self._source.name} did not say where its logs end, so that nothing shows"
                " what arrived"
            )

        def arrived() -> bool:
            there = self._ends(self._destination.bootstrap)
            left[:] = [
                f"{name}-{n}" for (name, n), end in wanted.items() if there.get((name, n), -1) < end
            ]
            return not left

        what = f"what {self._source.name} has to be on {self._destination.name}"
        try:
            until(arrived, within=CROSSES_WITHIN, every=0.1, what=what, state=lambda: left[:5])
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error
        return [
            f"the mirror's source is {', '.join(named)} again",
            f"{len(wanted)} partitions caught up",
        ]
