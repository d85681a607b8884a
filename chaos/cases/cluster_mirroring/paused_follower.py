"""KIP-1279 itself: a follower of the destination stands still, and the destination is truncated to
offset 0."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

RECORDS: Final = 200
WATCHED: Final = 20.0
"""Seconds for which the log of B's leader is watched after the follower is in sync again."""


def _paused(bench: Bench, *, pause: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-paused-follower",
    title=(
        "A build of the KIP-1279 branch truncates the destination to offset 0 when a follower of it"
        " falls out of sync"
    ),
    kind="proposal",
    claim_text=(
        "Any change of a mirrored partition's metadata on B makes its leader begin to mirror again "
        "by way of LOG_TRUNCATION. Before the first stop there is no last mirrored epoch, and that "
        "is taken for offset 0: all that was mirrored is truncated, below the high watermark."
    ),
    sources=(
        "docs/findings/cluster-mirroring-truncates-to-zero.md",
        "KIP-1279: last mirrored epoch, LOG_TRUNCATION",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. three brokers of B; {RECORDS} records are mirrored; 2. SIGSTOP of a follower of B "
        "until it is out of sync; 3. SIGCONT"
    ),
    reproduced="the log of B's leader, from its bytes, is shorter than what B had mirrored",
    control_text="nobody stands still: the log stays as it is",
    refuted="a log that is never shorter",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim=partial(_paused, pause=True),
    control=partial(_paused, pause=False),
    clients=("java",),
    needs=BUILD,
    apart=True,
)
