"""Proves that a link's proxies are in the path of every client that connects through them, before
anything relies on it.

Kafka answers metadata with the addresses of the listener that the request arrived on. So two things
must hold. Every broker is advertised at its own proxy; otherwise a client leaves the link with its
second connection. And a latency toxic shows in a measured round trip of every proxy; otherwise the
link's toxics have no effect. In other projects' tests, both have been wrong for years without
notice.
"""

from __future__ import annotations

from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.events import LinkProven
from linkflap.harness.model.protocols import Link, Recorder
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import frames, probe
from linkflap.harness.runtimes.toxiproxy.meter import LinkMeter
from linkflap.harness.wire.access import Access

PROBE_MS: Final = 100
ANSWERS_WITHIN: Final = 60.0
OWNER: Final = "proof"


def prove(link: Link, meter: LinkMeter, recorder: Recorder) -> None:
    """Records `link-proven`; raises SetupError that names the address which is not proxied. No
    toxic is left."""
    for broker, address in meter.proxies.items():
        _advertised(link.name, meter, broker, address)
    plain = _round_trips(link.name, meter)
    link.add_toxic("latency", "responses", {"latency": PROBE_MS}, owner=OWNER)
    try:
        slowed = _round_trips(link.name, meter)
    finally:
        link.clear(owner=OWNER)
    for broker, seconds in slowed.items():
        # Toxiproxy counts from when it reads the bytes, so the measured latency may be slightly
        # shorter.
        if seconds * 1000 < 0.9 * PROBE_MS:
            raise SetupError(
                f"link {link.name}: {PROBE_MS} ms of latency do not show in the round trip of "
                f"{seconds * 1000:.1f} ms to {_written(meter.proxies[broker])}, so that address is "
                "not proxied by this link's toxiproxy-server"
            )
    recorder.write(
        LinkProven(
            link=link.name,
            proxied=tuple(_written(address) for address in meter.proxies.values()),
            rtt_ms=round(max(plain.values()) * 1000, 3),
            probe_rtt_ms=round(min(slowed.values()) * 1000, 3),
        )
    )


def _advertised(name: str, meter: LinkMeter, broker: int, address: probe.Address) -> None:
    named = _asked(name, broker, address, meter.access)
    for other, found in named.items():
        wanted = meter.advertised.get(other)
        if found != wanted:
            remedy = (
                f"advertise {_written(wanted)}"
                if wanted
                else f"be given a proxy: the link has none for broker {other}"
            )
            raise SetupError(
                f"link {name}: broker {other} is advertised at {_written(found)}, which is not "
                f"proxied; its listener for this link must {remedy}"
            )


def _asked(
    name: str, broker: int, address: probe.Address, access: Access
) -> dict[int, probe.Address]:
    """A broker's answer at its proxy. On an overloaded machine, the first connections may be
    closed."""
    refusals: list[frames.NoAnswer] = []

    def answer() -> dict[int, probe.Address] | None:
        try:
            return probe.advertised(address, within=ANSWERS_WITHIN, access=access)
        except frames.NoAnswer as error:
            refusals.append(error)
            return None

    try:
        return until(answer, within=ANSWERS_WITHIN, what="an answer")
    except DeadlineExceeded:
        raise SetupError(
            f"link {name}: broker {broker} does not answer through its proxy: {refusals[-1]}"
        ) from refusals[-1]


def _round_trips(name: str, meter: LinkMeter) -> dict[int, float]:
    measured = meter.round_trips(within=ANSWERS_WITHIN)
    answered = {broker: seconds for broker, seconds in measured.items() if seconds is not None}
    if missing := measured.keys() - answered.keys():
        raise SetupError(
            f"link {name}: broker {min(missing)} does not answer at its proxy "
            f"{_written(meter.proxies[min(missing)])}"
        )
    return answered


def _written(address: probe.Address) -> str:
    return f"{address[0]}:{address[1]}"
