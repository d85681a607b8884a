"""KIP-1279 itself: a cluster that was promoted still loses the ACLs that it is given, to the mirror
that has no topics any more."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring import acls
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.wait import pause, until

WATCHED: Final = 20.0
"""Seconds for which ACLs are watched: ten refreshes of the mirror's metadata."""
EVERY: Final = 0.1


@case("KIP-1279-acls-after-promotion", PAIR, claim={"deleted": False}, control={"deleted": True})
def acls_after_promotion(bench: Bench, *, deleted: bool) -> Observation:
    """B is promoted, and ACLs are made on a topic of its own; `deleted`: its mirror is deleted
    before."""
    topic = bench.topic()
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        mirror.promoted(1)
        if deleted:
            mirror.admin.delete(mirror.name)
        own = bench.topic("own", cluster="B")
        if not acls.make(bench.admin("B"), [own]):
            raise EnvironmentFailure("B keeps no ACLs")
        held = partial(_held, bench, own)
        until(held, within=WITHIN, what=f"B to have the ACLs on {own}", every=0.05)
        began = time.monotonic()
        while held() and time.monotonic() - began < WATCHED:
            pause(EVERY, lambda: False)
        seconds = round(time.monotonic() - began, 1)
        left = held()
        states = dict(mirror.states())
    facts = {"acls_left": left, "watched_for": seconds, "states_at_the_end": states}
    return Observation(shown=left < acls.PER_TOPIC, facts=facts)


def _held(bench: Bench, topic: str) -> int:
    """How many of the ACLs that were made on it B has."""
    return len((acls.acls_of(bench.admin("B"), [topic]) or {}).get(topic, ()))
