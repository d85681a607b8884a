"""A link on a real toxiproxy-server, with plain TCP peers: what a link survives, and how faults
share it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkflap.harness.machine import ledger
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.rest_leftovers import RestObject
from linkflap.harness.model.errors import FaultError, InputError, SetupError
from linkflap.harness.model.events import Event, Kind, ProxyRebuilt, of_kind
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.toxiproxy import shared
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.server import (
    Toxic,
    ToxiproxyApi,
    ToxiproxyProcess,
    Unreachable,
)
from tests.waiting import eventually

CHUNK = b"x" * 65_536


class Events:
    """A recorder that keeps events in memory."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def write(self, event: Kind, /) -> Kind:
        self.seen.append(event)
        return event


class Peer:
    """A TCP server: it floods every client (and so blocks on one that does not read), or echoes."""

    def __init__(self, *, floods: bool) -> None:
        self._floods = floods
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._floods:
                while True:
                    connection.sendall(CHUNK)
            while content := connection.recv(1 << 16):
                connection.sendall(content)

    def close(self) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    lease = Lease()
    yield lease.ports(3)
    lease.release()


@pytest.fixture
def flooding() -> Iterator[Peer]:
    with contextlib.closing(Peer(floods=True)) as peer:
        yield peer


@pytest.fixture
def echoing() -> Iterator[Peer]:
    with contextlib.closing(Peer(floods=False)) as peer:
        yield peer


@contextlib.contextmanager
def started(
    peers: list[Peer], ports: list[int], folder: Path
) -> Iterator[tuple[ToxiproxyLink, Events]]:
    events = Events()
    proxies = {
        number: (port, peer.address)
        for number, (peer, port) in enumerate(zip(peers, ports[1:], strict=False), start=1)
    }
    link = ToxiproxyLink("A->B", "A", proxies, ports[0], folder, events, peers[0].address)
    link.start()
    try:
        yield link, events
    finally:
        link.close()


@contextlib.contextmanager
def stalled(port: int) -> Iterator[socket.socket]:
    """A connection that is flooded and never read, once all buffers are full."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.recv(1)
        queued, unchanged = -1, 0

        def full() -> bool:
            nonlocal queued, unchanged
            here = len(connection.recv(1 << 24, socket.MSG_PEEK))
            unchanged = unchanged + 1 if here == queued else 0
            queued = here
            return unchanged >= 25

        eventually("the flood to fill every buffer", full)
        yield connection


def echoes(port: int) -> bool:
    """Whether a new connection through the proxy carries bytes in both directions."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=1) as connection,
    ):
        connection.sendall(b"?")
        return connection.recv(1) == b"?"
    return False


def latency(name: str) -> Toxic:
    return Toxic(
        name=name,
        kind="latency",
        direction="responses",
        attributes={"latency": 50},
        toxicity=1.0,
        owner="f",
    )


def test_the_control_api_hangs_for_good_when_a_toxic_is_added_to_a_stalled_connection(
    flooding: Peer, ports: list[int], tmp_path: Path
) -> None:
    """The reason for every deadline here: without it, the tests of the rebuild below would prove
    nothing."""
    process = ToxiproxyProcess(toxiproxy_server(), port=ports[0], folder=tmp_path)
    process.start()
    api = ToxiproxyApi(ports[0], deadline=1.0)
    try:
        api.create(
            "broker-1", listen=f"127.0.0.1:{ports[1]}", upstream=flooding.address, enabled=True
        )
        with stalled(ports[1]), pytest.raises(Unreachable):
            api.add("broker-1", latency("one"))
        with pytest.raises(Unreachable):
            api.enabled("broker-1")
    finally:
        api.close()
        process.kill()


def test_a_toxic_on_a_stalled_connection_is_in_force_all_the_same(
    flooding: Peer, echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([flooding, echoing], ports, tmp_path) as (link, events):
        link.add_toxic("latency", "responses", {"latency": 5}, owner="earlier")
        with stalled(ports[1]):
            link.add_toxic("timeout", "responses", {"timeout": 0}, owner="half-open")
        assert [
            (event.link, "did not return" in event.reason)
            for event in of_kind(events.seen, ProxyRebuilt)
        ] == [("A->B", True)]
        assert link.enabled
        assert len(link.toxics(owner="half-open")) == len(link.toxics(owner="earlier")) == 1
        assert not echoes(ports[2])
        link.clear(owner="half-open")
        assert echoes(ports[2])
        assert len(link.toxics()) == 1


def test_toxics_leave_a_stalled_connection_without_a_rebuild(
    flooding: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([flooding], ports, tmp_path) as (link, events):
        link.add_toxic("latency", "responses", {"latency": 5}, owner="f")
        with stalled(ports[1]):
            link.clear(owner="f")
        with stalled(ports[1]):
            link.cut(owner="f")
            link.restore(owner="f")
        assert not link.toxics()
        assert link.enabled
        assert not of_kind(events.seen, ProxyRebuilt)


def test_a_server_that_was_killed_is_rebuilt_with_what_was_in_force(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([echoing], ports, tmp_path) as (link, events):
        link.add_toxic("latency", "responses", {"latency": 5}, owner="f")
        link.cut(owner="g")
        child = link._process.child
        assert child is not None
        child.kill()
        assert not link.enabled
        assert len(link.toxics(owner="f")) == 1
        assert len(of_kind(events.seen, ProxyRebuilt)) == 1
        link.restore()
        assert echoes(ports[1])
        assert not link.toxics()


def test_a_cut_lasts_until_its_last_owner_restores(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([echoing], ports, tmp_path) as (link, _):
        link.cut(owner="one")
        link.cut(owner="two")
        link.restore(owner="one")
        link.clear(owner="one")
        assert not echoes(ports[1])
        assert link.holders() == {"two"}
        link.restore(owner="two")
        assert echoes(ports[1])


def test_a_faults_heal_leaves_another_faults_toxics_alone(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([echoing], ports, tmp_path) as (link, _):
        link.add_toxic("latency", "responses", {"latency": 5}, owner="A->B/slow")
        link.add_toxic("latency", "responses", {"latency": 6}, owner="A->B")
        link.cut(owner="flap")
        link.restore(owner="flap")
        link.clear(owner="A->B")
        assert len(link.toxics(owner="A->B/slow")) == len(link.toxics()) == 1
        assert not link.toxics(owner="A->B")
        assert echoes(ports[1])


def test_a_toxic_that_does_not_exist_is_refused_and_not_kept(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    with started([echoing], ports, tmp_path) as (link, _):
        with pytest.raises(FaultError, match="sorcery"):
            link.add_toxic("sorcery", "responses", {}, owner="f")
        assert not link.holders()
        link.cut(owner="g")
        with pytest.raises(FaultError, match="sorcery"):
            link.add_toxic("sorcery", "responses", {}, owner="f")
        assert link.holders() == {"g"}
        link.add_toxic("latency", "responses", {"latency": 5}, owner="f")
        link.restore(owner="g")
        assert echoes(ports[1])
        assert len(link.toxics()) == 1


def test_a_taken_port_is_named(echoing: Peer, ports: list[int], tmp_path: Path) -> None:
    taken = int(echoing.address.rpartition(":")[2])
    link = ToxiproxyLink(
        "A->B", "A", {1: (taken, echoing.address)}, ports[0], tmp_path, Events(), echoing.address
    )
    with pytest.raises(SetupError, match=str(taken)):
        link.start()
    link.close()
    with pytest.raises(FaultError, match="not started"):
        link.cut()


def noted(port: int) -> list[RestObject]:
    """The proxies of this process on the server whose API has this port."""
    return [made for made in ledger.own().made if made.server.url.endswith(f":{port}")]


def test_on_a_server_of_others_a_link_has_proxies_of_its_own_alone(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    api_port, their_port, port = ports
    server = ToxiproxyProcess(toxiproxy_server(), port=api_port, folder=tmp_path)
    server.start()
    theirs, there = ToxiproxyApi(api_port), shared.parse(f"http://localhost:{api_port}")
    try:
        theirs.create(
            "theirs", listen=f"127.0.0.1:{their_port}", upstream=echoing.address, enabled=True
        )
        theirs.add("theirs", latency("theirs"))
        shared.check(there)
        own = shared.SharedToxiproxy(there, "A-B", [1])
        proxies = {1: (port, echoing.address)}
        link = ToxiproxyLink("A->B", "A", proxies, 0, tmp_path, Events(), "x:1", server=own)
        with contextlib.closing(link):
            link.start()
            assert echoes(port)
            link.add_toxic("latency", "responses", {"latency": 1}, owner="slow")
            link.cut(owner="flap")
            assert not echoes(port)
            link.restore(owner="flap")
            link.clear(owner="slow")
            assert echoes(port)
            assert set(there.ask("GET", "/proxies").json()) == {"theirs", own.name_of(1)}
        assert set(there.ask("GET", "/proxies").json()) == {"theirs"}
        assert theirs.toxics("theirs") == ["theirs"]
        assert echoes(their_port)
        assert noted(api_port) == []
        nowhere = {1: (port, "127.0.0.1:9")}
        unreached = ToxiproxyLink("A->B", "A", nowhere, 0, tmp_path, Events(), "x:1", server=own)
        with contextlib.closing(unreached):
            unreached.start()
            with pytest.raises(InputError, match="and no broker answers there"):
                own.refuse_unreached(unreached)
        taken = ToxiproxyLink(
            "A->B", "A", {1: (their_port, "x:1")}, 0, tmp_path, Events(), "x:1", server=own
        )
        with pytest.raises(SetupError, match=f"listen tcp 127.0.0.1:{their_port}: bind"):
            taken.start()
        assert set(there.ask("GET", "/proxies").json()) == {"theirs"}
    finally:
        theirs.close()
        server.kill()


def test_a_server_of_others_that_dies_is_not_started_again(
    echoing: Peer, ports: list[int], tmp_path: Path
) -> None:
    server = ToxiproxyProcess(toxiproxy_server(), port=ports[0], folder=tmp_path)
    server.start()
    own = shared.SharedToxiproxy(shared.parse(f"http://127.0.0.1:{ports[0]}"), "A-B", [1])
    proxies = {1: (ports[1], echoing.address)}
    link = ToxiproxyLink("A->B", "A", proxies, 0, tmp_path, Events(), "x:1", server=own)
    link.start()
    server.kill()
    with pytest.raises(FaultError, match="could not be rebuilt"):
        link.cut(owner="flap")
    link.close()
    assert noted(ports[0]) == []  # its proxies are gone with it
