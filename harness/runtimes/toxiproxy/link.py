"""A link: the proxied path into one cluster. It has its own toxiproxy-server, and one proxy per
broker of the source.

Promises: when a call returns, the change is in force; else the call raises. Cuts and toxics have
owners (the faults), so that overlapping faults on one link compose: the heal of one fault leaves
the toxics and cuts of the others.

Toxiproxy's control API can hang forever when the toxics of a connection change whose data do not
flow (Toxiproxy issues 412, 427, 428, 558). That includes connections of a disabled proxy, because
those end in the background: removing a toxic from a disabled proxy hung in every second try under a
consumer's load. So every call has a deadline. Toxics are added to live connections (half-open
faults need that), and never changed or removed: the proxy is deleted and created without them. That
resets its connections and is part of a heal. A server that hangs all the same is killed and set up
again with the same proxies, cuts and toxics, recorded as an event `proxy-rebuilt`. One server per
link keeps that from affecting any other link.

A link is measured through its proxies, as its users see it, and for comparison on the source's own
listeners. Every measurement uses new connections within its deadline, touches no topic and no
group, and measures all proxies of the link at once. The best proxy counts: a fault of the link
affects all of them, while a dead broker behind one proxy is not the link's fault.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar

from linkflap.harness.model.errors import DeadlineExceeded, FaultError, SetupError
from linkflap.harness.model.events import LinkProven, ProxyRebuilt
from linkflap.harness.model.protocols import Direction, Recorder
from linkflap.harness.model.security import beside, entered_by
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.probe import PLAIN
from linkflap.harness.runtimes.toxiproxy.server import (
    Toxic,
    ToxiproxyApi,
    ToxiproxyProcess,
    ToxiproxyServer,
    Unreachable,
)
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Access, Address, NoAnswer, access_to, host_and_port
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.peer import BlockingConnection


def _quota(name: str, *, remove: bool) -> Message:
    m = messages.request(*_QUOTAS)
    entity = m.EntityData(entity_type="client-id", entity_name=name)
    operation = m.OpData(key="request_percentage", value=100.0, remove=remove)
    return m.AlterClientQuotasRequest(
        entries=(m.EntryData(entity=(entity,), ops=(operation,)),), validate_only=False
    )


class Marks(Protocol):
    """A request with a visible effect, by a name: linkflap looks for the name on the cluster to see
    whether the request took effect."""

    def request(self, name: str) -> bytes: ...
    def has(self, address: Address, name: str, *, within: float, access: Access) -> bool:
        """Whether the cluster at `address` knows the name. Raises NoAnswer."""

    def remove(self, address: Address, name: str, *, within: float, access: Access) -> None:
        """Raises NoAnswer."""


class QuotaMarks:
    """Client quotas, for clients that do not exist."""

    def request(self, name: str) -> bytes:
        return messages.encode_request(*_QUOTAS, 1, probe.CLIENT, _quota(name, remove=False))

    def has(self, address: Address, name: str, *, within: float, access: Access) -> bool:
        m = messages.request("describe_client_quotas", 1)
        component = m.ComponentData(entity_type="client-id", match_type=0, match=name)
        body = m.DescribeClientQuotasRequest(components=(component,), strict=True)
        with BlockingConnection(address, within=within, access=access) as path:
            return bool(path.ask("describe_client_quotas", 1, body).entries)

    def remove(self, address: Address, name: str, *, within: float, access: Access) -> None:
        with BlockingConnection(address, within=within, access=access) as path:
            path.ask(*_QUOTAS, _quota(name, remove=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMarks:
    """Topics, for clusters on which a run may create nothing else. They are called
    `<cluster>.<name>.internal`, which no mirror copies."""

    cluster: str

    def _topic(self, name: str) -> str:
        return f"{self.cluster}.{name}.internal"

    def request(self, name: str) -> bytes:
        m = messages.request("create_topics", 5)
        topic = m.CreatableTopic(
            name=self._topic(name),
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        body = m.CreateTopicsRequest(topics=(topic,), timeout=_TOPIC_WITHIN)
        return messages.encode_request("create_topics", 5, 1, probe.CLIENT, body)

    def has(self, address: Address, name: str, *, within: float, access: Access) -> bool:
        m = messages.request("metadata", 4)
        asked = (m.MetadataRequestTopic(name=self._topic(name)),)
        body = m.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        with BlockingConnection(address, within=within, access=access) as path:
            (found,) = path.ask("metadata", 4, body).topics
        return bool(found.error_code in (Error.none, Error.leader_not_available))

    def remove(self, address: Address, name: str, *, within: float, access: Access) -> None:
        m = messages.request("delete_topics", 4)
        body = m.DeleteTopicsRequest(topic_names=(self._topic(name),), timeout=_TOPIC_WITHIN)
        with BlockingConnection(address, within=within, access=access) as path:
            path.ask("delete_topics", 4, body)


_TOPIC_WITHIN: Final = timedelta(seconds=10)
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
        marks: Marks | None = None,
    ) -> None:
        self.access = access
        self._marks: Marks = marks or QuotaMarks()
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

    def delivers_requests(self, *, within: float) -> bool | None:
        """Whether a request sent into the path takes effect on the cluster, whatever happens to its
        response. The request makes a mark: a quota for a client that does not exist, or that of
        `marks`. linkflap looks the mark up without the proxies, and removes it."""
        mark = f"{probe.CLIENT}-{uuid.uuid4().hex}"
        with contextlib.ExitStack() as open_paths:
            for address in self.proxies.values():
                # The connection stays open until the effect is seen: closing it could take the
                # request along.
                with contextlib.suppress(NoAnswer):
                    self._path(address, within, open_paths).send(self._marks.request(mark))
            try:
                until(
                    lambda: self._seen(mark, within),
                    within=within,
                    what=f"a request through link {self._name} to take effect",
                )
            except DeadlineExceeded:
                return False
        self._remove(mark)
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

    def close_paths(self) -> None:
        """Closes the connections that are kept."""
        for path in self._held.values():
            path.close()
        self._held.clear()

    def _seen(self, mark: str, within: float) -> bool:
        for address in self._behind:
            with contextlib.suppress(NoAnswer):
                return self._marks.has(
                    address, mark, within=self._patience(within), access=self.access
                )
        return False

    def _patience(self, within: float) -> float:
        """Timeout in seconds of one question on the source's own listeners, including
        authentication if there is any."""
        return 1.0 if self._plain else max(1.0, within)

    @property
    def _plain(self) -> bool:
        """Whether connections begin without a handshake."""
        return self.access.tls is None and self.access.login is None

    def _remove(self, mark: str) -> None:
        for address in self._behind:
            with contextlib.suppress(NoAnswer):
                self._marks.remove(
                    address, mark, within=self._patience(_REMOVED_WITHIN), access=self.access
                )
                return


PROBE_MS: Final = 100
ANSWERS_WITHIN: Final = 60.0
OWNER: Final = "proof"


def _written(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


class ToxiproxyLink(LinkMeter):
    """`harness.model.protocols.Link` on a real toxiproxy-server that is reached on loopback."""

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
        server: ToxiproxyServer | None = None,
        advertised: Mapping[int, Address] | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`proxies`: broker id -> (port to listen on, upstream host:port). `folder` gets the
        server's log. `harness_bootstrap` is the source's own CLIENT listeners, not proxied, on
        which effects are checked. `server` runs the server; by default it is a child process of the
        user's cached executable, built if necessary. The harness reaches every proxy on loopback;
        `advertised`: the proxies' addresses as brokers advertise them, if they differ. `marks`:
        see `LinkMeter.delivers_requests`."""
        super().__init__(
            name,
            {broker: ("127.0.0.1", port) for broker, (port, _) in proxies.items()},
            [host_and_port(address) for address in harness_bootstrap.split(",")],
            advertised=advertised,
            access=access_to(harness_bootstrap),
            marks=marks,
        )
        self._source, self._upstreams = source, dict(proxies)
        self._process = server or ToxiproxyProcess(toxiproxy_server(), port=api_port, folder=folder)
        self._recorder = recorder
        self._entry = harness_bootstrap
        self._cuts: set[str] = set()
        self._toxics: dict[str, Toxic] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._api: ToxiproxyApi | None = None
        self._started = self._closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def source(self) -> str:
        return self._source

    @property
    def bootstrap(self) -> str:
        proxies = ",".join(f"{host}:{port}" for host, port in self.advertised.values())
        return entered_by(
            beside(self._entry, proxies), "client" if self._name.startswith("*") else "mirror"
        )

    # Start and end

    def start(self) -> None:
        """Starts the server and makes its proxies; brokers need not be up. Raises SetupError."""
        with self._lock:
            if self._closed:
                raise SetupError(f"link {self._name} cannot be started: its deployment is closed")
            try:
                self._populate()
            except (Unreachable, SetupError) as error:
                self._forget()
                raise SetupError(
                    f"toxiproxy of link {self._name} did not start: {error}; see "
                    f"{self._process.described_in}"
                ) from error
            self._started = True

    def close(self) -> None:
        """Ends the server for good. Safe to call twice, and before start."""
        with self._lock:
            self._started, self._closed = False, True
            self.close_paths()
            self._forget()

    def _apply(self, change: Callable[[ToxiproxyApi], None]) -> None:
        """Applies `change`, which is already part of the requested state; with a new server if this
        one hangs, died, or is missing."""
        with self._lock:
            if not self._started:
                raise FaultError(f"link {self._name} is not started: start it before it is used")
            try:
                if self._api is None:
                    raise Unreachable("its last rebuild failed")
                change(self._api)
            except (Unreachable, SetupError) as error:
                self._rebuild(str(error))

    def _rebuild(self, reason: str) -> None:
        try:
            self._populate()
        except (Unreachable, SetupError) as error:
            self._forget()
            raise FaultError(
                f"toxiproxy of link {self._name} failed ({reason}) and could not be rebuilt: "
                f"{error}"
            ) from error
        self._recorder.write(ProxyRebuilt(link=self._name, reason=reason))

    # Breaking and healing

    def cut(self, *, owner: str = "") -> None:
        """Disables the proxies: open connections are closed, new ones are refused."""
        with self._lock:
            self._cuts.add(owner)
            self._apply(lambda api: self._enable(api, enabled=False))

    def restore(self, *, owner: str | None = None) -> None:
        """Ends the cut and removes the toxics of `owner`, or everyone's; enabled when no other
        owner cuts it."""
        with self._lock:
            cuts, self._cuts = self._cuts, set() if owner is None else self._cuts - {owner}
            if self._disown(owner):
                self._apply(self._replace)
            elif cuts and not self._cuts:
                self._apply(lambda api: self._enable(api, enabled=True))

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
        with self._lock:
            name = f"{_plain(owner)}.{next(self._numbers)}.{kind}.{direction}"
            toxic = Toxic(
                name=name,
                kind=kind,
                direction=direction,
                attributes=dict(attributes),
                toxicity=toxicity,
                owner=owner,
            )
            self._toxics[name] = toxic
            try:
                # Connections of a cut link may still be closing, and a toxic that is added to those
                # can hang as well.
                self._apply(self._replace if self._cuts else lambda api: self._add(api, toxic))
            except FaultError:
                del self._toxics[name]
                if self._cuts:
                    self._apply(self._replace)
                raise

    def clear(self, *, owner: str | None = None) -> None:
        """Removes the toxics of `owner`, or everyone's, with new proxies (open connections are
        reset)."""
        with self._lock:
            if self._disown(owner):
                self._apply(self._replace)

    # What is in force

    def toxics(self, *, owner: str | None = None) -> Sequence[str]:
        """Names of the toxics in force, of `owner` or of everyone, as the server reports them."""
        names = {
            name for names in self._ask(lambda api, proxy: api.toxics(proxy)) for name in names
        }
        return sorted(
            name for name in names if owner is None or name.partition(".")[0] == _plain(owner)
        )

    def holders(self) -> frozenset[str]:
        """The owners of all requested cuts and toxics."""
        with self._lock:
            return frozenset(self._cuts | {toxic.owner for toxic in self._toxics.values()})

    @property
    def enabled(self) -> bool:
        """Whether every proxy lets connections through, as the server reports."""
        return all(self._ask(lambda api, proxy: api.enabled(proxy)))

    def _ask(self, question: Callable[[ToxiproxyApi, str], Answer]) -> list[Answer]:
        """The answer of every proxy. A server that hangs is rebuilt and asked again, once."""
        answers: list[Answer] = []

        def ask(api: ToxiproxyApi) -> None:
            answers.extend(
                [question(api, self._process.name_of(broker)) for broker in self._upstreams]
            )

        with self._lock:
            self._apply(ask)
            if not answers:
                self._apply(ask)
        return answers

    # Proving

    def prove(self) -> None:
        """Shows that the proxies are in the path, as an event `link-proven`. Raises SetupError that
        names the address which is not proxied. No toxic is left."""
        for broker, address in self.proxies.items():
            self._check_advertised(broker, address)
        plain = self._answered_round_trips()
        self.add_toxic("latency", "responses", {"latency": PROBE_MS}, owner=OWNER)
        try:
            slowed = self._answered_round_trips()
        finally:
            self.clear(owner=OWNER)
        for broker, seconds in slowed.items():
            # Toxiproxy counts from when it reads the bytes, so the measured latency may be slightly
            # shorter.
            if seconds * 1000 < 0.9 * PROBE_MS:
                raise SetupError(
                    f"link {self._name}: {PROBE_MS} ms of latency do not show in the round trip of "
                    f"{seconds * 1000:.1f} ms to {_written(self.proxies[broker])}, so that address "
                    "is not proxied by this link's toxiproxy-server"
                )
        self._recorder.write(
            LinkProven(
                link=self._name,
                proxied=tuple(_written(address) for address in self.proxies.values()),
                rtt_ms=round(max(plain.values()) * 1000, 3),
                probe_rtt_ms=round(min(slowed.values()) * 1000, 3),
            )
        )

    def _check_advertised(self, broker: int, address: Address) -> None:
        for other, found in self._metadata_of(broker, address).items():
            wanted = self.advertised.get(other)
            if found != wanted:
                remedy = (
                    f"advertise {_written(wanted)}"
                    if wanted
                    else f"be given a proxy: the link has none for broker {other}"
                )
                raise SetupError(
                    f"link {self._name}: broker {other} is advertised at {_written(found)}, which "
                    f"is not proxied; its listener for this link must {remedy}"
                )

    def _metadata_of(self, broker: int, address: Address) -> dict[int, Address]:
        """The brokers that a broker names at its proxy. On an overloaded machine, the first
        connections may be closed."""
        refusals: list[NoAnswer] = []

        def answer() -> dict[int, Address] | None:
            try:
                return probe.advertised(address, within=ANSWERS_WITHIN, access=self.access)
            except NoAnswer as error:
                refusals.append(error)
                return None

        try:
            return until(answer, within=ANSWERS_WITHIN, what="an answer")
        except DeadlineExceeded:
            raise SetupError(
                f"link {self._name}: broker {broker} does not answer through its proxy: "
                f"{refusals[-1]}"
            ) from refusals[-1]

    def _answered_round_trips(self) -> dict[int, float]:
        measured = self.round_trips(within=ANSWERS_WITHIN)
        answered = {broker: seconds for broker, seconds in measured.items() if seconds is not None}
        if missing := measured.keys() - answered.keys():
            raise SetupError(
                f"link {self._name}: broker {min(missing)} does not answer at its proxy "
                f"{_written(self.proxies[min(missing)])}"
            )
        return answered

    def _populate(self) -> None:
        """Starts a new server with the requested proxies, cuts and toxics. Raises Unreachable or
        SetupError."""
        self._forget()
        self._process.start()
        self._api = ToxiproxyApi(self._process.port)
        for broker in self._upstreams:
            self._make(self._api, broker)

    def _make(self, api: ToxiproxyApi, broker: int) -> None:
        """Creates a proxy with its requested state; toxics first, so that they apply to every
        connection."""
        port, upstream = self._upstreams[broker]
        api.create(
            self._process.name_of(broker),
            listen=f"{self._process.listens_on}:{port}",
            upstream=upstream,
            enabled=False,
        )
        for toxic in self._toxics.values():
            api.add(self._process.name_of(broker), toxic)
        if not self._cuts:
            api.enable(self._process.name_of(broker), enabled=True)

    def _forget(self) -> None:
        if self._api is not None:
            self._api.close()
            self._api = None
        self._process.kill()

    def _add(self, api: ToxiproxyApi, toxic: Toxic) -> None:
        for broker in self._upstreams:
            api.add(self._process.name_of(broker), toxic)

    def _disown(self, owner: str | None) -> bool:
        """Removes an owner's toxics from the requested state. Returns whether there were any."""
        kept = {
            name: toxic
            for name, toxic in self._toxics.items()
            if owner is not None and toxic.owner != owner
        }
        gone, self._toxics = len(kept) < len(self._toxics), kept
        return gone

    def _replace(self, api: ToxiproxyApi) -> None:
        for broker in self._upstreams:
            api.destroy(self._process.name_of(broker))
            self._make(api, broker)

    def _enable(self, api: ToxiproxyApi, *, enabled: bool) -> None:
        for broker in self._upstreams:
            api.enable(self._process.name_of(broker), enabled=enabled)


def _plain(owner: str) -> str:
    """An owner as part of a toxic's name, which the package puts into a URL unquoted."""
    return re.sub("[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", owner)
