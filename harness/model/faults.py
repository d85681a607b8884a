"""Names and targets of faults, with one parser for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from linkflap.harness.model.topology import LinkSpec

PLANNED: Final = "failover-planned"
FORCED: Final = "failover-forced"
KILL: Final = "mirror-kill"
UNCLEAN: Final = "unclean-election"
REVERSE: Final = "mirror-reverse"
OF_BROKERS_MIRRORS: Final = ("mirror-coordinator-loss", "mirror-source-moved", "mirror-verbs")
"""Faults of mirrors that run inside the destination's brokers."""
PARTITIONS_ADDED: Final = "partitions-added"
OF_TOPICS: Final = (PARTITIONS_ADDED, "records-deleted")
"""Faults that change topics of a cluster, and do nothing to its brokers."""


@dataclass(frozen=True, slots=True)
class FaultName:
    """The name of a fault. Its first word is the kind of object that the fault breaks."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def fails_over(self) -> bool:
        """Whether clients leave the source of a link for its destination."""
        return self.text.startswith("failover-")

    @property
    def forced(self) -> bool:
        """Whether the fault is a failover without a drain."""
        return self.text == FORCED

    @property
    def reverses(self) -> bool:
        """Whether a mirror that has failed over is reversed: failback begins."""
        return self.text == REVERSE

    @property
    def of_mirror(self) -> bool:
        return self.text.startswith("mirror-")

    @property
    def of_clients(self) -> bool:
        """Whether the fault breaks only clients; brokers and mirrors do not show it."""
        return self.text.startswith(("client-", "program-"))

    @property
    def of_service(self) -> bool:
        """Whether the fault ends a service that a cluster needs."""
        return self.text.startswith("service-")

    @property
    def of_topics(self) -> bool:
        """Whether the fault only changes topics; brokers and their coordinators go on."""
        return self.text in OF_TOPICS

    @property
    def of_link(self) -> bool:
        return self.text.startswith("link-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a fault: a link or its mirror (`A->B`), a client path (`*->A`), a broker
    (`A/1`), or a cluster.

    `source` is empty for a client path, `destination` for a broker or cluster; both are empty for
    an illegal text. `broker` is 0 if the target is no broker.
    """

    source: str = ""
    destination: str = ""
    broker: int = 0

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parses a target. The fault decides whether the target exists."""
        source, arrow, destination = text.partition("->")
        if arrow:
            known = bool(source and destination) and "->" not in destination
            return (
                cls(source="" if source == "*" else source, destination=destination)
                if known
                else cls()
            )
        cluster, _, broker = text.partition("/")
        return cls(source=cluster, broker=int(broker) if broker.isdecimal() else 0)

    @property
    def link(self) -> LinkSpec | None:
        """The link, or None if the target is no link."""
        return (
            LinkSpec(source=self.source, destination=self.destination)
            if self.source and self.destination
            else None
        )

    @property
    def back(self) -> str:
        """The name of the reverse link; empty if the target is no link."""
        return link.reverse.name if (link := self.link) else ""

    @property
    def is_client_path(self) -> bool:
        return bool(self.destination) and not self.source

    @property
    def cluster(self) -> str:
        """The cluster, or the cluster of the broker; empty for a link and a client path."""
        return "" if self.destination else self.source

    @property
    def entered(self) -> str:
        """The cluster whose brokers are reached: a link's source, a client path's end, a broker's
        cluster, or itself."""
        return self.source or self.destination
