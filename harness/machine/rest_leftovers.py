"""Objects that a run makes on servers of others by REST, and their removal: connectors on a Connect
cluster, and proxies on a Toxiproxy.

Every name has a part that no other run has (`unique`), so that whatever has such a name is the
run's. It is noted before it is made, and removed at the end of the run; after its death by its
watchdog, or by `linkflap clean`.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urlsplit

from linkflap.harness.machine import client_properties
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.wait import until

if TYPE_CHECKING:
    import requests

_ASK_SECONDS: Final = 15.0
"""Seconds for one answer. A Connect worker asks its leader, and reads its topics to their ends."""
_GONE_WITHIN: Final = 60.0
"""Seconds: a Connect cluster answers 409 as long as it rebalances."""
_URL: Final = r"https?://[^\s/{}@?#,]+"
_ADDRESS: Final = re.compile(
    rf"(?P<url>{_URL}/?(?:,\s*{_URL}/?)*)(?:\{{(?P<properties>[^{{}}]+)\}})?"
)
_KNOWN: Final = ("username", "password", "ssl.ca.location")


class NoServer(EnvironmentFailure):
    """The server did not answer. `refused`: no program listens there."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(sentence)
        self.refused = refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RestServer:
    """A server: its address, and where its login is (`client_properties`: a file, or `env:NAME`,
    with username and password, and ssl.ca.location); empty for none. Where several serve the same,
    as the workers of a Connect cluster do, `url` has all their addresses, with commas."""

    url: str
    properties: str = ""

    @classmethod
    def parse(cls, written: str) -> RestServer:
        """`http://host:8083{connect.properties}`. Raises ValueError."""
        found = _ADDRESS.fullmatch(written.strip())
        urls = [each.strip().rstrip("/") for each in found["url"].split(",")] if found else []
        if found is None or not all(map(_possible_port, urls)):
            raise ValueError(
                "give http://host:port or https://host:port, and the file with its login in braces "
                "behind it, if it has one: http://host:8083{connect.properties} or "
                "http://host:8083{env:NAME}"
            )
        where = (found["properties"] or "").strip()
        return cls(url=",".join(urls), properties=client_properties.absolute(where))

    def login(self) -> dict[str, str]:
        """The content of the file or the variable. Raises InputError."""
        return dict(client_properties.values(self.properties, _KNOWN)) if self.properties else {}

    def ask(self, method: str, path: str, body: object = None) -> requests.Response:
        """The answer of the first that gives one, whatever its status. Raises NoServer, and
        InputError for a login that cannot be read."""
        *others, last = self.url.split(",")
        for url in others:
            with contextlib.suppress(NoServer):
                return self._ask(url, method, path, body)
        return self._ask(last, method, path, body)

    def _ask(self, url: str, method: str, path: str, body: object) -> requests.Response:
        import requests  # slow, and the ledger is read by every process

        login = self.login()
        try:
            with requests.Session() as session:
                session.trust_env = False
                session.verify = login.get("ssl.ca.location", True)
                if "username" in login:
                    session.auth = (login["username"], login.get("password", ""))
                return session.request(method, f"{url}{path}", json=body, timeout=_ASK_SECONDS)
        except (OSError, requests.RequestException) as error:
            raise NoServer(
                f"{url} does not answer ({_reason(error)})",
                refused="Connection refused" in str(error),
            ) from None


def _possible_port(url: str) -> bool:
    with contextlib.suppress(ValueError):
        return urlsplit(url).port != 0
    return False


def _reason(error: BaseException) -> str:
    """The innermost reason, in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"not within {_ASK_SECONDS:g} s"
    if isinstance(error, requests.exceptions.SSLError):
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "its certificate is not believed; name its authority as ssl.ca.location"
        return "it does not speak TLS; does its address begin with http://?"
    if "Failed to resolve" in str(error):
        return "its name cannot be resolved"
    return "connection refused or closed"


def said(answer: requests.Response) -> str:
    """The server's text about an error, on one line."""
    try:
        found: Any = answer.json()
        text = found.get("message") or found.get("error") or answer.text
        text = str(text).partition("\nYou can also find")[0]
    except (ValueError, AttributeError):
        text = answer.text
    return " ".join(str(text).split())[:300] or f"status {answer.status_code}"


def unique(name: str) -> str:
    """A name that no other run gives."""
    return f"linkflap.{uuid.uuid4().hex[:8]}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestObject:
    """A connector or a proxy of a run's. `cluster_id`: that of the Kafka cluster which the Connect
    cluster said that it is on."""

    kind: Literal["connector", "proxy"]
    name: str
    server: RestServer
    cluster_id: str = ""

    @property
    def path(self) -> str:
        return f"/{'connectors' if self.kind == 'connector' else 'proxies'}/{quote(self.name)}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on {self.server.url}"


def remove(made: RestObject) -> Iterator[str]:
    """Removes it, and yields its name if it was there. Raises StillThere if it is left, or if
    another server answers there by now."""
    try:
        if made.kind == "connector" and (other := _elsewhere(made)):
            raise StillThere([f"{made} was not looked for: {other}"])
        there = made.server.ask("GET", made.path).status_code != 404
        last: list[str] = []
        until(
            partial(_done, made, list(_STEPS[made.kind]), last),
            within=_GONE_WITHIN,
            every=0.2,
            what=f"{made} to be gone",
            state=lambda: last[-1:],
        )
    except (NoServer, InputError, DeadlineExceeded) as error:
        if made.kind == "proxy" and isinstance(error, NoServer) and error.refused:
            return  # a Toxiproxy has its proxies in memory alone
        raise StillThere(
            [f"{made} is left ({error}); remove it with `linkflap clean` when it can be reached"]
        ) from None
    if there:
        yield str(made)


def _elsewhere(made: RestObject) -> str:
    """The other Kafka cluster that the Connect cluster at this address belongs to; empty: none."""
    answer = made.server.ask("GET", "/")
    try:
        found = answer.json()["kafka_cluster_id"]
    except (ValueError, KeyError, TypeError):
        return f"what answers there does not say that it is a Connect cluster ({said(answer)})"
    if found == made.cluster_id:
        return ""
    return f"the Connect cluster there is another one by now, on cluster.id {found}"


_STEPS: Final = {
    # Connect would keep the offsets of a connector that is deleted, and deletes those of a stopped
    # one alone.
    "connector": (("PUT", "/stop"), ("DELETE", "/offsets"), ("DELETE", "")),
    "proxy": (("DELETE", ""),),
}


def _done(made: RestObject, steps: list[tuple[str, str]], last: list[str]) -> bool:
    """Takes the next steps, up to one that the server refuses, which it says in `last`."""
    while steps:
        method, path = steps[0]
        answer = made.server.ask(method, f"{made.path}{path}")
        if answer.status_code == 404:
            break
        if not answer.ok:
            last.append(said(answer))
            return False
        steps.pop(0)
    return made.server.ask("GET", made.path).status_code == 404
