"""The parts that all broker faults share: the target, its answers before the fault, how it is
stopped, and the heal.

Promises: healed means that the broker's process runs, its own listener answers, and it is back in
the ISR of every partition of which it has a replica and its cluster has a leader, by the metadata.
Other faults may break other brokers.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import BITES_WITHIN, Measure, milliseconds, watch
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import FaultError, InputError, LinkflapError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, Broker, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.wire.offsets import quiet

ANSWERS_WITHIN: Final = 10.0
UNANSWERED_WITHIN: Final = 1.0
HEALS_WITHIN: Final = 90.0


def broker_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is `A/1`, broker 1 of a cluster A of the topology that has at least so many
    brokers; otherwise the reason."""
    on = Target.parse(target)
    cluster = next((cluster for cluster in topology.clusters if cluster.name == on.cluster), None)
    if cluster is not None and 1 <= on.broker <= cluster.brokers:
        return None
    known = ", ".join(
        f"{c.name}/1" + (f" to {c.name}/{c.brokers}" if c.brokers > 1 else "")
        for c in topology.clusters
    )
    return f"{target!r} is not a broker; this topology has {known}"


class BrokerParts:
    """One broker as the target of one fault."""

    def __init__(self, spec: FaultSpec, world: World) -> None:
        try:
            self.cluster = world.deployment.clusters[spec.on.cluster]
            self.broker = self.cluster.brokers[spec.on.broker]
        except KeyError:
            raise InputError(
                f"fault {spec.id!r} targets {spec.target!r}, which is no broker of this deployment"
            ) from None
        self._world, self._target = world, spec.target
        self.before: float | None = None
        self._holds = 0

    def answers(self, *, within: float) -> float | None:
        """Seconds of a round trip on the broker's own CLIENT listener; None without an answer."""
        return probe.reach(self.broker.client_address, within=within)

    def look(self) -> None:
        """Before the fault: measures the round trip, and notes the partitions that the broker
        replicates."""
        self.before = self.answers(within=ANSWERS_WITHIN)
        with contextlib.suppress(KafkaException):
            self._holds = len(self._held(AdminClient(quiet(self.cluster.bootstrap))))

    def bite(
        self, observable: str, expected: object, measure: Measure, *, within: float = BITES_WITHIN
    ) -> Bite:
        """The same as `bites.watch`. Without an answer before the fault, there is no bite."""
        if self.before is None:
            return Bite(
                bit=False,
                observable=observable,
                measured="no answer before the fault either",
                expected=expected,
            )
        return watch(self._world, observable, expected, measure, within=within)

    def gone(self) -> tuple[bool, object]:
        """A measurement: whether the broker no longer answers."""
        seconds = self.answers(within=UNANSWERED_WITHIN)
        return seconds is None, {
            "before_ms": milliseconds(self.before),
            "during_ms": milliseconds(seconds),
        }

    def heal(self, *, still_cut_by: Sequence[str] = ()) -> list[str]:
        """Runs the broker again from any state, and checks that it is healthy. Raises FaultError.

        `still_cut_by`: lasting partition faults of its cluster, which may keep it out of the ISR
        until they are healed.
        """
        try:
            if self.broker.state == "paused":
                self.broker.resume()
            if self.broker.state == "stopped":
                self.broker.start()
            until(
                lambda: self.answers(within=5.0),
                within=HEALS_WITHIN,
                what=f"broker {self._target} to answer",
            )
            held = 0 if still_cut_by else self._whole()
        except LinkflapError as error:
            raise FaultError(
                f"broker {self._target} was not healed: {error}; see {self.broker.log}"
            ) from error
        whole = f"in the ISR of all {held} partitions that it holds and its cluster leads"
        if still_cut_by:
            whole = (
                f"its place in the ISR not asked: {', '.join(still_cut_by)} still cuts its cluster"
            )
        return [f"process of {self._target} runs", "its listener answers", whole]

    def _whole(self) -> int:
        """The number of partitions that it replicates, once it is in the ISR of all of them. Raises
        DeadlineExceeded."""
        admin = AdminClient(quiet(self.cluster.bootstrap))
        missing: list[str] = ["metadata"]
        held = 0

        def whole() -> bool:
            nonlocal missing, held
            with contextlib.suppress(KafkaException):
                missing, held = self._missing(admin)
            return not missing

        until(
            whole,
            within=HEALS_WITHIN,
            what=f"{self._target} to be in the ISR again",
            every=0.1,
            state=lambda: missing[:5],
        )
        return held

    def _missing(self, admin: AdminClient) -> tuple[list[str], int]:
        held = self._held(admin)
        if len(held) < self._holds:  # a restarted broker may first report an empty cluster
            return ["metadata"], 0
        # If only a mirror is in the ISR, its followers are never in the ISR, even if they are up to
        # date. The checks compare their bytes.
        mine = {
            name: isr for name, isr in held.items() if not isr or self.cluster.brokers.keys() & isr
        }
        return [name for name, isr in mine.items() if self.broker.id not in isr], len(mine)

    def _held(self, admin: AdminClient) -> dict[str, set[int]]:
        """The partitions with a replica on this broker, each with its ISR. Raises
        KafkaException."""
        return {
            f"{name}-{number}": set(partition.isrs)
            for name, topic in admin.list_topics(timeout=5).topics.items()
            for number, partition in topic.partitions.items()
            if self.broker.id in partition.replicas
        }


class BrokerFault(ABC):
    """A fault of one broker. A fault with another effect overrides the measurement."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}
    expected = "no answer"

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._values = settings(spec, self.defaults)
        self._parts = BrokerParts(spec, world)

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return broker_reason(target, topology)

    @abstractmethod
    def take_down(self, broker: Broker) -> None:
        """Breaks the broker, and returns when it is broken."""

    def inject(self) -> None:
        self._parts.look()
        self.take_down(self._parts.broker)

    def measure(self) -> tuple[bool, object]:
        return self._parts.gone()

    def bite(self) -> Bite:
        return self._parts.bite(
            "round trip at the broker's own listener", self.expected, self.measure
        )

    def heal(self) -> Sequence[str]:
        return self._parts.heal()
