"""Faults of mirrors: failed over, reversed, killed, moved to another source address, or sent admin
requests at the wrong time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.base import FaultBase, data_partitions, wait, watch
from linkflap.chaos.faults.clusters import ElectedLoss
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    FaultError,
    InputError,
)
from linkflap.harness.model.events import Failover, Promotion
from linkflap.harness.model.faults import Target
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import (
    Administered,
    Bite,
    FailoverKind,
    FaultWorld,
    Mirror,
    PlayedVerbs,
)
from linkflap.harness.model.scenario import FaultSpec, Scenario
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import TopicPartition, Topology, is_data_topic
from linkflap.harness.model.wait import now, patient, until
from linkflap.harness.runtimes import probe
from linkflap.harness.wire.librdkafka import answered_bounds, bounds, quiet


def link_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a link of the topology, or the reverse of one."""
    return _no_link(
        target, topology, "{0!r} has no mirror; mirrors run on {1}, and back once they are reversed"
    )


def _no_link(target: str, topology: Topology, sentence: str) -> str | None:
    """None if `target` is a link, or the reverse of one; otherwise the sentence, with the target
    and the links in it."""
    links = [link.name for link in topology.links]
    if target in links or Target.parse(target).back in links:
        return None
    return sentence.format(target, ", ".join(links) or "no link")


def target_of(spec: FaultSpec, world: FaultWorld, does: str) -> Mirror:
    """The mirror to which a fault `does` something. Raises InputError."""
    if spec.target not in world.mirrors:
        known = ", ".join(sorted(world.mirrors)) or "none"
        raise InputError(
            f"fault {spec.id!r} {does} the mirror {spec.target!r}, but the mirrors are {known}"
        )
    return world.mirrors[spec.target]


def mirror_of(spec: FaultSpec, world: FaultWorld) -> Administered:
    """The mirror of the target link. Raises InputError."""
    mirror = target_of(spec, world, "targets")
    if not isinstance(mirror, Administered):
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) asks a mirror for what {mirror.spec.kind} has not; "
            "use cluster-mirroring"
        )
    return mirror


def mirror_to(cluster: str, world: FaultWorld) -> Administered:
    """A running mirror into a cluster. Raises FaultError if there is none."""
    for mirror in world.mirrors.values():
        if mirror.alive and mirror.link.destination == cluster and isinstance(mirror, Administered):
            return mirror
    raise FaultError(
        f"no mirror that runs inside brokers leads to cluster {cluster} now, so none of them "
        "coordinates one"
    )


DRAINS_WITHIN: Final = 90.0
WRITES_WITHIN: Final = 30.0
OPENS_WITHIN: Final = 20.0
MAY_OPEN_WITHIN: Final = 2.0
ANSWERS_WITHIN: Final = 1.0
_ASK_SECONDS: Final = 5.0


def mirrored_way(target: str, topology: Topology) -> str | None:
    """None if `target` is a link, or the reverse of a link whose mirror can be reversed; otherwise
    the reason in one sentence."""
    return _no_link(target, topology, "{0!r} is no link; clients fail over along {1}, and back")


class _Failover(FaultBase):
    """Clients move from a link's source to its destination, and stay: the target, the end of the
    mirror, the promotion, and the move of the clients.

    The promotion offset of every mirrored partition is recorded before a client writes to the
    destination.
    """

    restores = False

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._mirror = target_of(spec, world, "fails over")
        link = self._mirror.link
        self._source, self._destination = (
            world.deployment.clusters[link.source],
            world.deployment.clusters[link.destination],
        )
        self._moved_at = 0

    reason = staticmethod(mirrored_way)

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
        """Checks that the failover was completed; a failover is not healed, by design. Raises
        FaultError.
        """
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
    move there.

    Does      clients of the source stop; the mirror drains, after every open transaction of the
              source has ended; the mirror stops; clients continue at the destination. Nothing may
              be lost.
    Bite      records are acknowledged on the destination after the move.
    Heal      none, by design: the mirror stays down, and the failover was completed.
    """

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
                remaining=lambda: lag,
            )
        except DeadlineExceeded as error:
            raise FaultError(f"failover {self._spec.id} was abandoned: {error}") from error
        self._promote("planned", fault_time=began, open_transactions=0)
        self._move(drained=True)

    def _open(self, admin: AdminClient) -> list[str]:
        """Partitions of the source that the link mirrors, and whose last stable offset is below the
        high watermark."""
        # clients of other homes continue
        topology = self._world.deployment.topology
        homes = topology.named(*topology.homes_over(self._mirror.link))
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
    """A failover without a drain: the source dies with at least `least_open` (an option)
    transactions open.

    Does      every broker of the source is killed (SIGKILL); the mirror stops at its position;
              clients continue at the destination. The dead source's logs are captured. Records
              that were not mirrored are lost: the recovery point.
    Bite      no broker of the source answers, and transactions were open when they died.
    Heal      none, by design: the mirror stays down, and the failover was completed.

    With option `source=stalled` the brokers are suspended (SIGSTOP) first, and killed once the
    mirror has been promoted: until then connections are open, and nothing answers.

    A source that linkflap did not start is not killed: every path of clients and mirrors into it is
    cut, for good, and its logs are captured while it runs. This has bitten when no path answers.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "least_open": OptionAbout(
            default=1,
            takes="a whole number (default: 1 where workloads of linkflap write in transactions, "
            "else 0)",
            about="transactions that are open on the source when it stops",
        ),
        "source": OptionAbout.one_of(
            "killed",
            "stalled",
            about="killed before the mirror is promoted, or only stopped until then",
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._open_transactions = 0
        self._asked = world.clients.transactional or "least_open" in spec.options
        self._least = int(self._values["least_open"]) if self._asked else 0
        self._stalled = self._values["source"] == "stalled"
        self._cut = [
            link
            for link in world.deployment.links.values()
            if link.source == self._source.name and world.deployment.topology.attached
        ]

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        if not scenario.topology.attached:
            return None
        if "source" in spec.options:
            return (
                "linkflap cannot suspend brokers that it did not start "
                f"(source={spec.options['source']}); leave "
                "source (--stall-source) out, and all paths of clients and mirrors into the "
                "cluster are cut instead"
            )
        if direct := [w.kind for w in scenario.workloads if w.options.get("via") == "direct"]:
            return (
                f"workload {direct[0]} connects past the proxies (via = direct), where a source "
                "that linkflap did not start cannot be cut off; leave via out"
            )
        return None

    def inject(self) -> None:
        # The transaction that made the trigger true may have ended since. A program may write in
        # transactions or not.
        with contextlib.suppress(DeadlineExceeded):
            until(
                self._some_open,
                within=OPENS_WITHIN if self._asked else MAY_OPEN_WITHIN,
                every=0.005,
                what=f"a transaction to be open on {self._source.name}",
            )
        self._end_source(stall=self._stalled)
        # recorded only now: until the last broker is dead, it still answers clients
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
        """Suspends or kills every broker of the source; a source that linkflap did not start is cut
        off instead: every path into it is cut, for good. Does nothing if the brokers are dead.
        """
        side_by_side(partial(link.cut, owner=self._spec.id) for link in self._cut)
        ends = [
            broker.give_up if self._cut else broker.pause if stall else broker.kill
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
        least = self._least if self._asked else 1
        return self._open_transactions >= least or self._world.stopping

    def bite(self) -> Bite:
        expected = {"answering": [], "open_transactions": f"at least {self._least}"}
        what = "paths into" if self._cut else "brokers of"
        return watch(
            self._world,
            f"{what} {self._source.name}, and transactions open at their death",
            expected,
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        answering = [
            link.name for link in self._cut if link.first_answer(within=ANSWERS_WITHIN) is not None
        ] or [
            broker.client_address
            for broker in ([] if self._cut else self._source.brokers.values())
            if probe.reach(broker.client_address, within=ANSWERS_WITHIN) is not None
        ]
        seen = {"answering": answering, "open_transactions": self._open_transactions}
        return not answering and self._open_transactions >= self._least, seen

    def heal(self) -> Sequence[str]:
        checked = super().heal()
        if open_ := [link.name for link in self._cut if link.enabled]:
            raise FaultError(
                f"{', '.join(open_)} let connections through after the forced failover "
                f"{self._spec.id}"
            )
        if self._cut:
            return [*checked, f"{', '.join(link.name for link in self._cut)} cut for good"]
        running = [
            str(broker.id) for broker in self._source.brokers.values() if broker.state != "stopped"
        ]
        if running:
            raise FaultError(
                f"brokers {', '.join(running)} of {self._source.name} run after the forced failover"
                f" {self._spec.id}"
            )
        return [*checked, f"brokers of {self._source.name} down"]


class MirrorKill(FaultBase):
    """Kills a mirror's worker, and starts it again at the end.

    Breaks    replication between a write to the destination and the commit of the position it came
              from: what was written and not noted is written again.
    Bite      the worker was alive before and its process is gone.
    Heal      the worker runs and records go through again.

    After a reversal (`mirror-reverse`) the mirror is the one of the reverse link.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._mirror = target_of(spec, world, "targets")
        self._alive_before = False

    reason = staticmethod(link_reason)

    def inject(self) -> None:
        self._alive_before = self._mirror.alive
        self._mirror.crash()

    def bite(self) -> Bite:
        return watch(
            self._world,
            "process of the mirror's worker",
            {"before": "alive", "during": "gone"},
            self._measure,
        )

    def _measure(self) -> tuple[bool, object]:
        alive = self._mirror.alive
        return self._alive_before and not alive, {
            "before": _word(self._alive_before),
            "during": _word(alive),
        }

    def heal(self) -> Sequence[str]:
        if not self._mirror.alive:
            try:
                self._mirror.restart()
            except EnvironmentFailure as error:
                raise FaultError(
                    f"mirror {self._spec.target} did not come back: {error}"
                ) from error
        if not self._mirror.alive:
            raise FaultError(
                f"mirror {self._spec.target} ended again after its restart: see its worker's log"
            )
        return [f"mirror {self._spec.target} alive, records go through"]


def _word(alive: bool) -> str:
    return "alive" if alive else "gone"


LED_WITHIN: Final = 60.0
REACHES_WITHIN: Final = 60.0


class MirrorReverse(FaultBase):
    """Reverses a mirror that has failed over.

    Does      starts dead brokers of the link's source, and captures the source's logs with the
              records that were never mirrored. Then a mirror over the reverse link truncates those
              records and copies the other cluster's. Clients stay where they are: a failover along
              the reverse link moves them back.
    Bite      all records that the new source had when the reverse mirror started have reached the
              new destination.
    Heal      the reverse mirror is alive. It and the brokers stay up.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        link = target_of(spec, world, "reverses").link
        self._cluster = world.deployment.clusters[link.source]
        self._there = AdminClient(quiet(world.deployment.clusters[link.destination].bootstrap))
        topology = world.deployment.topology
        self._homes = topology.named(*(cluster.name for cluster in topology.clusters))
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


CROSSES_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 5.0


class MirrorSourceMoved(FaultBase):
    """Changes the addresses of a mirror's source and cuts the old ones; restores the old addresses
    at the end.

    Breaks    every connection of the mirror to its source. The new addresses are those that the
              source's brokers give their clients, with no proxy in the path; the link's proxies
              refuse connections. Faults of links do not reach this mirror meanwhile.
    Bite      records written to the source after the proxies were cut have reached the destination.
    Heal      the settings name the proxies again, the proxies let connections through, and all
              records that the source had by then have arrived.
    """

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._mirror = mirror_of(spec, world)
        on = Target.parse(spec.target)
        self._link = world.deployment.links[spec.target]
        self._source, self._destination = (
            world.deployment.clusters[name] for name in (on.source, on.destination)
        )
        topology = world.deployment.topology
        self._homes = topology.named(*(cluster.name for cluster in topology.clusters))
        self._before: Sequence[str] = ()
        self._at_cut: Mapping[TopicPartition, int] = {}
        self._new: Mapping[TopicPartition, int] = {}

    reason = staticmethod(link_reason)

    def inject(self) -> None:
        self._before = self._mirror.source_addresses()
        self._mirror.move_source(
            [broker.client_address for broker in self._source.brokers.values()]
        )
        self._link.cut(owner=self._spec.id)
        self._at_cut = self._ends(self._source.bootstrap)

    def _ends(self, address: str) -> Mapping[TopicPartition, int]:
        """High watermarks of the source's data topics; partitions without a leader are left out."""
        admin, wanted = AdminClient(quiet(address)), data_partitions(self._world, self._homes)
        return answered_bounds(admin, wanted, "high", within=_ANSWERS_WITHIN)

    def bite(self) -> Bite:
        expected = "records mirrored without the cut proxies"
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
                f"cluster {self._source.name} did not report its log ends, so that nothing shows"
                " what arrived"
            )

        def arrived() -> bool:
            there = self._ends(self._destination.bootstrap)
            left[:] = [
                f"{name}-{n}" for (name, n), end in wanted.items() if there.get((name, n), -1) < end
            ]
            return not left

        what = f"what {self._source.name} has to be on {self._destination.name}"
        wait(arrived, within=CROSSES_WITHIN, every=0.1, what=what, state=lambda: left[:5])
        return [
            f"the mirror's source is {', '.join(named)} again",
            f"{len(wanted)} partitions caught up",
        ]


class MirrorVerbs(FaultBase):
    """Sends a mirror random admin requests (verbs) that do not promote; options steps and seed.

    Breaks    replication of paused topics, and the mirror's state of them when it resumes
              (KIP-1279: pause, resume; create, start and delete of existing objects must be
              refused). None of these verbs promotes anything.
    Bite      a verb was accepted and changed the mirror's state, by describe's answer before the
              next verb.
    Heal      paused topics are resumed, and every topic is mirrored again.

    Each answer, and the state that describe reaches after it, is compared with a model of the KIP.
    A disagreement is an anomaly (check mirror-states), and ends the sequence.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "steps": OptionAbout(
            default=6, low=1, about="how many steps; each is a verb, or two at the same time"
        ),
        "seed": OptionAbout(
            default=1000, about="seed of the random verbs, together with the fault's id"
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._mirror = mirror_of(spec, world)
        self._steps, self._seed = int(self._values["steps"]), f"{spec.id} {self._values['seed']}"
        self._played: PlayedVerbs | None = None

    reason = staticmethod(link_reason)

    def inject(self) -> None:
        try:
            self._played = self._mirror.play_verbs(self._seed, self._steps)
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; no verb was requested") from error

    def bite(self) -> Bite:
        played = self._played
        seen: dict[str, int | str] = (
            {"asked": played.asked, "changed": played.changed}
            if played
            else {"asked": 0, "changed": 0}
        )
        if played and played.unanswered:
            seen = {**seen, "unanswered": played.unanswered}
        bit = played is not None and (played.changed > 0 or bool(played.wrong))
        return Bite(
            bit=bit,
            observable=f"verbs of the mirror of {self._spec.target}",
            measured=seen,
            expected="a verb that is accepted",
        )

    def heal(self) -> Sequence[str]:
        if self._played is None:
            return ["no verb was requested"]
        try:
            topics = self._mirror.resume_all()
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error
        return [f"{len(topics)} topics are mirrored"]


class MirrorCoordinatorLoss(ElectedLoss):
    """Kills the coordinator of the mirror that leads to a cluster, and starts it again at the end.

    Breaks    the work that only the coordinator does for a mirror: keeping the states of
              partitions, finding new topics, syncing groups and settings. It is the leader of the
              mirror's partition of __mirror_state; its successor reads that log first (KIP-1279).
    Bite      the broker does not answer in the window, and the others (where they are a majority)
              have elected another leader.
    Heal      its process runs, its listener answers, it is in the ISR of every partition that it
              holds; there is a coordinator.
    """

    role = "mirror coordinator"

    def holder(self, address: str) -> int | None:
        """From the metadata of any broker of the cluster."""
        leader = mirror_to(self.cluster.name, self._world).coordinator()
        return leader if leader in self.cluster.brokers else None
