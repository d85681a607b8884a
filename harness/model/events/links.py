"""Links and their proxies (`harness.runtimes.toxiproxy`)."""

from __future__ import annotations

from linkflap.harness.model.events.base import OfLink


class LinkProven(OfLink, frozen=True, kw_only=True):
    """Every broker is reached through the link's proxies (host:port), and a probe of latency shows
    in the round trip.

    In milliseconds: the longest round trip without, and the shortest with the probe.
    """

    proxied: tuple[str, ...]
    rtt_ms: float
    probe_rtt_ms: float


class ProxyRebuilt(OfLink, frozen=True, kw_only=True):
    """Its toxiproxy-server hung or died, and was replaced by one with the same proxies and
    toxics."""

    reason: str
