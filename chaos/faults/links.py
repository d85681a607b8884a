"""Faults of links: cut, reset, flapping, half open, slow; and a wrong certificate on a
link's listeners.

Each cut and toxic carries the id of its fault, so that the heal removes only these. If a path did
not answer before the fault, silence during the fault proves nothing: the fault has not bitten.

Brokers apply a new key store while they run (KIP-226), for new connections only. So open
connections are reset, and their clients must connect again.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from linkflap.chaos.faults.base import (
    BITES_WITHIN,
    Answering,
    FaultBase,
    direction,
    milliseconds,
    number,
)
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    FaultError,
    InputError,
)
from linkflap.harness.model.faults import Target
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, Certificate, Direction, FaultWorld, is_running
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.security import beside, secured
from linkflap.harness.model.threads import Background
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until
from linkflap.harness.runtimes import probe

ANSWERS_WITHIN: Final = 10.0
LOOKS: Final = 10
HEALS_WITHIN: Final = 30.0
NORMAL_WITHIN: Final = ANSWERS_WITHIN
"""Seconds for connecting and one round trip: on a busy machine, TLS and a login alone may take
seconds."""
ENDED_WITHIN: Final = 2.0


def link_reason(target: str, topology: Topology) -> str | None:
    """None if `target` is a link of the topology, the reverse of one, or the proxied client path
    `*->X` of a cluster; otherwise the reason."""
    on = Target.parse(target)
    if on.is_client_path and on.destination in {cluster.name for cluster in topology.clusters}:
        return None
    if on.link and {on.link, on.link.reverse} & set(topology.links):
        return None
    if target in topology.service_links:
        return "it leads to a service, on which linkflap cannot measure this fault"
    known = [link.name for link in topology.links] + [
        f"*->{cluster.name}" for cluster in topology.clusters
    ]
    known += topology.service_links
    return f"{target!r} is not a link; this topology has {', '.join(known)}"


def link_or_service_reason(target: str, topology: Topology) -> str | None:
    """As `link_reason`; a link to a service (`A->postgres`) is legal too."""
    return None if target in topology.service_links else link_reason(target, topology)


class LinkPath(Answering):
    """One link as the target of one fault."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        self._service = world.deployment.cluster_services.get(spec.target)
        links = world.deployment.links
        if self._service is None and spec.target not in links:
            known = ", ".join(sorted(links))
            raise InputError(
                f"fault {spec.id!r} targets {spec.target!r}, but the links are {known}"
            )
        self.link = links[spec.target] if self._service is None else self._service.link
        super().__init__(world)
        self._owner = spec.id

    def measure_before(self, *, quick: float = math.inf) -> None:
        """Measures the round trip before the fault: again, ten times at most, until one took no
        longer than `quick` seconds.

        If another fault is just cutting the path, the first measurement gets some time.
        """
        with contextlib.suppress(DeadlineExceeded):
            self.before = until(
                lambda: self.link.round_trip(within=ANSWERS_WITHIN) if self._source_runs else None,
                within=ANSWERS_WITHIN,
                what=f"{self.link.name} to answer before the fault",
            )
        for _ in range(LOOKS - 1):
            if self.before is None or self.before <= quick:
                break
            again = self.link.round_trip(within=ANSWERS_WITHIN)
            self.before = min(self.before, math.inf if again is None else again)

    @property
    def _source_runs(self) -> bool:
        """Whether something runs behind the proxies: a broker, or the service."""
        if self._service is not None:
            return self._service.alive
        return is_running(self._world.deployment.clusters[self.link.source])

    def cut(self) -> None:
        self.link.cut(owner=self._owner)

    def restore(self) -> None:
        self.link.restore(owner=self._owner)

    def add(self, kind: str, direction: Direction, **attributes: int) -> None:
        self.link.add_toxic(kind, direction, attributes, owner=self._owner)

    def answers(self, *, within: float) -> bool | None:
        """Whether bytes come back on a new connection (True), or it is refused or ended at once
        (False).

        None if neither happened: the machine is busy, or the link stalls. It does not wait for the
        login (TLS, SASL): that takes more round trips, and perhaps longer than the link is up.
        """
        began = time.monotonic()
        if self.link.first_answer(within=within) is not None:
            return True
        return False if time.monotonic() - began < within / 2 else None

    def ends_at_once(self, *, within: float) -> tuple[bool, object]:
        """Whether a round trip ended without an answer long before its `within` seconds. A stalled
        link or a busy machine gives no answer either, but only when the time is up."""
        began = time.monotonic()
        seconds = self.link.round_trip(within=within)
        took = time.monotonic() - began
        seen = {
            "before_ms": milliseconds(self.before),
            "during_ms": milliseconds(seconds),
            "ended_after_ms": milliseconds(took),
        }
        return seconds is None and took < within / 2, seen

    def heal(self) -> list[str]:
        """Removes the fault's own cut and toxics from the link, and checks that they are gone.
        Idempotent.

        Raises FaultError when the link is not normal in time. If another fault holds the link, that
        fault's heal checks the round trip; while the source is down, it is not checked.
        """
        self.link.restore(owner=self._owner)
        try:
            return until(
                self._healed,
                within=HEALS_WITHIN,
                what=f"link {self.link.name} to be normal after fault {self._owner}",
                state=lambda: f"toxics {list(self.link.toxics())}, enabled {self.link.enabled}",
            )
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; see the log of its toxiproxy-server") from error

    def _healed(self) -> list[str] | None:
        if self.link.toxics(owner=self._owner):
            return None
        checked = [f"no toxic of {self._owner} left on {self.link.name}"]
        if others := sorted(self.link.holders()):
            return [*checked, f"{self.link.name} is still held by {', '.join(others)}"]
        if self.link.toxics() or not self.link.enabled:
            return None
        checked.append(f"every proxy of {self.link.name} enabled and without toxics")
        if not self._source_runs:
            what = f"broker of {self.link.source}" if self._service is None else "service"
            return [*checked, f"no {what} runs: round trip not measured"]
        seconds = self.link.round_trip(within=NORMAL_WITHIN)
        if seconds is None or seconds > self._normal:
            return None
        return [*checked, f"round trip {seconds * 1000:.1f} ms"]

    @property
    def _normal(self) -> float:
        """The most seconds that a round trip may take after the heal: the seconds before the fault,
        with a margin for a busy machine."""
        return max(0.25, 5 * (self.before or 0.0))


class LinkFault(FaultBase, ABC):
    """A fault of one link. `_values` are its options."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._path = LinkPath(spec, world)

    reason = staticmethod(link_or_service_reason)

    @abstractmethod
    def inject(self) -> None: ...
    @abstractmethod
    def bite(self) -> Bite: ...
    def heal(self) -> Sequence[str]:
        return self._path.heal()


class EndedLink(LinkFault):
    """A fault that ends connections at once; they do not stall."""

    @abstractmethod
    def end(self) -> None:
        """Breaks the link."""

    def inject(self) -> None:
        self._path.measure_before()
        self.end()

    def bite(self) -> Bite:
        return self._path.bite(
            "round trip over the link", "ended at once without an answer", self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        return self._path.ends_at_once(within=ENDED_WITHIN)


class LinkCut(EndedLink):
    """Cuts a link: open connections end, new ones are refused.

    Breaks    every connection over the link, like a firewall that rejects connections.
    Bite      a round trip that was answered before is not answered in the window.
    Heal      the proxies let connections through, carry no toxic of ours, and a round trip is as
              quick as before.
    """

    def end(self) -> None:
        self._path.cut()


class LinkReset(EndedLink):
    """Resets every connection over a link.

    Breaks    clients' sessions, without any silence: the worst case for a client that retries at
              once.
    Bite      a round trip that was answered before ends at once without an answer.
    Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
    """

    def end(self) -> None:
        self._path.add("reset_peer", "responses", timeout=0)


STOPS_WITHIN = 60.0


class LinkFlap(LinkFault):
    """Cuts and restores a link repeatedly; options down and up (seconds), jitter (0 to 1, share of
    each), seed.

    Breaks    repeated reconnecting: back-off, metadata refresh, and fetch sessions that never last.
    Bite      new connections go from answered to refused or ended twice in the window with an
              answer between (once, if the window is too short for two). An answer is the answer to
              the first bytes that a client sends: those of TLS, if there is TLS.
    Heal      the flapping has stopped, the proxies are enabled and without toxics of ours, a round
              trip is as quick as before.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "down": OptionAbout(default=0.5, low=0.01, about="seconds of each interruption"),
        "up": OptionAbout(default=0.5, low=0.01, about="seconds between two interruptions"),
        "jitter": OptionAbout(default=0.0, high=0.99, about="share by which each of them varies"),
        "seed": OptionAbout(default=0, about="of the random jitter"),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._down, self._up, self._jitter = (
            number(self._values, name) for name in ("down", "up", "jitter")
        )
        # The run's seed is in the options of a seeded schedule; the id keeps two flaps of one
        # schedule apart.
        self._rng = random.Random(f"{self._values['seed']}/{spec.id}")
        self._times = 2 if spec.duration >= 2 * self._down + self._up else 1
        self._flapping = Background(f"flap {spec.id}", self._flap)

    def inject(self) -> None:
        self._path.measure_before()
        self._flapping.start()

    def _flap(self) -> None:
        healing = self._flapping.stopping
        while not healing.is_set():
            self._path.cut()
            healing.wait(self._rolled(self._down))
            self._path.restore()
            healing.wait(self._rolled(self._up))

    def _rolled(self, seconds: float) -> float:
        return seconds * (1 + self._jitter * self._rng.uniform(-1, 1))

    def bite(self) -> Bite:
        watched = _Interruptions()

        def measure() -> tuple[bool, object]:
            watched.see(answered=self._path.answers(within=ENDED_WITHIN))
            return watched.count >= self._times, {"interruptions": watched.count}

        expected = {"interruptions": self._times}
        within = 5 * (self._times + 1) * (self._down + self._up) + 5.0
        return self._path.bite(
            "answered and ended connections", expected, measure, within=patient(within)
        )

    def heal(self) -> Sequence[str]:
        try:
            self._flapping.stop(within=STOPS_WITHIN)
        except DeadlineExceeded as stuck:
            raise FaultError(f"{stuck}: its toxiproxy-server hangs; end the run") from None
        except EnvironmentFailure as ended:
            self._path.heal()
            raise FaultError(str(ended)) from ended
        return ["flapping stopped", *self._path.heal()]


class _Interruptions:
    """Counts how often the path changed from answering to not answering; it answers at first."""

    def __init__(self) -> None:
        self.count, self._answered = 0, True

    def see(self, *, answered: bool | None) -> None:
        """`answered` is None if the connection neither answered nor ended."""
        if self._answered and answered is False:
            self.count += 1
        self._answered = self._answered if answered is None else answered


SILENT_FOR = 0.7
EFFECT_WITHIN = 5.0
NO_EFFECT_WITHIN = 1.0
TIMES_SLOWER = 5
"""A connection counts as silent after this many times the round trip before the fault. The factor
allows for a busy machine.
"""


class LinkHalfOpen(LinkFault):
    """Silences one direction of a link; option stalled (responses or requests).

    Breaks    the client's view. stalled=responses: requests arrive and take effect, but no answer
              returns (the classic origin of duplicates and of commits of unknown outcome).
              stalled=requests: nothing arrives, and no error shows it.
    Bite      a new connection stays open and silent for longer than its first answer took before
              (an ended one would be a cut; of TLS that answer is the server's greeting), and a
              request sent into the path takes effect (stalled=responses) or does not
              (stalled=requests) as seen from behind the proxy. What a request did in a service
              cannot be seen: there only the silence is measured.
    Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
              Toxiproxy drops the bytes that were sent meanwhile, so the heal resets connections and
              never resumes them.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "stalled": OptionAbout.one_of(
            "responses", "requests", about="the direction in which nothing passes"
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._stalled = direction(self._values, "stalled")
        self._delivered_before: bool | None = False
        self._answered_in = self._delivered_in = 0.0
        """Before the fault: seconds until the first answer on a new connection, and until a request
        takes effect."""

    def inject(self) -> None:
        self._path.measure_before()
        self._answered_in = self._path.link.first_answer(within=ANSWERS_WITHIN) or 0.0
        # Not the first request: it opens the connection, which is kept if it needs a login.
        self._delivered_before = self._path.link.delivers_requests(within=EFFECT_WITHIN)
        if self._delivered_before:
            began = time.monotonic()
            self._delivered_before = self._path.link.delivers_requests(within=EFFECT_WITHIN)
            self._delivered_in = time.monotonic() - began
        self._path.add("timeout", self._stalled, timeout=0)

    @property
    def _arrives(self) -> bool:
        """Whether a request should still take effect with this fault."""
        return self._stalled == "responses"

    def bite(self) -> Bite:
        if self._delivered_before is None:
            return self._path.bite("silence", {"answered": False}, self._measure)
        expected = {"answered": False, "requests_take_effect": self._arrives}
        return self._path.bite(
            "silence, and the effect of a request seen from behind", expected, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        silence = max(SILENT_FOR, TIMES_SLOWER * self._answered_in)
        start = time.monotonic()
        seconds = self._path.link.first_answer(within=silence)
        silent = seconds is None and time.monotonic() - start >= 0.9 * silence
        if self._delivered_before is None:
            return silent, {"answered": seconds is not None, "silent": silent}
        no_effect = max(NO_EFFECT_WITHIN, TIMES_SLOWER * self._delivered_in)
        arrives = self._path.link.delivers_requests(
            within=EFFECT_WITHIN if self._arrives else no_effect
        )
        seen = {
            "took_effect_before": self._delivered_before,
            "answered": seconds is not None,
            "silent": silent,
            "requests_take_effect": arrives,
        }
        return silent and self._delivered_before and arrives is self._arrives, seen


SAMPLES = 3
ONE_IS_ENOUGH = 1.0
"""Seconds of latency: no busy machine hides it, and three round trips would outlast the fault."""
SLOW_ANSWERS_WITHIN = 15.0
"""Seconds for one answer: a busy machine may answer late without a fault. Only a missing answer
counts as silence."""


class LinkLatency(LinkFault):
    """Delays what passes a link; options latency and jitter (ms), delayed (responses or requests).

    Breaks    the speed of acknowledgements and fetches; the order within a connection stays.
    Bite      the quickest of three round trips takes at least latency - jitter longer than before;
              of a latency above a second the first round trip alone.
    Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
              Removing the toxic resets the connections (the proxy is created again for it), which
              is part of the heal.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "latency": OptionAbout(default=100, about="ms by which each chunk is delayed"),
        "jitter": OptionAbout(default=0, about="ms by which the delay varies"),
        "delayed": OptionAbout.one_of(
            "responses", "requests", about="the direction that is delayed"
        ),
    }

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._latency, self._jitter = (
            number(self._values, "latency"),
            number(self._values, "jitter"),
        )
        if self._jitter >= self._latency:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) has latency {self._latency:g} and jitter "
                f"{self._jitter:g}; the latency must be more than the jitter"
            )
        self._direction = direction(self._values, "delayed")

    def inject(self) -> None:
        # A slow measurement on a busy machine would hide the latency that the toxic adds.
        self._path.measure_before(quick=self._least / 2)
        self._path.add(
            "latency", self._direction, latency=int(self._latency), jitter=int(self._jitter)
        )

    @property
    def _least(self) -> float:
        """The least that the toxic adds, in seconds: a little less than its latency, because
        Toxiproxy counts from when it read the bytes."""
        return 0.95 * (self._latency - self._jitter) / 1000

    def bite(self) -> Bite:
        return self._path.bite(
            "round trip over the link", {"at_least_ms": milliseconds(self._least)}, self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        before, within = (
            self._path.before or 0.0,
            2 * (self._latency + self._jitter) / 1000 + SLOW_ANSWERS_WITHIN,
        )
        samples = SAMPLES if self._least < ONE_IS_ENOUGH else 1
        trips = [self._path.link.round_trip(within=within) for _ in range(samples)]
        answered = [seconds for seconds in trips if seconds is not None]
        bit = len(answered) == samples and min(answered) >= max(
            self._least, before + self._least / 2
        )
        return bit, {
            "before_ms": milliseconds(before),
            "during_ms": [milliseconds(seconds) for seconds in trips],
        }


MEASURED_SECONDS = 0.7
LEAST_BYTES = 16_384
TOLERANCE = 1.3
SHARE_OF_SPEED = 0.8
WITHIN = 10.0


class LinkBandwidth(LinkFault):
    """Throttles the responses over a link; option rate (KB/s per connection).

    Breaks    the mirror's throughput: it falls behind, and a fetch may outlast a request timeout.
    Bite      pipelined responses over one connection arrive at no more than 1.3 times the rate, and
              slower than before.
    Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
    """

    options: ClassVar[Mapping[str, OptionAbout]] = {
        "rate": OptionAbout(default=100, low=1, about="KB/s per connection"),
    }
    reason = staticmethod(link_reason)

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._rate = number(self._values, "rate")
        self._size = max(LEAST_BYTES, int(self._rate * 1000 * MEASURED_SECONDS))
        self._before: float | None = None

    def inject(self) -> None:
        self._path.measure_before()
        self._before = self._unthrottled()
        self._path.add("bandwidth", "responses", rate=int(self._rate))

    def _unthrottled(self) -> float | None:
        """Bytes per second without the fault: the first transfer that is fast enough for the limit
        to slow it down visibly. If no transfer is before the deadline, the fastest one.

        A busy machine, or a link that recovers from another fault, may transfer less than the
        limit for a moment. Compared with that, the throttled link would not be slower.
        """
        enough = self._rate * 1000 * TOLERANCE / SHARE_OF_SPEED
        fastest: float | None = None

        def measured() -> bool:
            nonlocal fastest
            speed = self._path.link.transfer(size=self._size, within=patient(WITHIN))
            if speed is not None:
                fastest = max(speed, fastest or 0.0)
            return fastest is None or fastest > enough or self._world.stopping

        with contextlib.suppress(DeadlineExceeded):
            until(measured, within=patient(WITHIN), what="a transfer faster than the limit")
        return fastest

    def bite(self) -> Bite:
        expected = {"at_most_kb_per_s": round(self._rate * TOLERANCE, 1)}
        return self._path.bite("throughput of responses over the link", expected, self._measure)

    def _measure(self) -> tuple[bool, object]:
        within = patient(WITHIN) + 2 * self._size / (self._rate * 1000)
        speed = self._path.link.transfer(size=self._size, within=within)
        bit = bool(
            speed
            and self._before
            and speed <= self._rate * 1000 * TOLERANCE
            and speed < SHARE_OF_SPEED * self._before
        )
        return bit, {
            "before_kb_per_s": _kilobytes(self._before),
            "during_kb_per_s": _kilobytes(speed),
        }


def _kilobytes(speed: float | None) -> float | None:
    return None if speed is None else round(speed / 1000, 1)


_ANSWERS_WITHIN = 5.0


class CertificateShown(FaultBase):
    """A fault on the certificate of one path into a cluster."""

    shown: ClassVar[Certificate]
    refused_for: ClassVar[str]
    """A part of the error of a client that refuses the certificate (OpenSSL's text)."""

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        super().__init__(spec, world)
        self._path = LinkPath(spec, world)
        self._cluster = world.deployment.clusters[self._path.link.source]

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        if reason := link_reason(target, topology):
            return reason
        entered = Target.parse(target).entered
        if secured(topology.cluster(entered).security).tls:
            return None
        return (
            f"{target} leads into {entered}, which has no TLS certificate; secure it: "
            f"{entered}{{tls}}"
        )

    def inject(self) -> None:
        self._path.measure_before()
        self._cluster.show_certificate(self._path.link.name, self.shown)
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self.refused_for in self._refusal(),
                within=BITES_WITHIN,
                what="the other certificate to be shown",
            )
        self._path.cut()
        self._path.restore()

    def _refusal(self) -> str:
        """Why a broker or a client refuses a new connection; empty if all accept it."""
        bootstrap = self._path.link.bootstrap
        return probe.refusal(beside(bootstrap, bootstrap.split(",")[0]), within=_ANSWERS_WITHIN)

    def bite(self) -> Bite:
        return self._path.bite(
            "a new connection over the link", f"refused: {self.refused_for}", self._measure
        )

    def _measure(self) -> tuple[bool, object]:
        refusal = self._refusal()
        return self.refused_for in refusal, refusal or "taken"

    def heal(self) -> Sequence[str]:
        self._cluster.show_certificate(self._path.link.name, "valid")
        return [
            f"the valid certificate is shown on {self._path.link.name} again",
            *self._path.heal(),
        ]


class CertificateExpired(CertificateShown):
    """Makes the listener of a link present an expired certificate.

    Breaks    trust: the cluster's certificate has expired because nobody renewed it. Needs a
              cluster with TLS. Open connections are reset, so that every client must connect again.
    Bite      a new connection is refused by the client, with the words "certificate has expired".
    Heal      the valid certificate is back, and a round trip is as quick as before.
    """

    shown = "expired"
    refused_for = "certificate has expired"


class CertificateUntrusted(CertificateShown):
    """Gives the listener of a link a certificate of an untrusted authority.

    Breaks    trust: another authority issued the cluster's certificate, as after a careless
              renewal. Needs a cluster with TLS. Open connections are reset, so that every client
              must connect again.
    Bite      a new connection is refused by the client, with the words "unable to get local issuer
              certificate".
    Heal      the valid certificate is back, and a round trip is as quick as before.
    """

    shown = "untrusted"
    refused_for = "unable to get local issuer certificate"
