"""The families of faults, each with its possible targets, and the failovers between them.

A fault without a family is drawn too, on any target that it applies to, and overlaps nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from linkflap.chaos.faults import OF_CERTIFICATES, OF_CLIENTS
from linkflap.chaos.generator.bounds import Bounds
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
"""Faults after which a copy at another offset than its original's could not be judged, or is known
to be of two topics."""
ENDED: Final = "transactions-ended"
BEGUN: Final = 40
"""Transactions that have ended before a first failover."""
ONCE: Final = 0.6
"""How often a fault waits for a log state."""
TAIL: Final = 0.5
"""How often a forced failover before a failback is given a cut that it happens in."""
AGAIN: Final = 0.25
"""How often a fault is done once more where it was done before: a second restart meets what the
first has left."""
VICTIMS: Final[Sequence[Mapping[str, Option]]] = (
    {"workload": "transactional", "moment": "any"},
    {"workload": "transactional", "moment": "transaction"},
    {"workload": "transactional", "moment": "commit"},
    {"workload": "idempotent", "moment": "any"},
    {"workload": "zombie", "moment": "any"},
    {"workload": "readers", "moment": "any"},
)
"""Clients that can be killed, and what they can have in flight."""
_LONG_ENOUGH: Final = {"link-flap": 1.5, "broker-pause": 0.5}
"""Seconds that a fault has to last at least, to be what it is."""


def everything(topology: Topology) -> Wants:
    """For a fault that must overlap nothing."""
    names = [c.name for c in topology.clusters]
    links = [f"{a}->{b}" for a in ("*", *names) for b in names if a != b]
    return Wants(
        holds=frozenset(
            [*map(brokers, names), *map(clients, names), *map(path, links), *map(mirror, links)]
        ),
    )


def wants(fault: str, target: str, topology: Topology) -> Wants:
    """What a fault holds and needs, by its family."""
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
    """A drained failover needs the path; a forced one does without. Neither overlaps what is done
    to its brokers or clients."""
    a, b = link.source, link.destination
    held = frozenset([mirror(link.name), clients(a), clients(b), brokers(a), brokers(b)])
    paths = frozenset([path(link.name), path(f"*->{a}")])
    return Wants(holds=held | paths) if fault != FORCED else Wants(holds=held, needs=NONE)


def disturb(draft: Draft, bounds: Bounds) -> None:
    """Adds one fault that is healed again; nothing where none can be done."""
    names = [n for n in bounds.allowed if n not in (*FAILOVERS, REVERSE)]
    able = [
        (name, found) for name in names if (found := targets(name, draft)) and _due(name, draft)
    ]
    if not able:
        return
    name, found = draft.dice.choice(able)
    target = draft.dice.choice(found)
    if draft.dice.random() < AGAIN:
        name, target = _again(draft, dict(able)) or (name, target)
    duration = round(max(_LONG_ENOUGH.get(name, 0.0), draft.dice.uniform(0.2, bounds.longest)), 2)
    options = _options(name, draft.dice)
    own = wants(name, target, draft.topology)
    once = moment(name, target, draft, own)
    if name == DELETED:
        once = _something_to_delete(once, target, draft)
    draft.add(name, target, own, duration=duration, options=options, once=once)


def _options(fault: str, dice: random.Random) -> Mapping[str, Option]:
    """Options of a fault; of clients those of whom there are some."""
    options: Mapping[str, Option] = of_fault(fault, dice)
    if fault == "client-kill":
        return dice.choice(VICTIMS)
    if fault == "client-pause":
        return {"workload": dice.choice(VICTIMS)["workload"]}
    return {} if fault == UPGRADE else options


def _something_to_delete(once: Condition, home: str, draft: Draft) -> Condition:
    """Not before clients have done something; often during a link-cut, so that it goes before the
    mirror has got it."""
    if ENDED not in dict(once.triggers):
        once = replace(once, triggers=((ENDED, BEGUN), *once.triggers))
    lasting = [fault.id for fault in draft.lasting("link-") if _from(fault, home)]
    return (
        replace(once, during=(draft.dice.choice(lasting),))
        if lasting and draft.dice.random() < ONCE
        else once
    )


def _from(fault: FaultSpec, home: str) -> bool:
    """Whether a fault of links is one of a mirror's path out of a cluster."""
    return fault.on.link is not None and fault.on.source == home


def _again(draft: Draft, able: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """A fault that the schedule has already, on the same target, where that can be done still."""
    before = [(f.fault, f.target) for f in draft.faults if f.target in able.get(f.fault, ())]
    return draft.dice.choice(before) if before else None


def _due(fault: str, draft: Draft) -> bool:
    """Partitions are added once, and while mirrors carry them from home: they would be others on
    each side. Upgraded is once."""
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
    """The log state that a fault waits for: one that the present clients and mirrors reach by
    themselves."""
    if draft.dice.random() > ONCE:
        return Condition()
    source = Target.parse(target).source
    states: list[tuple[str, int | None]] = [(ENDED, draft.dice.choice([10, 50, 100]))]
    if source in draft.at.values():
        states += [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        states.append(("open-partitions", min(2, draft.partitions)))
    if target in draft.mirrored and source in written_or_mirrored(draft):
        states += [("mirror-behind", None), ("mirror-behind", 20), ("open-at-destination", None)]
    return Condition(triggers=(draft.dice.choice(states),))


def fail_over(
    draft: Draft, bounds: Bounds, link: LinkSpec, *, forced: bool, back: bool = False
) -> None:
    """Adds a failover along a link or a reverse link that has a mirror; then, where a link is
    disturbed, maybe during that.

    `back`: a failback follows, which has something to truncate where the source dies with what
    never crossed: half of those that are forced are during a cut, which is added where there is
    none.
    """
    name = FORCED if forced else PLANNED
    if name not in bounds.allowed:
        return
    # Before clients have done something there is nothing to be judged.
    begun: tuple[tuple[str, int | None], ...] = () if draft.moved else ((ENDED, BEGUN),)
    triggers: Sequence[tuple[str, int | None]] = begun
    during: tuple[str, ...] = ()
    if forced:
        states: list[tuple[str, int | None]] = [
            ("open-transactions", None),
            ("open-transactions", 2),
            ("commit-in-flight", None),
        ]
        triggers = (*begun, draft.dice.choice(states))
        during = _disturbed(draft, bounds, link, back=back)
        if during and begun:
            # Within the disturbance there may be no time for it.
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


def _disturbed(draft: Draft, bounds: Bounds, link: LinkSpec, *, back: bool) -> tuple[str, ...]:
    """The disturbance of the link that a forced failover waits for, if any."""
    disturbed = [f.id for f in draft.lasting("link-") if f.target == link.name]
    if back and not disturbed and LINK_CUT in bounds.allowed and draft.dice.random() < TAIL:
        return (
            draft.add(
                LINK_CUT,
                link.name,
                wants(LINK_CUT, link.name, draft.topology),
                duration=bounds.longest,
            ).id,
        )
    return tuple(disturbed[:1]) if draft.dice.random() < ONCE else ()


def reverse(draft: Draft, bounds: Bounds, link: LinkSpec) -> None:
    """Adds the reversal of a link's mirror, after its failover."""
    if REVERSE not in bounds.allowed:
        return
    draft.add(REVERSE, link.name, failover_wants(PLANNED, link), begins=(0.2, 1.0))
    draft.mirrored.add(f"{link.destination}->{link.source}")
    draft.up.add(link.source)
