"""A link: the proxied path into one cluster, one toxiproxy-server of its own, one proxy per broker of the source.

Promises: what is asked of a link is in force when the call returns, or the call raises. Cuts and toxics have owners (the
faults), so that faults which overlap on one link compose: one fault's heal leaves the others' toxics and cuts alone.

Toxiproxy's control API can hang for good when a toxic is changed while a peer does not read (Toxiproxy issues 412, 427,
428, 558). So every call has a deadline; toxics are added to live connections (half-open faults need that), but removed only
from a disabled proxy, which resets the connections; and a server that hung is killed and populated anew with the same
proxies, cuts and toxics, as an event `proxy-rebuilt`. One server per link keeps that from touching any other link.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from harness.model.errors import DeadlineExceeded, FaultError, SetupError
from harness.model.protocols import Direction, Recorder
from harness.model.wait import until
from harness.runtimes import probe
from harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from harness.runtimes.toxiproxy_api import Toxic, ToxiproxyApi, Unreachable
from harness.runtimes.toxiproxy_process import ToxiproxyProcess

PROBE_LATENCY: Final = 0.1
ANSWERS_WITHIN: Final = 60.0
_Answer = TypeVar("_Answer")


class ToxiproxyLink:
    """`harness.model.protocols.Link` on a real toxiproxy-server that listens on loopback."""

    def __init__(
        self,
        name: str,
        source: str,
        proxies: Mapping[int, tuple[int, str]],
        api_port: int,
        folder: Path,
        recorder: Recorder,
        harness_bootstrap: str,
        *,
        server: Path | None = None,
    ) -> None:
        """`proxies`: broker id -> (port to listen on, upstream host:port). `folder` takes the server's log.

        `harness_bootstrap` is the source's own CLIENT listeners, not proxied: where effects are looked for.
        `server` is the executable; without it the user's cached one is used, built if need be.
        """
        self._name, self._source, self._proxies = name, source, dict(proxies)
        self._process = ToxiproxyProcess(server or toxiproxy_server(), port=api_port, folder=folder)
        self._recorder = recorder
        self._behind = [probe.parse(address) for address in harness_bootstrap.split(",")]
        self._cuts: set[str] = set()
        self._toxics: dict[str, Toxic] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._api: ToxiproxyApi | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def source(self) -> str:
        return self._source

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._addresses().values())

    def _addresses(self) -> dict[int, probe.Address]:
        return {broker: ("127.0.0.1", port) for broker, (port, _) in self._proxies.items()}

    # Life

    def start(self) -> None:
        """Starts the server and makes its proxies; brokers need not be up. Raises SetupError."""
        with self._lock:
            try:
                self._populate()
            except Unreachable as error:
                self.close()
                raise SetupError(f"toxiproxy of link {self._name} did not start: {error}; see {self._process.log}") from error

    def _populate(self) -> None:
        """A fresh server with the proxies, cuts and toxics that are wanted. Raises Unreachable or SetupError."""
        self._forget()
        self._process.start()
        self._api = ToxiproxyApi(self._process.port)
        for broker, (port, upstream) in self._proxies.items():
            self._api.create(_proxy(broker), listen=f"127.0.0.1:{port}", upstream=upstream, enabled=False)
            for toxic in self._toxics.values():
                self._api.add(_proxy(broker), toxic)
            if not self._cuts:
                self._api.enable(_proxy(broker), enabled=True)

    def _forget(self) -> None:
        if self._api is not None:
            self._api.close()
            self._api = None
        self._process.kill()

    def close(self) -> None:
        """Ends the server; safe to call twice, and before start."""
        with self._lock:
            self._forget()

    @contextlib.contextmanager
    def _serving(self) -> Iterator[ToxiproxyApi]:
        with self._lock:
            if self._api is None:
                raise FaultError(f"link {self._name} is not started: start it before it is broken")
            yield self._api

    def _apply(self, change: Callable[[ToxiproxyApi], None]) -> None:
        """Makes `change`, already noted as wanted, true; by way of a new server if this one hangs."""
        with self._serving() as api:
            try:
                change(api)
            except Unreachable as error:
                self._rebuild(str(error))

    def _rebuild(self, reason: str) -> None:
        try:
            self._populate()
        except (Unreachable, SetupError) as error:
            raise FaultError(f"toxiproxy of link {self._name} hung ({reason}) and could not be rebuilt: {error}") from error
        self._recorder.event("proxy-rebuilt", self._name, reason=reason)

    # Breaking and healing

    def cut(self, *, owner: str = "") -> None:
        """Disables the proxies: open connections end, new ones are refused."""
        with self._lock:
            self._cuts.add(owner)
            self._apply(lambda api: self._enable(api, enabled=False))

    def restore(self, *, owner: str | None = None) -> None:
        """Ends the cut and removes the toxics of `owner`, or everyone's; enabled when nobody cuts any more."""
        with self._lock:
            gone = self._disown(owner)
            self._cuts = set() if owner is None else self._cuts - {owner}
            self._apply(lambda api: self._remove(api, gone))

    def add_toxic(
        self, kind: str, direction: Direction, attributes: Mapping[str, int], toxicity: float = 1.0, *, owner: str = ""
    ) -> None:
        """Adds a toxic to live connections of every proxy of the link; rebuilds the proxies if the API hangs."""
        with self._lock:
            name = f"{_plain(owner)}.{next(self._numbers)}.{kind}.{direction}"
            toxic = Toxic(name=name, kind=kind, direction=direction, attributes=dict(attributes), toxicity=toxicity, owner=owner)
            self._toxics[name] = toxic
            try:
                self._apply(lambda api: self._add(api, toxic))
            except FaultError:
                self._toxics.pop(name)
                raise

    def _add(self, api: ToxiproxyApi, toxic: Toxic) -> None:
        for broker in self._proxies:
            api.add(_proxy(broker), toxic)

    def clear(self, *, owner: str | None = None) -> None:
        """Removes the toxics of `owner`, or everyone's, by way of a disabled proxy (open connections are reset)."""
        with self._lock:
            if gone := self._disown(owner):
                self._apply(lambda api: self._remove(api, gone))

    def _disown(self, owner: str | None) -> list[str]:
        gone = [toxic.name for toxic in self._toxics.values() if owner is None or toxic.owner == owner]
        for name in gone:
            del self._toxics[name]
        return gone

    def _remove(self, api: ToxiproxyApi, names: Sequence[str]) -> None:
        if names:
            self._enable(api, enabled=False)
        for broker in self._proxies:
            for name in names:
                api.remove(_proxy(broker), name)
        if not self._cuts:
            self._enable(api, enabled=True)

    def _enable(self, api: ToxiproxyApi, *, enabled: bool) -> None:
        for broker in self._proxies:
            api.enable(_proxy(broker), enabled=enabled)

    # What is in force

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        """Names of the toxics in force, of `owner` or of everyone, asked from the server."""
        names = {name for names in self._ask(lambda api, proxy: api.toxics(proxy)) for name in names}
        return sorted(name for name in names if owner is None or name.partition(".")[0] == _plain(owner))

    def holders(self) -> frozenset[str]:
        """The owners of all cuts and toxics that are wanted now."""
        with self._lock:
            return frozenset(self._cuts | {toxic.owner for toxic in self._toxics.values()})

    @property
    def enabled(self) -> bool:
        """Whether every proxy lets connections through, asked from the server."""
        return all(self._ask(lambda api, proxy: api.enabled(proxy)))

    def _ask(self, question: Callable[[ToxiproxyApi, str], _Answer]) -> list[_Answer]:
        with self._serving() as api:
            try:
                return [question(api, _proxy(broker)) for broker in self._proxies]
            except Unreachable as error:
                self._rebuild(str(error))
        with self._serving() as api:
            return [question(api, _proxy(broker)) for broker in self._proxies]

    # Measuring

    def round_trip(self, *, within: float) -> float | None:
        """Seconds of one ApiVersions round trip on a new connection: the fastest of the proxies, None if none answered.

        The fastest, because a fault of the link slows all of them, and a dead broker behind one is not the link's.
        """
        return min((seconds for seconds in self._round_trips(within).values() if seconds is not None), default=None)

    def _round_trips(self, within: float) -> dict[int, float | None]:
        return self._each(lambda address: probe.round_trip(address, within=within))

    def transfer(self, *, size: int, within: float) -> float | None:
        """Bytes per second of responses over about `size` bytes: the fastest of the proxies, None if all stalled."""
        rates = self._each(lambda address: probe.transfer(address, size=size, within=within)).values()
        return max((rate for rate in rates if rate is not None), default=None)

    def delivers_requests(self, *, within: float) -> bool:
        """Whether a request sent into the path takes effect on the cluster, seen from behind the proxy."""
        mark = f"{probe.CLIENT}-{uuid.uuid4().hex}"
        with ThreadPoolExecutor(len(self._proxies)) as pool:
            for address in self._addresses().values():
                pool.submit(probe.leave_mark, address, mark, within=within)
            try:
                until(lambda: self._seen(mark), within=within, what=f"a request through link {self._name} to take effect")
            except DeadlineExceeded:
                return False
            finally:
                any(probe.leave_mark(address, mark, within=within, remove=True) for address in self._behind)
        return True

    def _seen(self, mark: str) -> bool:
        for address in self._behind:
            with contextlib.suppress(probe.Unanswered):
                return probe.has_mark(address, mark, within=1.0)
        return False

    def _each(self, measure: Callable[[probe.Address], _Answer]) -> dict[int, _Answer]:
        with ThreadPoolExecutor(len(self._proxies)) as pool:
            return dict(zip(self._proxies, pool.map(measure, self._addresses().values()), strict=True))

    def prove(self) -> None:
        """Shows that the proxies are in the path, as an event `link-proven`; raises SetupError when they are not.

        Metadata asked through the link must name only the proxies (else clients would leave the link at once), and a
        latency toxic must show up in every proxy's round trip.
        """
        self._prove_advertised()
        plain = self._proven_round_trips(within=ANSWERS_WITHIN)
        self.add_toxic("latency", "responses", {"latency": int(PROBE_LATENCY * 1000)}, owner="prove")
        try:
            slowed = self._proven_round_trips(within=ANSWERS_WITHIN)
        finally:
            self.clear(owner="prove")
        for broker, seconds in slowed.items():
            if seconds < PROBE_LATENCY:
                raise SetupError(
                    f"link {self._name}: {PROBE_LATENCY * 1000:.0f} ms of latency do not show at broker {broker}, whose "
                    f"round trip at {self._addresses()[broker]} took {seconds * 1000:.1f} ms: that address is not proxied"
                )
        self._recorder.event(
            "link-proven",
            self._name,
            proxied=self.bootstrap.split(","),
            rtt_ms=round(max(plain.values()) * 1000, 3),
            probe_rtt_ms=round(min(slowed.values()) * 1000, 3),
        )

    def _prove_advertised(self) -> None:
        wanted = self._addresses()
        for broker, address in wanted.items():
            try:
                named = probe.advertised(address, within=ANSWERS_WITHIN)
            except probe.Unanswered as error:
                raise SetupError(f"link {self._name}: broker {broker} does not answer through its proxy: {error}") from error
            for other, (host, port) in named.items():
                if wanted.get(other) != (host, port):
                    raise SetupError(
                        f"link {self._name}: broker {other} is advertised at {host}:{port}, which is not proxied; its "
                        f"listener for this link must advertise {self._known(other)}"
                    )

    def _known(self, broker: int) -> str:
        port = self._proxies.get(broker, (None, ""))[0]
        return f"127.0.0.1:{port}" if port else f"a proxy of the link, which has none for broker {broker}"

    def _proven_round_trips(self, *, within: float) -> dict[int, float]:
        measured = self._round_trips(within)
        answered = {broker: seconds for broker, seconds in measured.items() if seconds is not None}
        if missing := measured.keys() - answered.keys():
            raise SetupError(f"link {self._name}: broker {min(missing)} does not answer through its proxy within {within:g} s")
        return answered


def _proxy(broker: int) -> str:
    return f"broker-{broker}"


def _plain(owner: str) -> str:
    """An owner as part of a toxic's name, which the package puts into a URL unquoted."""
    return re.sub("[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", owner)
