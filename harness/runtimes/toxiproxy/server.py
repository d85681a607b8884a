"""One toxiproxy-server: starts it, polls until it answers, and kills it. It is a child process on
loopback unless a runtime runs it elsewhere.

Promises: `start` returns when the control API answers on loopback, `kill` when the server has
ended, and it does not outlive the harness (`harness.machine.children`).
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import requests

from linkflap.harness.machine.children import spawn
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, SetupError
from linkflap.harness.model.protocols import Direction, Running, Spawn
from linkflap.harness.model.wait import until

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


START_WITHIN: Final = 30.0


class ToxiproxyServer:
    """A server that can be restarted on the same port after a kill. Its output goes to `log`.
    `spawn` starts it with its control API on `port` of loopback. `listens_on` is the address on
    which its proxies listen."""

    def __init__(
        self, spawn: Spawn, *, port: int, log: Path, listens_on: str = "127.0.0.1"
    ) -> None:
        self.port, self.log, self.listens_on = port, log, listens_on
        self._spawn = spawn
        self._child: Running | None = None

    def start(self) -> None:
        """Raises SetupError when it cannot be started, or does not listen in time."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = child = self._spawn()
        name = f"toxiproxy-server on port {self.port}"
        try:
            until(
                lambda: not child.alive or self._answers(),
                within=START_WITHIN,
                what=f"{name} to answer",
                every=0.005,
            )
        except DeadlineExceeded as error:
            self.kill()
            raise SetupError(f"{error}; see {self.log}") from error
        if not child.alive:
            raise SetupError(
                f"{name} ended with status {child.poll()}: is that port free? See {self.log}"
            )

    def _answers(self) -> bool:
        """Asks over HTTP: a published port accepts connections before the server listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.request("GET", "/version")
            return connection.getresponse().status == 200
        return False

    @property
    def described_in(self) -> str:
        """Where it says what went wrong."""
        return str(self.log)

    def name_of(self, broker: int) -> str:
        """The name of the proxy of a broker."""
        return f"broker-{broker}"

    @property
    def child(self) -> Running | None:
        """The running server, if it was started."""
        return self._child

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        if self._child is not None:
            self._child.kill()
            self._child = None


class ToxiproxyProcess(ToxiproxyServer):
    """A server that is a child of this process; `folder` gets its log."""

    def __init__(self, server: Path, *, port: int, folder: Path) -> None:
        log = folder / "toxiproxy.log"
        command = [str(server.absolute()), "-host", "127.0.0.1", "-port", str(port)]
        name = f"toxiproxy-server on port {port}"
        super().__init__(
            partial(
                spawn,
                command,
                name=name,
                folder=folder,
                output=log,
                environment={"LOG_LEVEL": "warn"},
            ),
            port=port,
            log=log,
        )
