"""A world in which no fault takes effect, and one that has only links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from linkflap.harness.model.events import Kind, stamped
from linkflap.harness.model.protocols import Deployment, Direction, FaultWorld, Link
from linkflap.topologies import parse

PAIR = parse("A@3.9.2:3->B@3.9.2")


@dataclass
class IdleLink:
    """A link on which nothing takes effect, although every call succeeds. Toxics and cuts are only
    counted."""

    name: str = "A->B"
    source: str = "A"
    answer: float | None = 0.001
    wanted: list[str] = field(default_factory=list)
    sticky: bool = False
    enabled: bool = True

    def cut(self, *, owner: str = "") -> None:
        self.wanted.append(owner)

    def restore(self, *, owner: str | None = None) -> None:
        if not self.sticky:
            self.wanted = [other for other in self.wanted if owner is not None and other != owner]

    def clear(self, *, owner: str | None = None) -> None:
        self.restore(owner=owner)

    def add_toxic(
        self,
        kind: str,
        direction: Direction,
        attributes: Mapping[str, int],
        toxicity: float = 1.0,
        *,
        owner: str = "",
    ) -> None:
        self.wanted.append(owner)

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        return [other for other in self.wanted if owner in (None, other)]

    def holders(self) -> frozenset[str]:
        return frozenset(self.wanted)

    def round_trip(self, *, within: float) -> float | None:
        return self.answer

    def first_answer(self, *, within: float) -> float | None:
        return self.answer

    def transfer(self, *, size: int, within: float) -> float | None:
        return 5e6 if self.answer else None

    def delivers_requests(self, *, within: float) -> bool:
        return self.answer is not None


@dataclass
class IdleMirror:
    """A mirror whose worker cannot be killed."""

    alive: bool = True
    restarts: int = 0

    def crash(self) -> None: ...

    def restart(self) -> None:
        self.restarts += 1


class Recorder:
    def write(self, event: Kind, /) -> Kind:
        return stamped(event)


def world(link: IdleLink, mirror: IdleMirror | None = None, *, stopping: bool = True) -> FaultWorld:
    """A world with a cluster of one broker. `stopping` makes a bite measure once instead of until
    its deadline."""
    cluster = SimpleNamespace(name="A", brokers={1: SimpleNamespace(state="running")})
    deployment = SimpleNamespace(
        links={"A->B": link, "*->A": link},
        clusters={"A": cluster},
        topology=PAIR,
        cluster_services={},
    )
    mirrors = {"A->B": mirror or IdleMirror()}
    return cast(
        FaultWorld,
        SimpleNamespace(
            deployment=deployment, mirrors=mirrors, recorder=Recorder(), stopping=stopping
        ),
    )


# The part of a run's world that faults use, on a real deployment.


class Unhurt:
    """A real link on which toxics and cuts are never applied, although every call succeeds."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def add_toxic(self, *_: object, **__: object) -> None: ...

    def cut(self, **_: object) -> None: ...


def real_world(
    deployment: Deployment, *, unhurt: bool = False, stopping: bool = False
) -> FaultWorld:
    """The part of a run's world that faults of links and brokers use. `stopping` makes a bite
    measure once instead of until its deadline."""
    links = {name: Unhurt(link) for name, link in deployment.links.items()}
    broken = SimpleNamespace(
        links=links,
        clusters=deployment.clusters,
        topology=deployment.topology,
        cluster_services={},
    )
    return cast(
        FaultWorld,
        SimpleNamespace(
            deployment=broken if unhurt else deployment,
            mirrors={},
            recorder=None,
            stopping=stopping,
        ),
    )
