"""The families of faults (packages): how each is drawn, and the failovers between them.

A fault without a family is drawn on any target to which it applies, and overlaps no other fault.
Options are drawn from the registries: choices evenly, numbers around their defaults.

Every fault holds some objects exclusively and needs others undisturbed. If two faults conflict over
an object, one follows the other (`after:`); all others may overlap. So no fault hides the bite of
another: for example, latency on a link cannot be measured while its brokers are down.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from linkflap.chaos.faults import FAULTS, OF_CERTIFICATES, OF_CLIENTS, ON_THE_WIRE
from linkflap.chaos.faults.clusters import older
from linkflap.chaos.generator.bounds import GeneratorBounds
from linkflap.chaos.triggers import Condition, condition
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.faults import FORCED, KILL, PLANNED, REVERSE, UNCLEAN, FaultName, Target
from linkflap.harness.model.interference import legal_errors
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import PRODUCERS, FaultSpec, Option, WorkloadSpec
from linkflap.harness.model.topology import DEFAULT_KAFKA, LinkSpec, Topology

GIVEN = 0.4
"""The share of options that get a value; the others keep their defaults."""


def of_fault(name: str, rng: random.Random) -> dict[str, Option]:
    """Options of a fault that differ from their defaults. A default of 0 (switched off) is always
    kept."""
    return {
        option: value
        for option, about in FAULTS[name].options.items()
        if rng.random() < GIVEN
        and (value := _around(about, rng)) != about.default
        and value is not None
    }


def _around(about: OptionAbout, rng: random.Random) -> Option | None:
    default = about.default
    if isinstance(default, str):
        return rng.choice(about.choices) if about.choices else None
    if isinstance(default, bool) or not default:
        return None
    value = default * rng.uniform(0.5, 2.0)
    return round(value, 2) if isinstance(default, float) else max(1, round(value))


def of_mirror(kind: str, rng: random.Random) -> Mapping[str, Option]:
    """Options of a mirror, with values for which its guarantee holds (`MirrorKind.sound`)."""
    return {
        option: rng.choice(values)
        for option, values in MIRRORS[kind].sound.items()
        if rng.random() < GIVEN
    }


NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """The objects that a fault `holds` exclusively while it lasts, and those that it `needs`
    undisturbed."""

    holds: frozenset[str] = NONE
    needs: frozenset[str] = NONE

    def clash(self, other: Wants) -> bool:
        """Whether the two must not overlap."""
        return bool(self.holds & (other.holds | other.needs) or other.holds & self.needs)


def brokers(cluster: str) -> str:
    """The brokers of a cluster, as an object for `Wants`."""
    return f"brokers {cluster}"


def path(link: str) -> str:
    """The proxied path of a link, as an object for `Wants`."""
    return f"path {link}"


def mirror(link: str) -> str:
    """The mirror of a link, as an object for `Wants`."""
    return f"mirror {link}"


def clients(cluster: str) -> str:
    """The clients of a cluster, as an object for `Wants`."""
    return f"clients {cluster}"


@dataclass(slots=True, kw_only=True)
class Draft:
    """The schedule so far, and the state after all its faults. `up` are the clusters whose brokers
    run. `mirrored` are the links and reverse links with a mirror. `at` maps a home to the cluster
    that its clients use."""

    topology: Topology
    rng: random.Random
    partitions: int = 2
    """Partitions of each topic."""
    copies_transactions: bool = True
    """Whether the mirror writes in transactions, its source's or its own."""
    up: set[str] = field(default_factory=set)
    mirrored: set[str] = field(default_factory=set)
    at: dict[str, str] = field(default_factory=dict)
    moved: bool = False
    """Whether clients have failed over."""
    workloads: Sequence[WorkloadSpec] | None = None
    """The workloads of the run, where they are given; else it gets those of generated runs."""
    faults: list[FaultSpec] = field(default_factory=list)
    _wants: dict[str, Wants] = field(default_factory=dict)
    _ancestors: dict[str, Set[str]] = field(default_factory=dict)

    def writes(self, *kinds: str, on: str = "") -> bool:
        """Whether workloads of these kinds write now, on the cluster `on` if one is named."""
        if self.workloads is None:
            return not on or on in self.at.values()
        homes = {home for home, at in self.at.items() if on in ("", at)}
        return any(w.kind in kinds and w.home in homes for w in self.workloads)

    @property
    def clients_of_proxies(self) -> list[str]:
        """The running clusters with clients that connect through proxies."""
        through = {w.home for w in self.workloads or () if w.options.get("via") == "proxy"}
        return sorted(self.up if self.workloads is None else self.up & through)

    def add(
        self,
        fault: str,
        target: str,
        wants: Wants,
        *,
        duration: float = 0.0,
        options: Mapping[str, Option] | None = None,
        once: Condition | None = None,
        begins: tuple[float, float] = (0.1, 1.0),
    ) -> FaultSpec:
        """Adds a fault that follows every fault that it must not overlap. `once` has its triggers,
        and the faults that it must overlap. `begins` is the range of its start time in seconds."""
        id_ = f"{len(self.faults) + 1}-{fault}"
        once = once or Condition()
        before = self._before(wants, once.during)
        if not self._held_back(once.during, before):
            once, before = replace(once, during=()), self._before(wants, ())
        spec = FaultSpec(
            id=id_,
            fault=fault,
            target=target,
            at=round(self.rng.uniform(*begins), 2),
            duration=duration,
            when=str(replace(once, after=before)),
            options=dict(options or {}),
        )
        self.faults.append(spec)
        self._wants[id_] = wants
        self._ancestors[id_] = {*before, *(a for other in before for a in self._ancestors[other])}
        return spec

    def delay(self, id_: str, triggers: Sequence[tuple[str, int | None]]) -> None:
        """Adds triggers to a fault. A new trigger replaces an old one of the same name."""
        nth = next(nth for nth, fault in enumerate(self.faults) if fault.id == id_)
        once = condition(self.faults[nth].when)
        kept = [one for one in once.triggers if one[0] not in dict(triggers)]
        self.faults[nth] = replace(
            self.faults[nth], when=str(replace(once, triggers=(*triggers, *kept)))
        )

    def _before(self, wants: Wants, during: Collection[str]) -> tuple[str, ...]:
        """The faults that a new fault must follow, without those that one of the others follows
        anyway."""
        clashing = [
            f.id for f in self.faults if f.id not in during and wants.clash(self._wants[f.id])
        ]
        return tuple(a for a in clashing if not any(a in self._ancestors[b] for b in clashing))

    def _held_back(self, during: Sequence[str], before: Sequence[str]) -> bool:
        """Makes the faults of `during` wait for the faults of `before` too: otherwise they could
        end before the new fault may begin. Returns False, without a change, if one of them cannot
        wait for that."""
        nth = {fault.id: n for n, fault in enumerate(self.faults)}
        due = [(a, b) for a in during for b in before if b not in self._ancestors[a]]
        if any(nth[b] > nth[a] or b in condition(self.faults[nth[a]].when).during for a, b in due):
            return False
        for overlapped, other in due:
            once = condition(self.faults[nth[overlapped]].when)
            once = replace(once, after=(*once.after, other))
            self.faults[nth[overlapped]] = replace(self.faults[nth[overlapped]], when=str(once))
            self._precedes(other, overlapped)
        return True

    def _precedes(self, earlier: str, id_: str) -> None:
        """Notes that a fault, and every fault that follows it, comes after `earlier`."""
        more = {earlier, *self._ancestors[earlier]}
        for follower, ancestors in self._ancestors.items():
            if follower == id_ or id_ in ancestors:
                self._ancestors[follower] = ancestors | more

    def lasting(self, kinds: str) -> list[FaultSpec]:
        """Faults whose names begin with `kinds`, that last at least a second, and that no fault
        waits for yet."""
        followed = {name for fault in self.faults for name in condition(fault.when).faults}
        return [
            f
            for f in self.faults
            if f.fault.startswith(kinds) and f.duration >= 1.0 and f.id not in followed
        ]


UPGRADE: Final = "rolling-upgrade"


DELETED: Final = "records-deleted"


RECREATED: Final = "topic-recreated"


OF_BROKERS: Final = frozenset(
    {
        "broker-kill",
        "broker-pause",
        "broker-restart",
        "coordinator-loss",
        "controller-loss",
        "leadership-move",
        "rolling-restart",
    }
    | {UPGRADE, UNCLEAN, "clock-skew", "broker-disk-slow", "mirror-coordinator-loss"}
)
"""Faults of the brokers of one cluster. On the same cluster, two of them never overlap."""


RESTARTED: Final = frozenset({"broker-restart", "clock-skew", "broker-disk-slow"})
"""Faults that shut one broker down cleanly."""


_TAKEN_OVER: Final = RESTARTED | {
    "coordinator-loss",
    "controller-loss",
    "mirror-coordinator-loss",
    "rolling-restart",
    UPGRADE,
}
"""Faults that test how the other brokers of a cluster take over."""


RULED: Final = frozenset({"mirror-source-moved", "mirror-verbs"})
"""Admin requests to a mirror that runs inside the brokers (Cluster Mirroring)."""


def targets(fault: str, draft: Draft) -> list[str]:
    """The possible targets of a fault: running brokers, links into them, existing mirrors, clusters
    with clients."""
    return [
        target
        for target in _candidates(fault, draft)
        if FAULTS[fault].applies_to(target, draft.topology) is None
    ]


def _candidates(fault: str, draft: Draft) -> Sequence[str]:
    """The existing objects of the kind that a fault targets."""
    if FaultName(fault).of_link or fault in (*OF_CERTIFICATES, KILL, *RULED):
        return _of_links(fault, draft) if fault in (KILL, *RULED) else _paths(fault, draft)
    if FaultName(fault).of_service:
        return draft.topology.service_links
    if fault in OF_CLIENTS:
        return written_clusters(draft)
    if fault in ("partitions-added", DELETED, RECREATED):
        # After a failover, the home's own partitions are judged up to the failover and must not
        # change any more.
        return sorted(home for home, at in draft.at.items() if home == at)
    if fault in OF_BROKERS or fault.startswith("broker-") or fault == "partition":
        return _of_brokers(fault, draft)
    return [*sorted(draft.up), *brokers_of_at_least(draft, least=1), *sorted(draft.mirrored)]


def _paths(fault: str, draft: Draft) -> Sequence[str]:
    """Links with a mirror, or where the topology has none, the paths of clients; and the links to
    services."""
    services = [
        link for link in draft.topology.service_links if LinkSpec.parse(link).source in draft.up
    ]
    if not draft.topology.links:
        return [*(f"*->{name}" for name in draft.clients_of_proxies), *services]
    return [*_of_links(fault, draft), *services]


def _of_links(fault: str, draft: Draft) -> Sequence[str]:
    """Links with a mirror and a running source. Faults of the mirror itself need a running
    destination too."""
    links = [LinkSpec.parse(link) for link in sorted(draft.mirrored)]
    if fault == KILL or fault in RULED:
        links = [link for link in links if set(link.ends) <= draft.up]
    if fault in RULED:
        written = written_or_mirrored(draft)
        links = [link for link in links if link.source in written]
    return [link.name for link in links if link.source in draft.up]


def _of_brokers(fault: str, draft: Draft) -> Sequence[str]:
    """Brokers; or clusters, if the fault chooses the broker itself."""
    if fault == UNCLEAN:
        return _at_home_of_three(draft)
    if fault == "leadership-move":
        # On other clusters, mirrors lead the partitions or nobody writes.
        return [
            name for name in written_clusters(draft) if draft.topology.cluster(name).brokers > 1
        ]
    if fault in _TAKEN_OVER:
        # The only broker of a cluster can lose a commit when it shuts down (docs/scenarios.md), and
        # no other broker can take over.
        spared = brokers_of_at_least(draft, least=3)
        clusters = sorted({Target.parse(broker).cluster for broker in spared})
        if fault == "mirror-coordinator-loss":
            return sorted(
                {LinkSpec.parse(link).destination for link in draft.mirrored} & set(clusters)
            )
        if fault == UPGRADE:
            return [
                name
                for name in clusters
                if older(draft.topology.cluster(name).kafka, DEFAULT_KAFKA)
            ]
        return spared if fault in RESTARTED else clusters
    return brokers_of_at_least(draft, least=1)


def _at_home_of_three(draft: Draft) -> list[str]:
    """Clusters of at least three brokers whose clients are at home. On other clusters, mirrors lead
    the partitions."""
    return sorted(
        home
        for home, at in draft.at.items()
        if home == at and draft.topology.cluster(home).brokers > 2
    )


def written_clusters(draft: Draft) -> list[str]:
    """Running clusters that have clients now."""
    return sorted(set(draft.at.values()) & draft.up)


def brokers_of_at_least(draft: Draft, *, least: int) -> list[str]:
    """The brokers (`A/1`) of running clusters with at least `least` brokers."""
    counts = {name: draft.topology.cluster(name).brokers for name in sorted(draft.up)}
    return [
        f"{name}/{n}"
        for name, count in counts.items()
        if count >= least
        for n in range(1, count + 1)
    ]


def written_or_mirrored(draft: Draft) -> set[str]:
    """The clusters that receive records, from clients or through mirrors. Nothing passes over a
    link that leaves any other cluster."""
    found, links = set(draft.at.values()), [LinkSpec.parse(link) for link in sorted(draft.mirrored)]
    for _ in links:
        found |= {link.destination for link in links if link.source in found}
    return found


FAILOVERS: Final = (PLANNED, FORCED)
LINK_CUT: Final = "link-cut"
OF_KEPT_OFFSETS: Final = frozenset({DELETED, RECREATED, UNCLEAN})
"""Faults that are drawn only with mirrors that keep offsets. With other offsets, the copies could
not be compared with their originals, or would mix two topics of one name."""
ENDED: Final = "transactions-ended"
UNDER_WAY: Final = "under-way"
BEHIND: Final = "mirror-behind"
FAR: Final = 20
"""Records that a mirror is behind by; an operation has as many by default."""
BEGUN: Final = 40
"""The first failover waits for this many ended transactions."""
ENOUGH: Final = 400
"""Where no workload has transactions, the first failover waits for this many records."""
TRANSACTIONAL: Final = "transactional"
ONCE: Final = 0.6
"""The share of faults that wait for a log state."""
TAIL: Final = 0.5
"""The share of forced failovers before a failback that happen during an added link-cut."""
AGAIN: Final = 0.25
"""The share of faults that repeat an earlier one on the same target: for example, a second restart
of a broker finds the state that the first restart left."""
ALWAYS_SENT: Final = ("Produce", "EndTxn", "Fetch")
"""Requests that the clients of every scenario send all the time."""
OFFERED: Final[Mapping[str, int]] = {"Fetch": 12, "FindCoordinator": 3, "Metadata": 9}
"""Versions of program-downgraded: every broker has higher ones, and every client knows these."""
VICTIMS: Final[Sequence[Mapping[str, Option]]] = (
    {"workload": "transactional", "moment": "any"},
    {"workload": "transactional", "moment": "transaction"},
    {"workload": "transactional", "moment": "commit"},
    {"workload": "idempotent", "moment": "any"},
    {"workload": "zombie", "moment": "any"},
    {"workload": "readers", "moment": "any"},
)
"""Options of client-kill: which clients are killed, and at what moment."""
_LONG_ENOUGH: Final = {"link-flap": 1.5, "broker-pause": 0.5, **dict.fromkeys(ON_THE_WIRE, 1.0)}
"""The shortest durations in seconds, for faults that have no effect if they are shorter."""


def everything(topology: Topology) -> Wants:
    """The objects of a fault that must not overlap any other: all of them."""
    names = [c.name for c in topology.clusters]
    links = [f"{a}->{b}" for a in ("*", *names) for b in names if a != b]
    return Wants(
        holds=frozenset(
            [*map(brokers, names), *map(clients, names), *map(path, links), *map(mirror, links)]
        ),
    )


def wants(fault: str, target: str, topology: Topology) -> Wants:
    """The objects that a fault holds and needs, by its family."""
    on = Target.parse(target)
    if FaultName(fault).of_link or fault in OF_CERTIFICATES:
        return Wants(holds=frozenset([path(target)]), needs=frozenset([brokers(on.entered)]))
    if fault in OF_BROKERS:
        return Wants(holds=frozenset([brokers(on.cluster)]))
    if fault == KILL or fault in RULED:
        ends = frozenset([brokers(on.source), brokers(on.destination)])
        held = (
            frozenset([mirror(target), path(target)]) | ends
            if fault in RULED
            else frozenset([mirror(target)])
        )
        return Wants(holds=held, needs=ends)
    if fault in OF_CLIENTS:
        # Requests of the clients have to reach their recorder.
        needs = frozenset([path(f"*->{on.cluster}")]) if fault in ON_THE_WIRE else NONE
        held = frozenset([clients(on.cluster)])
        return Wants(holds=held, needs=needs | {brokers(on.cluster)})
    if fault == DELETED:
        return Wants(needs=frozenset([brokers(on.cluster)]))
    return everything(topology)


def failover_wants(fault: str, link: LinkSpec) -> Wants:
    """The objects that a failover holds. A planned one is drained, so it also holds the path of the
    link. No failover overlaps a fault of its brokers or clients."""
    a, b = link.source, link.destination
    held = frozenset([mirror(link.name), clients(a), clients(b), brokers(a), brokers(b)])
    paths = frozenset([path(link.name), path(f"*->{a}")])
    return Wants(holds=held | paths) if fault != FORCED else Wants(holds=held, needs=NONE)


def disturb(draft: Draft, bounds: GeneratorBounds) -> None:
    """Adds one fault that is healed. Adds none if no allowed fault has a target."""
    names = [n for n in bounds.allowed if n not in (*FAILOVERS, REVERSE)]
    able = [
        (name, found) for name in names if (found := targets(name, draft)) and _due(name, draft)
    ]
    if not able:
        return
    name, found = draft.rng.choice(_one_on_the_wire(able, draft.rng))
    target = draft.rng.choice(found)
    if draft.rng.random() < AGAIN:
        name, target = _again(draft, dict(able)) or (name, target)
    duration = round(max(_LONG_ENOUGH.get(name, 0.0), draft.rng.uniform(0.2, bounds.longest)), 2)
    options = _options(name, draft.rng)
    own = wants(name, target, draft.topology)
    once = moment(name, target, draft, own)
    if name == DELETED:
        once = _something_to_delete(once, target, draft)
    draft.add(name, target, own, duration=duration, options=options, once=once)


def _one_on_the_wire(
    able: list[tuple[str, list[str]]], rng: random.Random
) -> list[tuple[str, list[str]]]:
    """The faults that can be drawn, with one of those on the wire: they are one family among the
    others."""
    found = [one for one in able if one[0] in ON_THE_WIRE]
    return [*(one for one in able if one not in found), rng.choice(found)] if found else able


def _options(fault: str, rng: random.Random) -> Mapping[str, Option]:
    """Options of a fault. For faults of clients, only clients that every scenario has."""
    if fault in ON_THE_WIRE:
        return _of_requests(fault, rng)
    options: Mapping[str, Option] = of_fault(fault, rng)
    if fault == "client-kill":
        return rng.choice(VICTIMS)
    if fault == "client-pause":
        return {"workload": rng.choice(VICTIMS)["workload"]}
    return {} if fault == UPGRADE else options


def _of_requests(fault: str, rng: random.Random) -> Mapping[str, Option]:
    """Options of a fault on the wire: requests that the clients of every scenario send all the
    time, so that it finds some, and errors after which they try again. A Produce is not repeated,
    because the copy may arrive after its transaction's end, and then Kafka refuses the next one
    (KIP-890-late-copy)."""
    if fault == "program-downgraded":
        api = rng.choice(sorted(OFFERED))
        return {"api": api, "version": OFFERED[api]}
    if fault == "program-repeated":
        return {"api": "EndTxn", "count": rng.randint(1, 3)}
    options: dict[str, Option] = {"api": rng.choice(ALWAYS_SENT), "count": rng.randint(1, 3)}
    if fault in ("program-delayed", "program-throttled"):
        options["seconds"] = round(rng.uniform(0.1, 1.0), 2)
    if fault == "program-refused":
        legal = legal_errors(str(options["api"]), carried_out=True)
        options["error"] = rng.choice([each for each in legal if not each.startswith("UNKNOWN_")])
    return options


def _something_to_delete(once: Condition, home: str, draft: Draft) -> Condition:
    """The condition of a deletion of records: after BEGUN transactions, and often during a fault of
    a link, so that records are deleted before the mirror has fetched them."""
    begun = _begun(draft)
    if not {name for name, _ in begun} & dict(once.triggers).keys():
        once = replace(once, triggers=(*begun, *once.triggers))
    lasting = [fault.id for fault in draft.lasting("link-") if _from(fault, home)]
    return (
        replace(once, during=(draft.rng.choice(lasting),))
        if lasting and draft.rng.random() < ONCE
        else once
    )


def _from(fault: FaultSpec, home: str) -> bool:
    """Whether the target of a fault is a link whose source is this cluster."""
    return fault.on.link is not None and fault.on.source == home


def _again(draft: Draft, able: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """(fault, target) of an earlier fault of the schedule that can be repeated now, or None."""
    before = [(f.fault, f.target) for f in draft.faults if f.target in able.get(f.fault, ())]
    return draft.rng.choice(before) if before else None


def _due(fault: str, draft: Draft) -> bool:
    """Whether a fault may be drawn now. An upgrade, and an addition of partitions, are drawn at
    most once.

    Partitions are added only while all clients are at home and all links are mirrored: otherwise
    the clusters would have different partitions.
    """
    if fault == UPGRADE:
        return not any(other.fault == UPGRADE for other in draft.faults)
    if fault != "partitions-added":
        return True
    at_home = all(home == at for home, at in draft.at.items()) and len(draft.up) == len(
        draft.topology.clusters
    )
    mirrored = all(link.name in draft.mirrored for link in draft.topology.links)
    return at_home and mirrored and not any(other.fault == fault for other in draft.faults)


def moment(fault: str, target: str, draft: Draft, own: Wants) -> Condition:
    """The log state that a fault waits for, or no condition. Only states that the present clients
    and mirrors reach without another fault."""
    if draft.rng.random() > ONCE:
        return Condition()
    source = Target.parse(target).entered
    states: list[tuple[str, int | None]] = []
    if draft.writes(TRANSACTIONAL):
        states.append((ENDED, draft.rng.choice([10, 50, 100])))
    elif draft.writes(*PRODUCERS, on=source):
        states.append((UNDER_WAY, draft.rng.choice([100, 500, 1000])))
    if draft.writes(TRANSACTIONAL, on=source):
        states += [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        states.append(("open-partitions", min(2, draft.partitions)))
    if target in draft.mirrored and source in written_or_mirrored(draft):
        states += [(BEHIND, None), (BEHIND, FAR)]
        if draft.copies_transactions and draft.writes(TRANSACTIONAL):
            states.append(("open-at-destination", None))
    return Condition(triggers=(draft.rng.choice(states),)) if states else Condition()


def _begun(draft: Draft) -> tuple[tuple[str, int | None], ...]:
    """The triggers of what needs something to judge: clients have worked for a while."""
    if draft.writes(TRANSACTIONAL):
        return ((ENDED, BEGUN),)
    return ((UNDER_WAY, ENOUGH),) if draft.writes(*PRODUCERS) else ()


def fail_over(
    draft: Draft, bounds: GeneratorBounds, link: LinkSpec, *, forced: bool, back: bool = False
) -> None:
    """Adds a failover along a link or reverse link that has a mirror. A forced one often happens
    during a fault of this link.

    `back`: a failback follows. It truncates records only if the source died with records that were
    never mirrored. So half of these forced failovers happen during a link-cut, which is added if
    there is none.
    """
    name = FORCED if forced else PLANNED
    if name not in bounds.allowed:
        return
    # Without ended transactions there is nothing to judge.
    begun = () if draft.moved else _begun(draft)
    triggers: Sequence[tuple[str, int | None]] = begun
    during: tuple[str, ...] = ()
    if forced:
        states: list[tuple[str, int | None]] = [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        triggers = (
            (*begun, draft.rng.choice(states))
            if draft.writes(TRANSACTIONAL, on=link.source)
            else begun
        )
        during = _disturbed(draft, bounds, link, back=back)
        if during and begun:
            # The disturbance may be too short for so many transactions: so it waits for them.
            triggers = triggers[len(begun) :]
            draft.delay(during[0], begun)
    once = Condition(during=during, triggers=tuple(triggers))
    draft.add(name, link.name, failover_wants(name, link), once=once, begins=(0.2, 1.0))
    draft.moved = True
    draft.mirrored.discard(link.name)
    draft.at = {
        home: link.destination if at == link.source else at for home, at in draft.at.items()
    }
    if forced:
        draft.up.discard(link.source)


def _disturbed(
    draft: Draft, bounds: GeneratorBounds, link: LinkSpec, *, back: bool
) -> tuple[str, ...]:
    """The id of the link fault during which a forced failover happens, if any."""
    disturbed = [f.id for f in draft.lasting("link-") if f.target == link.name]
    if back and not disturbed and LINK_CUT in bounds.allowed and draft.rng.random() < TAIL:
        return (
            draft.add(
                LINK_CUT,
                link.name,
                wants(LINK_CUT, link.name, draft.topology),
                duration=bounds.longest,
            ).id,
        )
    return tuple(disturbed[:1]) if draft.rng.random() < ONCE else ()


def reverse(draft: Draft, bounds: GeneratorBounds, link: LinkSpec) -> None:
    """Adds the reversal of a link's mirror, after its failover."""
    if REVERSE not in bounds.allowed:
        return
    draft.add(REVERSE, link.name, failover_wants(PLANNED, link), begins=(0.2, 1.0))
    draft.mirrored.add(f"{link.destination}->{link.source}")
    draft.up.add(link.source)
