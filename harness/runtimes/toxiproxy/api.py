"""The control API of one toxiproxy-server, through the toxiproxy-python package, with deadlines.

Promises: every call ends within a deadline, goes to this server and no other, and ignores the
environment's HTTP proxies. It raises `Unreachable` when the server hangs, is dead or answers with a
server error; the caller then rebuilds the server.

Version 0.1.1 of the package keeps host and port in class globals (the last caller wins for the
entire process), calls `requests` without a timeout, treats 5xx answers as success, and listens on a
random port by default. So each server gets a private copy of the package under its own name. That
copy's `requests` is a session that adds the deadline and refuses 5xx. The `toxiproxy` that users
may import stays unchanged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import requests

from linkflap.harness.model.errors import FaultError, SetupError
from linkflap.harness.model.protocols import Direction

DEADLINE: Final = 3.0
_copies = itertools.count(1)
_STREAMS: Final[Mapping[Direction, str]] = {"requests": "upstream", "responses": "downstream"}


class Unreachable(Exception):
    """The server did not answer in time, has ended, or failed internally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """One toxic to add to every proxy of a link. Attributes are Toxiproxy's own (milliseconds,
    KB/s)."""

    name: str
    kind: str
    direction: Direction
    attributes: Mapping[str, int]
    toxicity: float
    owner: str


class _RequestsStandIn:
    """Stands in for the `requests` module inside a private copy of the package."""

    def __init__(self, deadline: float) -> None:
        self._session, self._deadline = requests.Session(), deadline
        self._session.trust_env = False

    def get(self, **arguments: Any) -> requests.Response:  # noqa: ANN401
        return self._call("GET", arguments)

    def post(self, **arguments: Any) -> requests.Response:  # noqa: ANN401
        return self._call("POST", arguments)

    def delete(self, **arguments: Any) -> requests.Response:  # noqa: ANN401
        return self._call("DELETE", arguments)

    def _call(self, method: str, arguments: dict[str, Any]) -> requests.Response:
        what = f"{method} {arguments['url']}"
        try:
            response = self._session.request(method, timeout=self._deadline, **arguments)
        except requests.Timeout as error:
            raise Unreachable(f"{what} did not return within {self._deadline:g} s") from error
        except requests.RequestException as error:
            raise Unreachable(f"{what} failed: {error}") from error
        if response.status_code >= 500:
            raise Unreachable(f"{what} answered {response.status_code}: {response.text.strip()}")
        return response

    def close(self) -> None:
        self._session.close()


class ToxiproxyApi:
    """One server's API. Not thread-safe: `ToxiproxyLink` serialises."""

    def __init__(self, port: int, *, deadline: float = DEADLINE) -> None:
        self._alias, self._session = (
            f"_linkflap_toxiproxy_{next(_copies)}",
            _RequestsStandIn(deadline),
        )
        package = _private_copy(self._alias)
        sys.modules[f"{self._alias}.api"].requests = self._session  # type: ignore[attr-defined]
        self._server = package.Toxiproxy()
        self._server.update_api_consumer("127.0.0.1", port)
        exceptions = sys.modules[f"{self._alias}.exceptions"]
        self._refusals = (exceptions.InvalidToxic, exceptions.NotFound, exceptions.ProxyExists)
        self._proxies: dict[str, Any] = {}

    def close(self) -> None:
        """Closes the session and forgets the private copy."""
        self._session.close()
        for name in [name for name in sys.modules if name.partition(".")[0] == self._alias]:
            del sys.modules[name]

    def answers(self) -> bool:
        """Whether the server answers at all."""
        try:
            self._server.proxies()
        except Unreachable:
            return False
        return True

    def create(self, name: str, *, listen: str, upstream: str, enabled: bool) -> None:
        """Creates a proxy. Raises SetupError when the server refuses it, for instance because the
        port is in use."""
        try:
            self._proxies[name] = self._server.create(
                upstream=upstream, name=name, listen=listen, enabled=enabled
            )
        except (KeyError, *self._refusals) as error:
            raise SetupError(
                f"toxiproxy refused a proxy at {listen} for {upstream}: {error}; is that port free?"
            ) from error

    def enable(self, name: str, *, enabled: bool) -> None:
        """Lets connections through, or closes all of them and stops listening."""
        proxy = self._proxies[name]
        if enabled:
            proxy.enable()
        else:
            proxy.disable()

    def add(self, name: str, toxic: Toxic) -> None:
        """Adds a toxic to existing and new connections. Raises FaultError when the server refuses
        it."""
        try:
            self._proxies[name].add_toxic(
                type=toxic.kind,
                stream=_STREAMS[toxic.direction],
                name=toxic.name,
                toxicity=toxic.toxicity,
                attributes=dict(toxic.attributes),
            )
        except self._refusals as error:
            raise FaultError(
                f"toxiproxy refused the toxic {toxic.kind} {dict(toxic.attributes)}: {error}"
            ) from error

    def destroy(self, name: str) -> None:
        """Deletes a proxy with its connections and its toxics; a missing one counts as deleted."""
        if proxy := self._proxies.pop(name, None):
            with contextlib.suppress(*self._refusals):
                proxy.destroy()

    def toxics(self, name: str) -> list[str]:
        """Names of the toxics in force, as the server reports them."""
        return sorted(self._proxies[name].toxics())

    def enabled(self, name: str) -> bool:
        """Whether the proxy lets connections through, as the server reports (the answer of a POST
        may be wrong, that of a GET is not)."""
        return bool(self._server.proxies()[name].enabled)


def _private_copy(alias: str) -> ModuleType:
    """A copy of the toxiproxy package under another name. Its own imports are relative, so they use
    the copy."""
    found = importlib.util.find_spec("toxiproxy")
    if found is None or found.origin is None:
        raise SetupError(
            "the package toxiproxy-python is not installed: pip install toxiproxy-python"
        )
    spec = importlib.util.spec_from_file_location(
        alias, found.origin, submodule_search_locations=list(found.submodule_search_locations or ())
    )
    if spec is None or spec.loader is None:
        raise SetupError(
            f"the package toxiproxy-python at {found.origin} cannot be loaded: install it again"
        )
    package = importlib.util.module_from_spec(spec)
    sys.modules[alias] = package
    spec.loader.exec_module(package)
    return package
