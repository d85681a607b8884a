"""A Toxiproxy that others run, for paths into a cluster that runs already: the run makes proxies
there with names of its own, and deletes them at its end; no other proxy is touched.

It must run on this machine and in its network, because what stands behind the proxies listens on
loopback. It is not restarted: where it hangs (`harness.runtimes.toxiproxy.link`), the fault fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from linkflap.harness.machine import ledger
from linkflap.harness.machine.rest_leftovers import NoServer, RestObject, RestServer, unique
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyServer

_SINCE: Final = (2, 2)
"""The first release with reset_peer (its CHANGELOG.md)."""
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_ANSWERS_WITHIN: Final = 10.0


def parse(written: str) -> RestServer:
    """The server at `http://127.0.0.1:8474`. Raises InputError."""
    try:
        server = RestServer.parse(written)
        parts = urlsplit(server.url)
        if server.properties or parts.scheme != "http" or not parts.port or "," in server.url:
            raise ValueError
    except ValueError:
        raise InputError(
            f"toxiproxy is {written!r}; give the address of its API, like http://127.0.0.1:8474"
        ) from None
    if parts.hostname not in _LOOPBACK:
        raise InputError(
            f"toxiproxy is {written!r}, and linkflap's programs behind its proxies listen on "
            "loopback; name one that runs on this machine (127.0.0.1)"
        )
    return server


def check(server: RestServer) -> None:
    """Raises InputError for a server that cannot be used."""
    try:
        version, proxies = server.ask("GET", "/version"), server.ask("GET", "/proxies")
    except NoServer as error:
        raise InputError(
            f"the Toxiproxy at {error}; check that it runs, and that this is its API"
        ) from None
    try:
        known: Any = proxies.json()
    except ValueError:
        known = None
    if not (version.ok and proxies.ok and isinstance(known, dict)):
        raise InputError(f"{server.url} does not answer as a Toxiproxy does; name its API")
    # the JSON of releases before 2.7 is none
    found = re.search(r"(\d+)\.(\d+)[.\d]*", version.text)
    if found is not None and (int(found[1]), int(found[2])) < _SINCE:
        raise InputError(
            f"the Toxiproxy at {server.url} is {found[0]}, which cannot reset connections; it needs"
            f" {'.'.join(map(str, _SINCE))} or later"
        )


class SharedToxiproxy(ToxiproxyServer):
    """`start` notes the proxies that are going to be made, `kill` deletes them. `path` is part of
    their names."""

    def __init__(self, server: RestServer, path: str, brokers: Iterable[int]) -> None:
        super().__init__(_not_started, port=urlsplit(server.url).port or 0, log=Path())
        self._server = server
        self._made = {
            broker: RestObject(kind="proxy", name=unique(f"{path}.broker-{broker}"), server=server)
            for broker in brokers
        }

    def start(self) -> None:
        """Raises SetupError where an earlier proxy could not be deleted."""
        if left := [made for made in self._made.values() if made in ledger.own().made]:
            raise SetupError(f"{left[0]} could not be deleted")
        for made in self._made.values():
            ledger.add_made(made)

    def kill(self) -> None:
        """What cannot be deleted stays in the ledger, for `linkflap clean`."""
        ledger.remove_made(self._made.values())

    def name_of(self, broker: int) -> str:
        return self._made[broker].name

    @property
    def described_in(self) -> str:
        return f"the log of the Toxiproxy at {self._server.url}"

    def refuse_unreached(self, link: ToxiproxyLink) -> None:
        """Raises InputError where nobody answers at its proxies."""
        for broker, seconds in link.round_trips(within=_ANSWERS_WITHIN).items():
            if seconds is None:
                host, port = link.proxies[broker]
                raise InputError(
                    f"the Toxiproxy at {self._server.url} has made a proxy at {host}:{port}, and no"
                    " broker answers there; run it in the network of this machine (a container: "
                    "docker run --network host)"
                )


def _not_started() -> NoReturn:
    raise SetupError("a Toxiproxy of others is not started")
