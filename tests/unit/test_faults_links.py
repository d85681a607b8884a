"""Faults of links, and the options and targets of all faults."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.chaos.faults import FAULTS, OF_CERTIFICATES
from linkflap.chaos.faults.base import FaultBase, direction, number, settings
from linkflap.chaos.faults.links import LinkHalfOpen, LinkLatency
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Certificate, FaultWorld
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.security import Address, Security
from linkflap.harness.runtimes.kraft.secrets import Authority
from linkflap.topologies.notation import parse
from tests.idle_world import IdleLink

# The names and targets of faults, parsed in one place.


@pytest.mark.parametrize(
    ("text", "source", "destination", "broker", "cluster", "entered", "back"),
    [
        ("A->B", "A", "B", 0, "", "A", "B->A"),
        ("us-east->eu", "us-east", "eu", 0, "", "us-east", "eu->us-east"),
        ("*->A", "", "A", 0, "", "A", ""),
        ("A/2", "A", "", 2, "A", "A", ""),
        ("A", "A", "", 0, "A", "A", ""),
        ("A/x", "A", "", 0, "A", "A", ""),
        ("A->", "", "", 0, "", "", ""),
        ("->B", "", "", 0, "", "", ""),
        ("A->B->C", "", "", 0, "", "", ""),
        ("", "", "", 0, "", "", ""),
    ],
)
def test_a_target_is_parsed(
    text: str, source: str, destination: str, broker: int, cluster: str, entered: str, back: str
) -> None:
    on = Target.parse(text)
    assert (on.source, on.destination, on.broker, on.cluster) == (
        source,
        destination,
        broker,
        cluster,
    )
    assert (on.entered, on.back, on.is_client_path) == (entered, back, text == "*->A")
    assert (on.link.name if on.link else "") == (text if back else "")


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("failover-planned", {"fails_over"}),
        ("failover-forced", {"fails_over", "forced"}),
        ("mirror-reverse", {"of_mirror", "reverses"}),
        ("mirror-kill", {"of_mirror"}),
        ("link-cut", {"of_link"}),
        ("broker-kill", set()),
    ],
)
def test_a_faults_name_says_what_it_breaks(text: str, is_: set[str]) -> None:
    name = FaultName(text)
    assert {
        each
        for each in ("fails_over", "forced", "of_mirror", "reverses", "of_link")
        if getattr(name, each)
    } == is_
    assert str(name) == text


# Options of faults: known names, the right types, and otherwise an error of one sentence.


OPTIONS = {
    "latency": OptionAbout(default=100, about="ms"),
    "share": OptionAbout(default=0.5, about="of what"),
    "stalled": OptionAbout.one_of("responses", "requests", about="which"),
}


def spec(**options: Option) -> FaultSpec:
    return FaultSpec(
        id="slow", fault="link-latency", target="A->B", at=0, duration=1, options=options
    )


def test_defaults_fill_what_is_not_given() -> None:
    values = settings(spec(latency=5), OPTIONS)
    assert (number(values, "latency"), number(values, "share"), direction(values, "stalled")) == (
        5,
        0.5,
        "responses",
    )


def test_the_other_direction_can_be_chosen() -> None:
    assert direction(settings(spec(stalled="requests"), OPTIONS), "stalled") == "requests"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"latncy": 5},
            (
                "fault 'slow' (link-latency) has no option 'latncy' (did you mean 'latency'?); it "
                "has latency, share, stalled"
            ),
        ),
        (
            {"latency": -1},
            "option latency of fault 'slow' (link-latency) is -1; give a whole number of 0 or more",
        ),
        (
            {"latency": True},
            (
                "option latency of fault 'slow' (link-latency) is True; give a whole number of 0 or"
                " more"
            ),
        ),
        (
            {"latency": "long"},
            (
                "option latency of fault 'slow' (link-latency) is 'long'; give a whole number of 0 "
                "or more"
            ),
        ),
        (
            {"stalled": "both"},
            (
                "option stalled of fault 'slow' (link-latency) is 'both'; give one of responses, "
                "requests"
            ),
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Option], said: str) -> None:
    with pytest.raises(InputError) as error:
        settings(spec(**options), OPTIONS)
    assert str(error.value) == said


# How links' bites are measured where everything is slow: entering a secured cluster takes
# longer than a link is up.


class SlowLink:
    """During a fault no login succeeds (it takes too long); the first bytes are answered as
    `answers` says."""

    name, source, enabled = "A->B", "A", True

    def __init__(self, answers: Iterable[float | None], *, delivers: bool = True) -> None:
        """`delivers`: whether requests still take effect during the fault."""
        self._answers, self._delivers, self._broken = iter(answers), delivers, False

    def round_trip(self, *, within: float) -> float | None:
        return None if self._broken else 0.001

    def first_answer(self, *, within: float) -> float | None:
        seconds = next(self._answers)
        return seconds if seconds is not None and seconds <= within else None

    def delivers_requests(self, *, within: float) -> bool:
        return self._delivers or not self._broken

    def add_toxic(self, *_: object, **__: object) -> None:
        self._broken = True

    def cut(self, *, owner: str) -> None:
        self._broken = True

    def restore(self, *, owner: str) -> None:
        pass

    def toxics(self, *, owner: str | None = None) -> list[str]:
        return []

    def holders(self) -> frozenset[str]:
        return frozenset(["another fault"])


class LateLink(SlowLink):
    """During a fault a round trip takes what `answers` says."""

    def round_trip(self, *, within: float) -> float | None:
        return self.first_answer(within=within) if self._broken else 0.001


def fault(name: str, link: SlowLink, **options: Option) -> FaultBase:
    broker = SimpleNamespace(brokers={1: SimpleNamespace(state="running")})
    deployment = SimpleNamespace(links={"A->B": link}, clusters={"A": broker}, cluster_services={})
    world = cast(FaultWorld, SimpleNamespace(deployment=deployment, stopping=False))
    return FAULTS[name](
        FaultSpec(id="f", fault=name, target="A->B", at=0, duration=2, options=options), world
    )


def test_a_flap_bites_even_if_no_login_succeeds_in_between() -> None:
    flap = fault("link-flap", SlowLink(itertools.cycle([0.01, None])), down=0.01, up=0.01)
    flap.inject()
    assert flap.bite().bit
    flap.heal()


@pytest.mark.parametrize(
    ("latency", "trips", "bit"),
    [
        (7000, (7.01, None), True),  # the fault has ended before a second round trip has
        (7000, (0.01,), False),
        (100, (0.11, 0.11, None), False),
        (100, (0.11, 0.11, 0.11), True),
    ],
)
def test_a_long_latency_is_measured_by_one_round_trip(
    latency: int, trips: tuple[float | None, ...], bit: bool
) -> None:
    late = cast(LinkLatency, fault("link-latency", LateLink(trips), latency=latency))
    late.inject()
    assert late._measure()[0] is bit


@pytest.mark.parametrize("stalled", ["responses", "requests"])
def test_a_link_that_is_as_slow_as_before_is_not_silent(stalled: str) -> None:
    """0.5 s before, 0.9 s with the fault: the machine is busy."""
    slow = SlowLink(itertools.chain([0.5], itertools.repeat(0.9)), delivers=stalled == "responses")
    half_open = cast(LinkHalfOpen, fault("link-half-open", slow, stalled=stalled))
    half_open.inject()
    bit, measured = half_open._measure()
    seen = cast(dict[str, object], measured)
    assert not bit
    assert (seen["answered"], seen["took_effect_before"]) == (True, True)


@pytest.mark.parametrize("stalled", ["responses", "requests"])
def test_a_link_without_any_answer_for_longer_than_that_is_silent(
    stalled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = SlowLink(
        itertools.chain([0.01], itertools.repeat(None)), delivers=stalled == "responses"
    )
    half_open = cast(LinkHalfOpen, fault("link-half-open", silence, stalled=stalled))
    half_open.inject()
    clock = itertools.count(step=10)
    monkeypatch.setattr(
        "linkflap.chaos.faults.links.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    assert half_open._measure()[0]


# certificate-expired and certificate-untrusted against a real TLS listener: what bites, what
# heals, and what does not bite.


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
def listener(tmp_path: Path) -> Iterator[tuple[Listener, FaultWorld, list[str]]]:
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
            cluster_services={},
            links={"A->B": link},
            clusters={"A": shows},
            topology=parse("A{tls}->B"),
        )
        yield (
            shows,
            cast(FaultWorld, SimpleNamespace(deployment=deployment, stopping=True)),
            outages,
        )
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def certificate_fault(name: str) -> FaultSpec:
    return FaultSpec(id="f", fault=name, target="A->B", at=0, duration=1, options={})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("certificate-expired", "certificate has expired"),
        ("certificate-untrusted", "unable to get local issuer certificate"),
    ],
)
def test_new_connections_are_refused_and_then_taken_again(
    name: str, words: str, listener: tuple[Listener, FaultWorld, list[str]]
) -> None:
    shows, world, outages = listener
    made = FAULTS[name](certificate_fault(name), world)
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
    name: str, listener: tuple[Listener, FaultWorld, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkflap.chaos.faults.links.BITES_WITHIN", 0.05)
    shows, world, _ = listener
    shows.deaf = True
    made = FAULTS[name](certificate_fault(name), world)
    made.inject()
    bite = made.bite()
    assert (bite.bit, bite.measured) == (False, "taken")
    made.heal()


def test_certificate_faults_are_refused_for_a_cluster_without_tls() -> None:
    half = parse("A{tls}->B{scram}")
    for name in OF_CERTIFICATES:
        assert [FAULTS[name].applies_to(target, half) for target in ("A->B", "*->A")] == [
            None,
            None,
        ]
        assert (
            FAULTS[name].applies_to("*->B", half)
            == "*->B leads into B, which has no TLS certificate; secure it: B{tls}"
        )
        assert FAULTS[name].applies_to("A->C", half)
