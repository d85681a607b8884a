"""A schedule under construction: what is up at its end, and which faults must not overlap.

Every fault holds some objects exclusively and needs others undisturbed. Two faults that want the
same object follow one another (`after:`); others overlap freely. So no fault prevents the bite of
another: a link whose brokers are down cannot be measured to be slow.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from linkflap.chaos.triggers import Condition, condition
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a fault `holds` for itself while it lasts, and what it `needs` to be left alone."""

    holds: frozenset[str] = NONE
    needs: frozenset[str] = NONE

    def clash(self, other: Wants) -> bool:
        """Whether the two must not overlap."""
        return bool(self.holds & (other.holds | other.needs) or other.holds & self.needs)


def brokers(cluster: str) -> str:
    """The brokers of a cluster, as something to be held."""
    return f"brokers {cluster}"


def path(link: str) -> str:
    """The proxied path of a link, likewise."""
    return f"path {link}"


def mirror(link: str) -> str:
    """The mirror of a link, likewise."""
    return f"mirror {link}"


def clients(cluster: str) -> str:
    """The clients of a cluster, likewise."""
    return f"clients {cluster}"


@dataclass(slots=True, kw_only=True)
class Draft:
    """The schedule so far. `up` are the clusters whose brokers run, `mirrored` the links (and
    reverse links) with a mirror, `at` where the clients of a home are, by the end of all that was
    added."""

    topology: Topology
    dice: random.Random
    partitions: int = 2
    """Of each topic."""
    up: set[str] = field(default_factory=set)
    mirrored: set[str] = field(default_factory=set)
    at: dict[str, str] = field(default_factory=dict)
    moved: bool = False
    """Whether clients have failed over."""
    faults: list[FaultSpec] = field(default_factory=list)
    _wants: dict[str, Wants] = field(default_factory=dict)
    _ancestors: dict[str, Set[str]] = field(default_factory=dict)

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
        """Adds a fault behind all that it must not overlap. `once`: triggers, and faults that it is
        to overlap."""
        id_ = f"{len(self.faults) + 1}-{fault}"
        once = once or Condition()
        before = self._before(wants, once.during)
        if not self._held_back(once.during, before):
            once, before = replace(once, during=()), self._before(wants, ())
        spec = FaultSpec(
            id=id_,
            fault=fault,
            target=target,
            at=round(self.dice.uniform(*begins), 2),
            duration=duration,
            when=str(replace(once, after=before)),
            options=dict(options or {}),
        )
        self.faults.append(spec)
        self._wants[id_] = wants
        self._ancestors[id_] = {*before, *(a for other in before for a in self._ancestors[other])}
        return spec

    def delay(self, id_: str, triggers: Sequence[tuple[str, int | None]]) -> None:
        """Makes a fault wait for more conditions; a new one replaces an old one of the same
        name."""
        nth = next(nth for nth, fault in enumerate(self.faults) if fault.id == id_)
        once = condition(self.faults[nth].when)
        kept = [one for one in once.triggers if one[0] not in dict(triggers)]
        self.faults[nth] = replace(
            self.faults[nth], when=str(replace(once, triggers=(*triggers, *kept)))
        )

    def _before(self, wants: Wants, during: Collection[str]) -> tuple[str, ...]:
        """The faults that it must come after: the last of each line of them."""
        clashing = [
            f.id for f in self.faults if f.id not in during and wants.clash(self._wants[f.id])
        ]
        return tuple(a for a in clashing if not any(a in self._ancestors[b] for b in clashing))

    def _held_back(self, during: Sequence[str], before: Sequence[str]) -> bool:
        """Has those that a fault overlaps wait for what it comes after: else they may have ended by
        then. False, and nothing is changed, where one of them cannot wait for that."""
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
        """Notes that a fault, and whatever follows it, comes after an earlier one."""
        more = {earlier, *self._ancestors[earlier]}
        for follower, ancestors in self._ancestors.items():
            if follower == id_ or id_ in ancestors:
                self._ancestors[follower] = ancestors | more

    def lasting(self, kinds: str) -> list[FaultSpec]:
        """Faults of a family that are held for a while, and that nothing was made to follow."""
        followed = {name for fault in self.faults for name in condition(fault.when).faults}
        return [
            f
            for f in self.faults
            if f.fault.startswith(kinds) and f.duration >= 1.0 and f.id not in followed
        ]
