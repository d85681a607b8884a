"""Links: the proxied path into one cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

Direction = Literal["requests", "responses"]


class Link(Protocol):
    """The proxied path into a cluster: one Toxiproxy server, one proxy per broker of the source.

    `name` is `A->B` for a link of the topology, and `*->A` for the proxied path of ordinary clients
    to A.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The cluster that the path leads into (whose brokers stand behind the proxies)."""

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: the proxies' addresses."""

    def cut(self, *, owner: str = "") -> None:
        """Disables the proxies: open connections end, new ones are refused. `owner` is the fault
        that does it."""

    def restore(self, *, owner: str | None = None) -> None:
        """Ends the cut and removes every toxic of `owner`, or of everyone; enabled again when no
        other owner cuts it."""

    def add_toxic(
        self,
        kind: str,
        direction: Direction,
        attributes: Mapping[str, int],
        toxicity: float = 1.0,
        *,
        owner: str = "",
    ) -> None:
        """Adds a toxic to live connections of every proxy of the link; rebuilds the proxies if the
        API hangs."""

    def clear(self, *, owner: str | None = None) -> None:
        """Removes every toxic of `owner`, or of everyone, by way of new proxies (open connections
        are reset)."""

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        """Names of the toxics in force, of `owner` or of everyone, asked from the server."""

    def holders(self) -> frozenset[str]:
        """The owners of all cuts and toxics that are wanted now."""

    @property
    def enabled(self) -> bool:
        """Whether every proxy lets connections through, asked from the server."""

    def round_trip(self, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip on a new connection through the path, or None if
        there was no answer."""

    def first_answer(self, *, within: float) -> float | None:
        """Seconds until the first bytes come back on a new connection, or None: of a secured link
        before anybody is let in."""

    def transfer(self, *, size: int, within: float) -> float | None:
        """Bytes per second of responses over the path, measured over about `size` bytes, or None if
        it stalled."""

    def delivers_requests(self, *, within: float) -> bool:
        """Whether a request sent into the path takes effect on the cluster, seen from behind the
        proxy."""

    def prove(self) -> None:
        """Shows that the proxies are in the path, as an event `link-proven`. Raises SetupError when
        they are not."""
