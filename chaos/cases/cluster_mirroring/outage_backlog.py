"""VK1 on stock brokers: what clients of the source notice of a mirror that catches up after an
outage, on the shadow."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.wait import pause, until

PARTITIONS, BACKLOG, SIZE = 40, 25, 20_000
OUTAGE, TOO_LONG = 5.0, 3.0
STANDS_STILL = 5.0
_TABLE: Final = Path("/proc/net/tcp")


def _longest(
    wire: Wire, topic: str, seconds: float, seen: Callable[[], object] = bool
) -> tuple[float, int]:
    """Produce round trips for so long, one after another: the longest, and how many. `seen` is
    called after each."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        wire.produce((topic, len(taken) % PARTITIONS), record_batch([b"probe"]))
        taken.append(time.monotonic() - began)
        seen()
    return round(max(taken), 3), len(taken)


def connections(table: Iterable[str], ports: Collection[int]) -> frozenset[int]:
    """Local ports of the connections to `ports` in Linux's table of TCP sockets (/proc/net/tcp),
    also of those just closed."""
    found = (line.split() for line in table)
    pairs = (
        (row[1].rpartition(":")[2], row[2].rpartition(":")[2])
        for row in found
        if len(row) > 2 and ":" in row[2]
    )
    return frozenset(int(local, 16) for local, remote in pairs if int(remote, 16) in ports)


def _connections(bench: Bench) -> frozenset[int]:
    """Those that the mirror has, or had a moment ago, to the link's proxies; none where the system
    has no such table."""
    ports = {
        int(address.rpartition(":")[2])
        for address in bench.deployment.links["A->B"].bootstrap.split(",")
    }
    try:
        return connections(_TABLE.read_text().splitlines(), ports)
    except OSError:
        return frozenset()


@case("VK1-outage-backlog", PAIR, claim={"suspended": False}, control={"suspended": True})
def outage_backlog(bench: Bench, *, suspended: bool) -> Observation:
    """The link is down while every partition grows by half a megabyte, and comes back; or the
    broker stands still instead."""
    topic = bench.topic(partitions=PARTITIONS)
    mirror = bench.mirror("shadow")
    mirror.start()
    wire = bench.ask(bench.broker())
    before, _ = _longest(wire, topic, 2.0)
    link = bench.deployment.links["A->B"]
    link.cut()
    down_since = time.monotonic()
    for _ in range(BACKLOG):
        for partition in range(PARTITIONS):
            wire.produce((topic, partition), record_batch([b"x" * SIZE]))
    pause(max(0.0, OUTAGE - (time.monotonic() - down_since)), lambda: False)
    behind = mirror.lag()
    old, new = _connections(bench), set[int]()
    link.restore()
    healed = time.monotonic()
    if suspended:
        bench.broker().pause()
        pause(STANDS_STILL, lambda: False)
        bench.broker().resume()
        during = time.monotonic() - healed
        count = 1
    else:
        during, count = _longest(wire, topic, 6.0, lambda: new.update(_connections(bench) - old))
    until(
        lambda: mirror.lag() == 0,
        within=180,
        what="the mirror to catch up",
        every=0.2,
        state=mirror.lag,
    )
    facts = {
        "backlog_bytes": PARTITIONS * BACKLOG * SIZE,
        "lag_at_the_heal": behind,
        "connections_made_after_the_heal": len(new),
        "caught_up_within": round(time.monotonic() - healed, 1),
        "longest_produce_before": before,
        "longest_produce_while_catching_up": round(during, 3),
        "produces_while_catching_up": count,
    }
    return Observation(shown=during > TOO_LONG, facts=facts)
