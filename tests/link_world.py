"""The part of a run's world that link faults use, on a real deployment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from linkflap.harness.model.protocols import Deployment, Link, World


class Unhurt:
    """A real link on which toxics and cuts are never applied, although every call succeeds."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def add_toxic(self, *_: object, **__: object) -> None: ...

    def cut(self, **_: object) -> None: ...


def world(deployment: Deployment, *, unhurt: bool = False, stopping: bool = False) -> World:
    """The part of a run's world that link faults use. `stopping` makes a bite measure once instead
    of until its deadline."""
    links = {name: Unhurt(link) if unhurt else link for name, link in deployment.links.items()}
    broken = SimpleNamespace(
        links=links, clusters=deployment.clusters, topology=deployment.topology
    )
    return cast(
        World, SimpleNamespace(deployment=broken, mirrors={}, recorder=None, stopping=stopping)
    )
