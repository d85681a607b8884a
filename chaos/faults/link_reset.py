"""link-reset: every connection over a link is reset (TCP RST) as soon as a byte comes back, new ones too.

Breaks    clients' sessions, without any silence: the worst case for a client that retries at once.
Bite      a round trip that was answered before ends at once without an answer.
Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
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


class LinkReset:
    """Resets every connection over a link."""

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
        self._path.add("reset_peer", "responses", timeout=0)

    def bite(self) -> Bite:
        return self._path.bite("round trip over the link", "ended at once without an answer", self._measure)

    def _measure(self) -> tuple[bool, object]:
        return self._path.ends_at_once(within=UNANSWERED_WITHIN)

    def heal(self) -> Sequence[str]:
        return self._path.heal()
