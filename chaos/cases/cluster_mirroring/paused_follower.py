"""KIP-1279 itself: a follower of the destination stands still, and the destination is truncated to
offset 0."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

RECORDS: Final = 200
WATCHED: Final = 20.0
"""Seconds for which the log of B's leader is watched after the follower is in sync again."""


@case(
    "KIP-1279-paused-follower",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim={"pause": True},
    control={"pause": False},
)
def paused_follower(bench: Bench, *, pause: bool) -> Observation:
    """A, the link and the leader of B are untouched."""
    topic = bench.topic()
    bench.write(topic, [b"%d" % n for n in range(RECORDS)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        until(
            lambda: bench.bound("high", topic, cluster="B") == RECORDS,
            within=WITHIN,
            what="B to have all",
            every=0.2,
        )
        leader = bench.broker(wire.leader(bench.bootstrap("B").split(",")[0], topic), "B")
        asked = bench.ask(leader)
        follower = next(
            broker for broker in bench.cluster("B").brokers.values() if broker.id != leader.id
        )
        shortest = RECORDS

        def truncated() -> bool:
            nonlocal shortest
            shortest = min(
                shortest,
                max(
                    (
                        one.last_offset + 1
                        for one in bench.log(topic, broker=leader.id, cluster="B")
                    ),
                    default=0,
                ),
            )
            return shortest < RECORDS

        in_sync = frozenset(asked.leadership(topic)[0].in_sync)
        if pause:
            follower.pause()
            try:
                out = partial(_in_sync, asked, topic, in_sync - {follower.id})
                until(
                    lambda: truncated() or out(),
                    within=WITHIN,
                    what=f"broker {follower.id} to be out of sync",
                    every=0.02,
                )
            finally:
                follower.resume()
        with contextlib.suppress(DeadlineExceeded):
            until(truncated, within=WATCHED, what="the leader's log to be shorter", every=0.02)
        facts = {
            "mirrored": RECORDS,
            "shortest_log_of_the_leader": shortest,
            "leader": leader.id,
            "follower": follower.id,
            "states_at_the_end": dict(mirror.states()),
        }
    return Observation(shown=shortest < RECORDS, facts=facts)


def _in_sync(asked: wire.Wire, topic: str, wanted: frozenset[int]) -> bool:
    return frozenset(asked.leadership(topic)[0].in_sync) == wanted
