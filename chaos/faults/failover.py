"""failover-planned and failover-forced: clients move from a link's source to its destination, and
stay.

failover-planned
  Does    clients of the source stop; the mirror drains, after every open transaction of the source
          has ended; the mirror stops; clients continue at the destination. Nothing may be lost.
  Bite    records are acknowledged on the destination after the move.
failover-forced
  Does    every broker of the source is killed (SIGKILL); the mirror stops at its position; clients
          continue at the destination. The dead source's logs are captured. Records that were not
          mirrored are lost: the recovery point. With `source=stalled` the brokers are suspended
          (SIGSTOP) first, and killed once the mirror has been promoted: until then connections are
          open, and nothing answers.
  Bite    no broker of the source answers, and transactions were open when they died.
Heal      none, by design. The check is that the mirror stays down, and that the failover was
          completed.

Both record the promotion offset of every mirrored partition before a client writes to the
destination.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.bites import watch
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.clock import now
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.events import Failover, Promotion
from linkflap.harness.model.faults import Target
from linkflap.harness.model.protocols import Bite, FailoverKind, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology, is_data_topic
from linkflap.harness.model.wait import patient, until
from linkflap.harness.runtimes import probe
from linkflap.harness.wire.offsets import bounds, quiet

DRAINS_WITHIN: Final = 90.0
WRITES_WITHIN: Final = 30.0
OPENS_WITHIN: Final = 20.0
ANSWERS_WITHIN: Final = 1.0
_ASK_SECONDS: Final = 5.0


def mirrored_way(target: str, topology: Topology) -> str | None:
    """None if `target` is a link, or the reverse of a link whose mirror can be reversed; otherwise
    the reason in one sentence."""
    links = [link.name for link in topology.links]
    if target in links or Target.parse(target).back in links:
        return None
    return (
        f"{target!r} is no link; clients fail over along {', '.join(links) or 'no link'}, and back"
    )


class _Failover:
    """The common parts of both kinds: the target, the end of the mirror, the promotion, and the
    move of the clients."""

    restores = False
    defaults: ClassVar[Mapping[str, Option]] = {}
    abouts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        self._values = settings(spec, self.defaults)
        if spec.target not in world.mirrors:
            known = ", ".join(sorted(world.mirrors)) or "none"
            raise InputError(
                f"fault {spec.id!r} fails over the mirror {spec.target!r}, but the mirrors are "
                f"{known}"
            )
        self._world, self._spec = world, spec
        self._mirror = world.mirrors[spec.target]
        link = self._mirror.link
        self._source, self._destination = (
            world.deployment.clusters[link.source],
            world.deployment.clusters[link.destination],
        )
        self._moved_at = 0

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return mirrored_way(target, topology)

    def _promote(self, kind: FailoverKind, *, fault_time: int, open_transactions: int) -> None:
        """Ends the mirror, and records the offsets at which the destination's own records begin."""
        self._mirror.fail_over(kind)
        name, cluster = self._spec.target, self._destination.name
        for (topic, partition), offset in sorted(self._mirror.promotion().items()):
            self._world.recorder.write(
                Promotion(
                    link=name, cluster=cluster, topic=topic, partition=partition, offset=offset
                )
            )
        self._world.recorder.write(
            Failover(
                link=name, mode=kind, fault_time=fault_time, open_transactions=open_transactions
            )
        )

    def _move(self, *, drained: bool) -> None:
        self._moved_at = now()
        self._world.clients.move(self._source.name, self._destination.name, drained=drained)

    def heal(self) -> Sequence[str]:
        """Heals nothing, by design. Raises FaultError if the failover was not completed."""
        if not self._moved_at:
            raise FaultError(
                f"failover {self._spec.id} along {self._spec.target} did not go through: clients "
                "were not moved"
            )
        if self._mirror.alive:
            raise FaultError(
                f"the mirror of {self._spec.target} runs again after failover {self._spec.id}: "
                "nothing may start it"
            )
        return [
            f"mirror {self._spec.target} down",
            f"clients of {self._source.name} are at {self._destination.name}",
        ]


class FailoverPlanned(_Failover):
    """A drained failover: all committed records of the source are on the destination before clients
    move there."""

    def inject(self) -> None:
        began = now()
        self._world.clients.pause(self._source.name)
        admin = AdminClient(quiet(self._source.bootstrap))
        state = "the source's open transactions"
        lag: int | None = None

        def drained() -> bool:
            nonlocal state, lag
            if self._world.stopping:
                raise FaultError(
                    f"failover {self._spec.id} was abandoned: the run is ending, and it still "
                    f"waited for {state}"
                )
            # An open transaction hides later commits from a mirror that reads with read_committed.
            # The lag of such a mirror would be 0 too early.
            if hidden := self._open(admin):
                state = f"open transactions on {', '.join(hidden)}"
                return False
            lag = self._mirror.lag()
            state = f"a lag of {'unknown size' if lag is None else lag}"
            return lag == 0

        try:
            until(
                drained,
                within=DRAINS_WITHIN,
                every=0.05,
                what=f"{self._spec.target} to drain",
                state=lambda: state,
                left=lambda: lag,
            )
        except DeadlineExceeded as error:
            raise FaultError(f"failover {self._spec.id} was abandoned: {error}") from error
        self._promote("planned", fault_time=began, open_transactions=0)
        self._move(drained=True)

    def _open(self, admin: AdminClient) -> list[str]:
        """Partitions of the source that the link mirrors, and whose last stable offset is below the
        high watermark."""
        # clients of other homes continue
        homes = self._world.deployment.topology.homes_over(self._mirror.link)
        try:
            topics = admin.list_topics(timeout=_ASK_SECONDS).topics
            partitions = [
                (name, number)
                for name, topic in topics.items()
                if is_data_topic(name, homes)
                for number in topic.partitions
            ]
            stable = bounds(admin, partitions, "stable", within=_ASK_SECONDS)
            high = bounds(admin, partitions, "high", within=_ASK_SECONDS)
        except KafkaException as error:
            return [f"partitions that did not answer ({error.args[0].str()})"]
        return [
            f"{topic}-{number}"
            for (topic, number), end in sorted(high.items())
            if stable[topic, number] < end
        ]

    def bite(self) -> Bite:
        name = f"records acknowledged on {self._destination.name} after the move"
        return watch(self._world, name, "at least 1", self._measure, within=patient(WRITES_WITHIN))

    def _measure(self) -> tuple[bool, object]:
        acknowledged = self._world.clients.acknowledged_since(
            self._moved_at, self._destination.name
        )
        return acknowledged > 0, acknowledged


class FailoverForced(_Failover):
    """Not drained: the source dies with at least `least_open` (an option) transactions open.

    With option `source=stalled` it is suspended until the mirror has been promoted, and then
    killed.
    """

    defaults: ClassVar[Mapping[str, Option]] = {"least_open": 1, "source": "killed|stalled"}
    abouts: ClassVar[Mapping[str, str]] = {
        "least_open": "transactions that are open on the source when it stops",
        "source": "killed before the mirror is promoted, or only stopped until then",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        super().__init__(spec, world)
        self._open_transactions = 0
        self._least = int(self._values["least_open"])
        self._stalled = self._values["source"] == "stalled"

    def inject(self) -> None:
        # The transaction that made the trigger true may have ended since.
        with contextlib.suppress(DeadlineExceeded):
            until(
                self._some_open,
                within=OPENS_WITHIN,
                every=0.005,
                what=f"a transaction to be open on {self._source.name}",
            )
        self._end_source(stall=self._stalled)
        # not earlier: until the last broker is dead, requests of clients are still answered
        died = now()
        # Counted after the kill. Before it, the only open transaction might have been about to end;
        # later, clients may have given theirs up.
        self._open_transactions = max(
            self._open_transactions, self._world.clients.open_transactions(self._source.name)
        )
        try:
            self._promote("forced", fault_time=died, open_transactions=self._open_transactions)
        finally:
            self._end_source(stall=False)
        self._move(drained=False)
        # The logs of dead brokers do not change, so clients need not wait for the copy.
        self._world.capture(f"1-{self._spec.id}", self._source.name)

    def _end_source(self, *, stall: bool) -> None:
        """Suspends or kills every broker of the source. Does nothing if they are dead."""
        ends = [
            broker.pause if stall else broker.kill
            for broker in self._source.brokers.values()
            if broker.state != "stopped"
        ]
        if not ends:
            return
        # All at once: otherwise the remaining brokers would fence the first one, elect leaders, and
        # end transactions.
        with ThreadPoolExecutor(len(ends)) as pool:
            for ended in [pool.submit(end) for end in ends]:
                ended.result()

    def _some_open(self) -> bool:
        self._open_transactions = self._world.clients.open_transactions(self._source.name)
        return self._open_transactions >= self._least or self._world.stopping

    def bite(self) -> Bite:
        expected = {"answering": [], "open_transactions": f"at least {self._least}"}
        return watch(
            self._world,
            f"brokers of {self._source.name}, and transactions open at their death",
            expected,
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        answering = [
            broker.client_address
            for broker in self._source.brokers.values()
            if probe.reach(broker.client_address, within=ANSWERS_WITHIN) is not None
        ]
        seen = {"answering": answering, "open_transactions": self._open_transactions}
        return not answering and self._open_transactions >= self._least, seen

    def heal(self) -> Sequence[str]:
        checked = super().heal()
        running = [
            str(broker.id) for broker in self._source.brokers.values() if broker.state != "stopped"
        ]
        if running:
            raise FaultError(
                f"brokers {', '.join(running)} of {self._source.name} run after the forced failover"
                f" {self._spec.id}"
            )
        return [*checked, f"brokers of {self._source.name} down"]
