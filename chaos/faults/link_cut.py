"""link-cut: the whole path of a link is gone for the window; open connections end, new ones are refused.

Breaks    every connection over the link, as a pulled cable with a firewall that answers would.
Bite      a round trip that was answered before is not answered in the window.
Heal      the proxies let connections through, carry no toxic of ours, and a round trip is as quick as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from chaos.faults.link_path import LinkPath, link_reason
from chaos.faults.settings import settings
from harness.model.protocols import Bite, World
from harness.model.scenario import FaultSpec, Option
from harness.model.topology import Topology

UNANSWERED_WITHIN = 2.0


class LinkCut:
    """Cuts a link: open connections end, new ones are refused."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, spec: FaultSpec, world: World) -> None:
        settings(spec, self.defaults)
        self._path = LinkPath(spec, world)

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return link_reason(target, topology)

    def inject(self) -> None:
        self._path.look()
        self._path.cut()

    def bite(self) -> Bite:
        return self._path.bite("round trip over the link", "ended at once without an answer", self._measure)

    def _measure(self) -> tuple[bool, object]:
        return self._path.ends_at_once(within=UNANSWERED_WITHIN)

    def heal(self) -> Sequence[str]:
        return self._path.heal()
