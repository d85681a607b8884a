"""Measures a link through its proxies, as its users see it, and for comparison on the source's own
listeners.

Promises: every measurement uses new connections within its deadline, touches no topic and no group,
and measures all proxies of the link at once. The best proxy counts: a fault of the link affects all
of them, while a dead broker behind one proxy is not the link's fault.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.probe import PLAIN
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, Address, NoAnswer
from linkflap.harness.wire.messages import Message
from linkflap.harness.wire.peer import BlockingConnection


def set_mark(name: str) -> bytes:
    """The request that makes a client quota called `name`; see `has_mark` for its effect."""
    return messages.encode_request(*_QUOTAS, 1, probe.CLIENT, _mark(name, remove=False))


def remove_mark(address: Address, name: str, *, within: float, access: Access = PLAIN) -> None:
    """Removes a client quota. Raises NoAnswer."""
    with BlockingConnection(address, within=within, access=access) as path:
        path.ask(*_QUOTAS, _mark(name, remove=True))


def _mark(name: str, *, remove: bool) -> Message:
    m = messages.request(*_QUOTAS)
    entity = m.EntityData(entity_type="client-id", entity_name=name)
    operation = m.OpData(key="request_percentage", value=100.0, remove=remove)
    return m.AlterClientQuotasRequest(
        entries=(m.EntryData(entity=(entity,), ops=(operation,)),), validate_only=False
    )


def has_mark(address: Address, name: str, *, within: float, access: Access = PLAIN) -> bool:
    """Whether a client quota called `name` is known at `address`. Raises NoAnswer."""
    m = messages.request("describe_client_quotas", 1)
    component = m.ComponentData(entity_type="client-id", match_type=0, match=name)
    body = m.DescribeClientQuotasRequest(components=(component,), strict=True)
    with BlockingConnection(address, within=within, access=access) as path:
        return bool(path.ask("describe_client_quotas", 1, body).entries)


_QUOTAS: Final = ("alter_client_quotas", 1)
Answer = TypeVar("Answer")
_REMOVED_WITHIN = 5.0


class LinkMeter:
    """The measurements of a link. `proxies`: broker id -> address; `behind`: the source's own
    listeners. `advertised`: broker id -> the proxy's address as the broker advertises it; by
    default the same. `access` is how the harness authenticates to both."""

    def __init__(
        self,
        name: str,
        proxies: Mapping[int, Address],
        behind: Sequence[Address],
        *,
        advertised: Mapping[int, Address] | None = None,
        access: Access = PLAIN,
    ) -> None:
        self.access = access
        self._held: dict[Address, BlockingConnection] = {}
        self._name, self.proxies, self._behind = name, dict(proxies), list(behind)
        self.advertised = dict(proxies if advertised is None else advertised)

    def round_trips(self, *, within: float) -> dict[int, float | None]:
        """Broker -> seconds of one ApiVersions round trip, None where there was no answer."""
        return self._each(
            lambda address: probe.round_trip(address, within=within, access=self.access)
        )

    def round_trip(self, *, within: float) -> float | None:
        """The fastest of `round_trips`, None if none answered."""
        return min(
            (
                seconds
                for seconds in self.round_trips(within=within).values()
                if seconds is not None
            ),
            default=None,
        )

    def first_answer(self, *, within: float) -> float | None:
        """Seconds until the first bytes come back on a new connection: the fastest of the proxies,
        None if none came."""
        answers = self._each(
            lambda address: probe.first_answer(address, within=within, access=self.access)
        ).values()
        return min((seconds for seconds in answers if seconds is not None), default=None)

    def transfer(self, *, size: int, within: float) -> float | None:
        """Bytes per second of responses over about `size` bytes: the fastest of the proxies, None
        if all stalled."""
        rates = self._each(
            lambda address: probe.transfer(address, size=size, within=within, access=self.access)
        ).values()
        return max((rate for rate in rates if rate is not None), default=None)

    def _each(self, measure: Callable[[Address], Answer]) -> dict[int, Answer]:
        if len(self.proxies) == 1:
            return {broker: measure(address) for broker, address in self.proxies.items()}
        with ThreadPoolExecutor(len(self.proxies)) as pool:
            return dict(zip(self.proxies, pool.map(measure, self.proxies.values()), strict=True))

    def delivers_requests(self, *, within: float) -> bool:
        """Whether a request sent into the path takes effect on the cluster, whatever happens to its
        response. The request sets a client quota for a client that does not exist. The quota is
        looked up without the proxies, and removed."""
        mark = f"{probe.CLIENT}-{uuid.uuid4().hex}"
        with contextlib.ExitStack() as open_paths:
            for address in self.proxies.values():
                # The connection stays open until the effect is seen: closing it could take the
                # request along.
                with contextlib.suppress(NoAnswer):
                    self._path(address, within, open_paths).send(set_mark(mark))
            try:
                until(
                    lambda: self._seen(mark, within),
                    within=within,
                    what=f"a request through link {self._name} to take effect",
                )
            except DeadlineExceeded:
                return False
        self._forget(mark)
        return True

    def _path(
        self, address: Address, within: float, open_paths: contextlib.ExitStack
    ) -> BlockingConnection:
        """A connection for a request. One that begins with a handshake (TLS, SASL) cannot be opened
        while responses are dropped, so it is kept and reused until it ends. Raises NoAnswer."""
        if self._plain:
            return open_paths.enter_context(
                BlockingConnection(address, within=within, access=PLAIN)
            )
        held = self._held.pop(address, None)
        if held is not None and held.ended:
            held.close()
            held = None
        path = held or BlockingConnection(address, within=within, access=self.access)
        path.extend(within)
        self._held[address] = path
        return path

    def close(self) -> None:
        """Closes the connections that are kept."""
        for path in self._held.values():
            path.close()
        self._held.clear()

    def _seen(self, mark: str, within: float) -> bool:
        for address in self._behind:
            with contextlib.suppress(NoAnswer):
                return has_mark(address, mark, within=self._patience(within), access=self.access)
        return False

    def _patience(self, within: float) -> float:
        """Timeout in seconds of one question on the source's own listeners, including
        authentication if there is any."""
        return 1.0 if self._plain else max(1.0, within)

    @property
    def _plain(self) -> bool:
        """Whether connections begin without a handshake."""
        return self.access.tls is None and self.access.login is None

    def _forget(self, mark: str) -> None:
        for address in self._behind:
            with contextlib.suppress(NoAnswer):
                remove_mark(
                    address, mark, within=self._patience(_REMOVED_WITHIN), access=self.access
                )
                return
