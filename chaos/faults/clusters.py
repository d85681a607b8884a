"""Faults of clusters: elected brokers lost, rolling restarts and upgrades, partitioned networks."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import psutil

from linkflap.chaos.faults import base
from linkflap.chaos.faults.base import FaultBase, milliseconds, settings
from linkflap.chaos.faults.brokers import (
    ANSWERS_WITHIN,
    HEALS_WITHIN,
    UNANSWERED_WITHIN,
    BrokerParts,
    ConfinedFault,
    confines_of,
)
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError
from linkflap.harness.model.faults import Target
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, Broker, Cluster, Confines, FaultWorld
from linkflap.harness.model.scenario import (
    COMMAND,
    READERS,
    WITH_TRANSACTIONS,
    FaultSpec,
    Scenario,
    clusters_of,
    group_of,
)
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution.kafka import released
from linkflap.harness.runtimes.probe import quorum
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import NoAnswer, access_to
from linkflap.harness.wire.peer import Peer


def cluster_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a cluster of the topology; otherwise the reason."""
    if any(cluster.name == target for cluster in topology.clusters):
        return None
    return (
        f"{target!r} is not a cluster; this topology has "
        f"{', '.join(cluster.name for cluster in topology.clusters)}"
    )


def cluster_of(spec: FaultSpec, world: FaultWorld) -> Cluster:
    """The target cluster. Raises InputError if the deployment has no cluster of that name."""
    clusters = world.deployment.clusters
    if spec.target not in clusters:
        raise InputError(
            f"fault {spec.id!r} targets {spec.target!r}, but the clusters are {', '.join(clusters)}"
        )
    return clusters[spec.target]


ELECTED_WITHIN: Final = 60.0


class ElectedLoss(FaultBase, ABC):
    """Kills the broker that holds an elected role of a cluster (`role`).

    The fault looks up the holder when it begins. It has bitten when that broker no longer answers
    and, if the others are a majority, they have elected one of themselves. The heal is that of any
    broker fault.
    """

    role: ClassVar[str]

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self.cluster: Cluster = cluster_of(spec, world)
        self._parts: BrokerParts | None = None

    reason = staticmethod(cluster_reason)

    @abstractmethod
    def holder(self, address: str) -> int | None:
        """The broker that holds the role, as the broker at `address` reports. None while there is
        none."""

    def inject(self) -> None:
        held = until(
            self._elected,
            within=ELECTED_WITHIN,
            what=f"the {self.role} of {self.cluster.name} to be elected",
        )
        self._parts = BrokerParts(
            replace(self._spec, target=f"{self.cluster.name}/{held}"), self._world
        )
        self._parts.measure_before()
        self._parts.broker.kill()

    def _elected(self, besides: int = -1) -> int | None:
        """The holder, as a running broker reports it. Brokers are numbered from 1."""
        for number, broker in self.cluster.brokers.items():
            if (
                number != besides
                and broker.state == "running"
                and (found := self.holder(broker.client_address)) is not None
            ):
                return found
        return None

    def bite(self) -> Bite:
        expected = "silence of its holder" + (
            ", and another broker elected" if self._others_can_elect else ""
        )
        if self._parts is None:
            return Bite(
                bit=False, observable=self.role, measured="nobody held it", expected=expected
            )
        return self._parts.bite(
            f"the {self.role} of {self.cluster.name}",
            expected,
            self._measure,
            within=ELECTED_WITHIN,
        )

    @property
    def _others_can_elect(self) -> bool:
        return 2 * sum(broker.state == "running" for broker in self.cluster.brokers.values()) > len(
            self.cluster.brokers
        )

    def _measure(self) -> tuple[bool, object]:
        assert self._parts is not None
        lost = self._parts.broker.id
        seconds = self._parts.answers(within=UNANSWERED_WITHIN)
        successor = self._elected(besides=lost)
        elected = successor not in (None, lost) if self._others_can_elect else True
        return seconds is None and elected, {
            "lost": lost,
            "round_trip_ms": milliseconds(seconds),
            "successor": successor,
        }

    def heal(self) -> Sequence[str]:
        if self._parts is None:
            return ["no broker was killed"]
        checked = self._parts.heal()
        try:
            holder = until(
                self._elected, within=HEALS_WITHIN, what=f"a {self.role} of {self.cluster.name}"
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; see {self._parts.broker.log}") from error
        return [*checked, f"{self.role}: {self.cluster.name}/{holder}"]


class ControllerLoss(ElectedLoss):
    """Kills the active controller of a cluster, and starts it again at the end.

    Breaks    everything that needs the controller (elections, ISR changes, new topics,
              registrations) until the quorum elects another.
    Bite      the broker does not answer in the window, and the others (where they are a majority)
              have another active controller.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds; the quorum has a leader.
    """

    role = "active controller"

    def holder(self, address: str) -> int | None:
        found = quorum(address)
        return found.leader if found is not None and found.leader in self.cluster.brokers else None


_KEY_TYPES: Final = {"groups": 0, "transactions": 1}
"""The key types of FindCoordinator (KIP-98)."""
_ANSWERS_WITHIN: Final = 5


class CoordinatorLoss(ElectedLoss):
    """Kills the coordinator of a cluster, and starts it again at the end; option of (transactions
    or groups).

    Breaks    transactions that are ending, groups that members join or commit to: the next
              coordinator reads its log first.
    Bite      the broker does not answer in the window, and the others (where they are a majority)
              have another coordinator.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds; there is a coordinator.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "of": OptionAbout.one_of(
            "transactions",
            "groups",
            about="the coordinator of a transactional id, or that of a consumer group",
        ),
    }
    role = "coordinator"

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        """A mirror's process may be a client of its destination too, but the scenario does not show
        that."""
        if any(link.destination == spec.target for link in scenario.topology.links):
            return None
        groups = spec.options.get("of") == "groups"
        kinds = (*READERS, COMMAND) if groups else (*WITH_TRANSACTIONS, COMMAND)
        if any(
            workload.kind in kinds and spec.target in clusters_of(workload, scenario)
            for workload in scenario.workloads
            if not groups or group_of(workload) or workload.kind == COMMAND
        ):
            return None
        return f"no client of that cluster has {'a consumer group' if groups else 'transactions'}"

    def holder(self, address: str) -> int | None:
        """The coordinator of one name; in linkflap's clusters it is that of all. Brokers create its
        log for the first client that asks, which may be this one: no client of a destination needs
        it before a failover."""
        m = messages.request("find_coordinator", 4)
        asked = m.FindCoordinatorRequest(
            key_type=_KEY_TYPES[str(self._values["of"])], coordinator_keys=(self.role,)
        )
        with contextlib.closing(Peer(address, access_to(address))) as broker:
            try:
                answer = broker.call("find_coordinator", 4, asked, within=_ANSWERS_WITHIN)
            except NoAnswer:
                return None
        (found,) = answer.coordinators
        return int(found.node_id) if found.node_id in self.cluster.brokers else None


OBSERVABLE = "round trip at each broker's own listener"


class RollingRestart(FaultBase):
    """Restarts all brokers of a cluster, one after the other. Each one must be in sync before the
    next is restarted.

    Breaks    every connection, every leadership and every coordinator role once, while the other
              brokers continue.
    Bite      each broker answered a round trip before its restart, but not during it. Afterwards it
              was in the ISR of every partition that it holds.
    Heal      every process runs, every listener answers, every broker is in the ISR of every
              partition that it holds.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._parts = [
            BrokerParts(replace(spec, target=f"{spec.target}/{number}"), world)
            for number in cluster_of(spec, world).brokers
        ]
        self._begun: list[BrokerParts] = []
        self._seen: list[tuple[bool, object]] = []

    reason = staticmethod(cluster_reason)

    def inject(self) -> None:
        for parts in self._parts:
            if self._world.stopping:
                return
            parts.measure_before()
            self._begun.append(parts)
            parts.broker.stop()
            unanswered, seen = parts.unanswered()
            self._seen.append((unanswered and parts.before is not None, seen))
            self.before_start(parts)
            parts.heal()

    def before_start(self, parts: BrokerParts) -> None:
        """A hook for subclasses: runs after a broker was shut down, before it is started again.
        Does nothing here."""

    def bite(self) -> Bite:
        bit = len(self._seen) == len(self._parts) and all(
            unanswered for unanswered, _ in self._seen
        )
        return Bite(
            bit=bit,
            observable=OBSERVABLE,
            measured=[seen for _, seen in self._seen],
            expected="each silent in its turn",
        )

    def heal(self) -> Sequence[str]:
        return [line for parts in self._begun for line in parts.heal()] or [
            "no broker was restarted"
        ]


_JAR: Final = re.compile(r"kafka-clients-([0-9.]+)\.jar")
_TARGETS: Final = (
    DEFAULT_KAFKA,
    *(release for release in reversed(released()) if release != DEFAULT_KAFKA),
)


class RollingUpgrade(RollingRestart):
    """Restarts all brokers of a cluster with a newer release, one after the other; option to.
    Process runtime only.

    Breaks    as rolling-restart. In addition, between the first broker and the last, the cluster
              runs two releases: leaders, followers and coordinators use the versions that both
              know, and each release reads the other's data.
    Bite      each broker answered before its turn, did not in it, and its process then runs the
              jars of the new release.
    Heal      every process runs, every listener answers, every broker is in the ISR of every
              partition that it holds.

    The cluster keeps the features that it had (metadata.version, transaction.version, …): raising
    them is a separate step, which cannot be undone. Brokers must be processes: a container has one
    image.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "to": OptionAbout.one_of(*_TARGETS, about="the release that all brokers run in the end"),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._to = str(self._values["to"])
        runs = world.deployment.clusters[spec.target].kafka
        if reason := _no_upgrade(runs, self._to):
            raise InputError(f"fault {spec.id!r} ({spec.fault}) on {spec.target}: {reason}")
        self._running: dict[int, str | None] = {}

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        if reason := cluster_reason(target, topology):
            return reason
        runs = topology.cluster(target).kafka
        if older(runs, released()[-1]):
            return None
        return (
            f"{target!r} runs {runs}, and no newer release is known; give it an older one: "
            f"{target}@{released()[-2]}"
        )

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        to = str(settings(spec, cls.options)["to"])
        return _no_upgrade(scenario.topology.cluster(spec.target).kafka, to)

    def before_start(self, parts: BrokerParts) -> None:
        self._world.deployment.replace_release(self._spec.target, parts.broker.id, self._to)

    def inject(self) -> None:
        super().inject()
        self._running = {parts.broker.id: running(parts.broker.pid) for parts in self._parts}

    def bite(self) -> Bite:
        silent = super().bite()
        bit = silent.bit and set(self._running.values()) == {self._to}
        measured = {"turns": silent.measured, "runs": self._running}
        return Bite(
            bit=bit,
            observable="each broker's own listener, and what its process runs",
            measured=measured,
            expected=f"all run {self._to}",
        )

    def heal(self) -> Sequence[str]:
        return [
            *super().heal(),
            *(f"broker {number} runs {release}" for number, release in self._running.items()),
        ]


def _no_upgrade(runs: str, to: str) -> str | None:
    """None if a cluster can be upgraded to this release; otherwise the reason."""
    return None if older(runs, to) else f"it runs {runs}, and {to} is no newer; name a newer one"


def older(one: str, other: str) -> bool:
    """Whether both releases are known, and the first is older. A user's folder is not a known
    release."""
    known = released()
    return one in known and other in known and known.index(one) < known.index(other)


def running(pid: int | None) -> str | None:
    """The release of the jars on a process's class path."""
    try:
        found = _JAR.search(" ".join(psutil.Process(pid).cmdline())) if pid else None
    except psutil.NoSuchProcess:
        return None
    return found[1] if found else None


_SEEN_WITHIN: Final = 60.0


class NetworkPartition(ConfinedFault):
    """Cuts a broker off from its peers; options direction (both, out, in) and peer (a broker's
    number; 0: all).

    Breaks    replication and the quorum, not the clients: a leader without followers, a fenced
              follower that still serves clients, a controller without a majority. `both` cuts both
              ways; `out` only connections that the broker opens to its peers (it cannot fetch, vote
              or send heartbeats; they can fetch from it), `in` only those that they open to it.
    Bite      measured from inside the containers: round trips in the cut direction are not
              answered, those in the other are.
    Heal      round trips in both directions are answered, it is in the ISR of every partition that
              it holds.

    Overlapping partitions add up. Each heal removes only its own rules; paths that another
    partition still cuts stay cut and are not checked. A partition that cuts only paths that are cut
    already has no bite, because its effect cannot be measured.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "direction": OptionAbout.one_of(
            "both", "out", "in", about="which connections are cut: both, incoming, or outgoing"
        ),
        "peer": OptionAbout(
            default=0, about="number of the one broker that it is cut off from; 0: all"
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        broker, peer = self._parts.broker, int(base.number(self._values, "peer"))
        others = [
            other
            for number, other in self._parts.cluster.brokers.items()
            if number != broker.id and peer in (0, number)
        ]
        if not others:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs a peer of {spec.target}: another broker of"
                " its cluster"
            )
        self._peers: Mapping[int, tuple[Broker, Confines]] = {
            other.id: (other, confines_of(other, spec)) for other in others
        }
        self._out, self._in = (self._values["direction"] in ("both", way) for way in ("out", "in"))
        self._asked = others[0].id
        self._answered_before = False

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        reason = super().applies_to(target, topology)
        name = Target.parse(target).cluster
        if reason is None and topology.cluster(name).brokers == 1:
            return f"{target!r} has no peer: cluster {name} has one broker, and needs two or more"
        return reason

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        peer, brokers = spec.options.get("peer", 0), scenario.topology.cluster(spec.on.cluster)
        others = [n for n in range(1, brokers.brokers + 1) if n != spec.on.broker]
        if peer in (0, *others):
            return None
        return f"it has no peer {peer}; give {' or '.join(map(str, others))}, or 0 for all"

    def take_down(self, broker: Broker) -> None:
        self._asked = next((peer for peer in self._peers if not self._hidden(peer)), self._asked)
        trips = self._round_trips(within=ANSWERS_WITHIN)
        cut = self._cut_by_others(self._asked)
        self._answered_before = not self._hidden(self._asked) and all(
            trip or was for trip, was in zip(trips, cut, strict=True)
        )
        cuts: list[Callable[[], None]] = []
        if self._out:
            addresses = [
                address for peer, _ in self._peers.values() for address in peer.inner_addresses
            ]
            cuts.append(lambda: self.confines.block(self._id, addresses))
        if self._in:
            cuts += [self._cut_in(confines, broker) for _, confines in self._peers.values()]
        side_by_side(cuts)

    def _cut_in(self, confines: Confines, broker: Broker) -> Callable[[], None]:
        return lambda: confines.block(self._id, broker.inner_addresses)

    def _cut_by_others(self, number: int) -> tuple[bool, bool]:
        """Whether another partition fault cuts the path to a peer, and the path back."""
        peer, there = self._peers[number]
        ways = ((self.confines, peer), (there, self._parts.broker))
        out, back = (
            any(
                owner != self._id and to.inner_addresses[0] in held
                for owner, held in at.blocks.items()
            )
            for at, to in ways
        )
        return out, back

    def _hidden(self, number: int) -> bool:
        """Whether the effect of this fault on a peer cannot be seen, because another fault has the
        same effect already."""
        out, back = self._cut_by_others(number)
        return (self._out and out) or (self._in and back)

    def _round_trips(self, *, within: float, number: int = 0) -> tuple[float | None, float | None]:
        """Seconds of a round trip from the broker to a peer, and from the peer to the broker; None
        without an answer."""
        peer, there = self._peers[number or self._asked]
        found: dict[str, float | None] = {}

        def out() -> None:
            found["out"] = self.confines.round_trip(peer.inner_addresses[0], within=within)

        def back() -> None:
            found["in"] = there.round_trip(self._parts.broker.inner_addresses[0], within=within)

        side_by_side((out, back))
        return found["out"], found["in"]

    def bite(self) -> Bite:
        expected = {
            "out": "silence" if self._out else "an answer",
            "in": "silence" if self._in else "an answer",
        }
        return self._parts.bite(
            "round trips between the broker and a peer", expected, self.measure, within=_SEEN_WITHIN
        )

    def measure(self) -> tuple[bool, object]:
        out, back = self._round_trips(within=UNANSWERED_WITHIN)
        others_out, others_in = self._cut_by_others(self._asked)
        as_cut = (out is None) is (self._out or others_out) and (back is None) is (
            self._in or others_in
        )
        return self._answered_before and as_cut, {
            "before": self._answered_before,
            "out": _word(out),
            "in": _word(back),
        }

    def undo(self) -> Sequence[str]:
        touched = [self.confines, *(confines for _, confines in self._peers.values())]
        side_by_side(_uncut(confines, self._id) for confines in touched)
        if any(
            broker.state != "running"
            for broker in (self._parts.broker, *(peer for peer, _ in self._peers.values()))
        ):
            return [
                "no direction cut",
                "round trips between peers not measured: one of them does not run",
            ]
        if not all(confines.connected for confines in touched):
            return [
                "no direction cut",
                "round trips between peers not measured: one of them is on no network",
            ]
        until(self._healed, within=HEALS_WITHIN, what="peers to answer each other")
        if any(any(self._cut_by_others(number)) for number in self._peers):
            return [
                "its own rules gone",
                (
                    f"peers answer each other where {', '.join(self.cut_by_others())} does not cut "
                    "them"
                ),
            ]
        return ["no direction cut", "peers answer each other in both directions"]

    def _healed(self) -> bool:
        """Whether every path answers that no other partition fault cuts now. Other faults may begin
        and end during the check."""
        for peer in self._peers:
            trips = self._round_trips(within=ANSWERS_WITHIN, number=peer)
            if not all(
                trip or cut for trip, cut in zip(trips, self._cut_by_others(peer), strict=True)
            ):
                return False
        return True


def _uncut(confines: Confines, owner: str) -> Callable[[], None]:
    return lambda: confines.unblock(owner)


def _word(seconds: float | None) -> str:
    return "silence" if seconds is None else "an answer"
