"""The link from a cluster's brokers to a service that they need besides Kafka: a Toxiproxy before
it, measured with a request of the service's own protocol that changes nothing there.

linkflap cannot see what a request did in the service, nor ask it for enough bytes to measure a
rate. So only whether and when it answers is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from linkflap.harness.model.protocols import Recorder
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyServer
from linkflap.harness.wire.access import Address

REQUESTS: Final[Mapping[str, bytes]] = {
    "http": b"GET / HTTP/1.1\r\nHost: linkflap\r\n\r\n",
    "postgresql": b"\0\0\0\x08\x04\xd2\x16\x2f",  # SSLRequest, which every server answers at once
}
"""Protocol -> a first request, to which any answer is the service's."""
_ONLY: Final = 1
"""The number of its one proxy, which all brokers use."""


def answers(protocol: str, address: Address, *, within: float) -> float | None:
    """Seconds until a service answers on a new connection; None if it does not."""
    return probe.first_answer(address, within=within, words=REQUESTS[protocol])


class ServiceLink(ToxiproxyLink):
    """`harness.model.protocols.Link` before a service that listens at `behind`."""

    def __init__(
        self,
        name: str,
        protocol: str,
        *,
        port: int,
        behind: str,
        api_port: int,
        folder: Path,
        recorder: Recorder,
        server: ToxiproxyServer | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`host`: where brokers reach its proxy."""
        super().__init__(
            name,
            name.partition("->")[0],
            {_ONLY: (port, behind)},
            api_port,
            folder,
            recorder,
            behind,
            server=server,
            advertised={_ONLY: (host, port)},
        )
        self._protocol = protocol

    def round_trips(self, *, within: float) -> dict[int, float | None]:
        return self._each(lambda address: answers(self._protocol, address, within=within))

    def first_answer(self, *, within: float) -> float | None:
        return self.round_trip(within=within)

    def delivers_requests(self, *, within: float) -> None:
        """What a request did in a service cannot be seen."""

    def _check_advertised(self, broker: int, address: Address) -> None:
        """A service tells no addresses."""
