"""certificate-expired and certificate-untrusted against a real TLS listener: what bites, what
heals, and what does not bite."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS, OF_CERTIFICATES
from linkflap.harness.model.protocols import Certificate, World
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.security import Address, Security
from linkflap.harness.runtimes.kraft.secrets import Authority
from linkflap.topologies.notation import parse
from tests.idle_world import IdleLink


@dataclass
class Listener:
    """Presents a certificate to every client. As a cluster, it can be given another."""

    contexts: dict[Certificate, ssl.SSLContext]
    name: str = "A"
    shown: Certificate = "valid"
    deaf: bool = False
    brokers: dict[int, SimpleNamespace] = field(
        default_factory=lambda: {1: SimpleNamespace(state="running")}
    )

    def show_certificate(self, path: str, which: Certificate) -> None:
        assert path == "A->B"
        self.shown = self.shown if self.deaf else which

    def serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                with (
                    contextlib.suppress(OSError),
                    self.contexts[self.shown].wrap_socket(accepted, server_side=True) as shaken,
                ):
                    shaken.recv(1)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[tuple[Listener, World, list[str]]]:
    (tmp_path / "own").mkdir()
    authority = Authority(tmp_path / "own", "authority")
    hosts = ["127.0.0.1", "localhost"]
    stores = {
        "valid": authority.issue("valid.pem", "broker", hosts),
        "expired": authority.issue("expired.pem", "broker", hosts, expired=True),
        "untrusted": Authority(tmp_path, "stranger").issue(
            "untrusted.pem", "broker", hosts, alone=True
        ),
    }
    contexts: dict[Certificate, ssl.SSLContext] = {}
    for which, store in stores.items():
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(store)
        contexts[cast(Certificate, which)] = made
    outages: list[str] = []

    @dataclass
    class Link(IdleLink):
        bootstrap: str = ""

        def cut(self, *, owner: str = "") -> None:
            outages.append(owner)

    shows = Listener(contexts)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=shows.serve, args=(listening,), daemon=True)
        thread.start()
        entry = Security(protocol="SSL", authority=str(authority.file))
        link = Link(bootstrap=Address(f"127.0.0.1:{listening.getsockname()[1]}", entry))
        deployment = SimpleNamespace(
            links={"A->B": link}, clusters={"A": shows}, topology=parse("A{tls}->B")
        )
        yield shows, cast(World, SimpleNamespace(deployment=deployment, stopping=True)), outages
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def fault(name: str) -> FaultSpec:
    return FaultSpec(id="f", fault=name, target="A->B", at=0, duration=1, options={})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("certificate-expired", "certificate has expired"),
        ("certificate-untrusted", "unable to get local issuer certificate"),
    ],
)
def test_new_connections_are_refused_and_then_taken_again(
    name: str, words: str, listener: tuple[Listener, World, list[str]]
) -> None:
    shows, world, outages = listener
    made = FAULTS[name](fault(name), world)
    made.inject()
    assert outages == ["f"]  # connected clients have to reconnect
    bite = made.bite()
    assert (bite.bit, words in str(bite.measured)) == (True, True)
    healed = made.heal()
    assert healed[0] == "the valid certificate is shown on A->B again"
    assert shows.shown == "valid"
    assert not made.bite().bit


@pytest.mark.parametrize("name", sorted(OF_CERTIFICATES))
def test_a_broker_that_keeps_its_certificate_is_no_bite(
    name: str, listener: tuple[Listener, World, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkflap.chaos.faults.certificates.BITES_WITHIN", 0.05)
    shows, world, _ = listener
    shows.deaf = True
    made = FAULTS[name](fault(name), world)
    made.inject()
    bite = made.bite()
    assert (bite.bit, bite.measured) == (False, "taken")
    made.heal()


def test_they_are_refused_where_nobody_shows_a_certificate() -> None:
    half = parse("A{tls}->B{scram}")
    for name in OF_CERTIFICATES:
        assert [FAULTS[name].applies_to(target, half) for target in ("A->B", "*->A")] == [
            None,
            None,
        ]
        assert (
            FAULTS[name].applies_to("*->B", half)
            == "*->B leads into B, which shows no certificate; secure it: B{tls}"
        )
        assert FAULTS[name].applies_to("A->C", half)
