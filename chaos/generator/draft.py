"""A schedule under construction (draft): what runs at its end, and which faults must not overlap.

Every fault holds some objects exclusively and needs others undisturbed. If two faults conflict over
an object, one follows the other (`after:`); all others may overlap. So no fault hides the bite of
another: for example, latency on a link cannot be measured while its brokers are down.
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
