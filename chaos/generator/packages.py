"""The families of faults (packages): how each is drawn, and the failovers between them.

A fault without a family is drawn on any target to which it applies, and overlaps no other fault.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from linkflap.chaos.faults import OF_CERTIFICATES, OF_CLIENTS
from linkflap.chaos.generator.bounds import GeneratorBounds
from linkflap.chaos.generator.draft import NONE, Draft, Wants, brokers, clients, mirror, path
from linkflap.chaos.generator.fault_targets import (
    DELETED,
    OF_BROKERS,
    RECREATED,
    RULED,
    UPGRADE,
    targets,
    written_or_mirrored,
)
from linkflap.chaos.generator.options import of_fault
from linkflap.chaos.triggers import Condition
from linkflap.harness.model.faults import FORCED, KILL, PLANNED, REVERSE, UNCLEAN, FaultName, Target
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import LinkSpec, Topology

FAILOVERS: Final = (PLANNED, FORCED)
LINK_CUT: Final = "link-cut"
OF_KEPT_OFFSETS: Final = frozenset({DELETED, RECREATED, UNCLEAN})
"""Faults that are drawn only with mirrors that keep offsets. With other offsets, the copies could
not be compared with their originals, or would mix two topics of one name."""
ENDED: Final = "transactions-ended"
BEGUN: Final = 40
"""The first failover waits for this many ended transactions."""
ONCE: Final = 0.6
"""The share of faults that wait for a log state."""
TAIL: Final = 0.5
"""The share of forced failovers before a failback that happen during an added link-cut."""
AGAIN: Final = 0.25
"""The share of faults that repeat an earlier one on the same target: for example, a second restart
of a broker finds the state that the first restart left."""
VICTIMS: Final[Sequence[Mapping[str, Option]]] = (
    {"workload": "transactional", "moment": "any"},
    {"workload": "transactional", "moment": "transaction"},
    {"workload": "transactional", "moment": "commit"},
    {"workload": "idempotent", "moment": "any"},
    {"workload": "zombie", "moment": "any"},
    {"workload": "readers", "moment": "any"},
)
"""Options of client-kill: which clients are killed, and at what moment."""
_LONG_ENOUGH: Final = {"link-flap": 1.5, "broker-pause": 0.5}
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
        return Wants(holds=frozenset([clients(on.cluster)]), needs=frozenset([brokers(on.cluster)]))
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
    name, found = draft.rng.choice(able)
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


def _options(fault: str, rng: random.Random) -> Mapping[str, Option]:
    """Options of a fault. For faults of clients, only clients that every scenario has."""
    options: Mapping[str, Option] = of_fault(fault, rng)
    if fault == "client-kill":
        return rng.choice(VICTIMS)
    if fault == "client-pause":
        return {"workload": rng.choice(VICTIMS)["workload"]}
    return {} if fault == UPGRADE else options


def _something_to_delete(once: Condition, home: str, draft: Draft) -> Condition:
    """The condition of a deletion of records: after BEGUN transactions, and often during a fault of
    a link, so that records are deleted before the mirror has fetched them."""
    if ENDED not in dict(once.triggers):
        once = replace(once, triggers=((ENDED, BEGUN), *once.triggers))
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
    source = Target.parse(target).source
    states: list[tuple[str, int | None]] = [(ENDED, draft.rng.choice([10, 50, 100]))]
    if source in draft.at.values():
        states += [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        states.append(("open-partitions", min(2, draft.partitions)))
    if target in draft.mirrored and source in written_or_mirrored(draft):
        states += [("mirror-behind", None), ("mirror-behind", 20), ("open-at-destination", None)]
    return Condition(triggers=(draft.rng.choice(states),))


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
    begun: tuple[tuple[str, int | None], ...] = () if draft.moved else ((ENDED, BEGUN),)
    triggers: Sequence[tuple[str, int | None]] = begun
    during: tuple[str, ...] = ()
    if forced:
        states: list[tuple[str, int | None]] = [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        triggers = (*begun, draft.rng.choice(states))
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
