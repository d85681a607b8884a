"""KIP-1279 itself: a cluster that was promoted still loses the ACLs that it is given, to the mirror
that has no topics any more."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring import acls
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.wait import pause, until

WATCHED: Final = 20.0
"""Seconds for which ACLs are watched: ten refreshes of the mirror's metadata."""
EVERY: Final = 0.1


def _given(bench: Bench, *, deleted: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-acls-after-promotion",
    title=(
        "A cluster that was promoted with a build of the KIP-1279 branch loses the ACLs that it is "
        "given"
    ),
    kind="proposal",
    claim_text=(
        "B is promoted by a stop while A lives, as in any planned failover, and the mirror is "
        "kept, as a failback needs it. ACLs go on being synced, although nothing is mirrored: "
        "those that an admin gives a topic of B's own are deleted at the next refresh."
    ),
    sources=(
        "docs/findings/cluster-mirroring-acls-of-two-mirrors.md",
        "KIP-1279: ACLs are synced from the source; a topic that is STOPPED is its cluster's own",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        "1. a topic is mirrored, and stopped; 2. B gets a topic of its own, with two ACLs; 3. ACLs "
        f"of B, until they go or for {WATCHED:.0f} s"
    ),
    reproduced="the ACLs are not there any more, and nobody has deleted them",
    control_text="the mirror is deleted after the stop: the ACLs stay",
    refuted="the ACLs stay",
    topology=PAIR,
    claim=partial(_given, deleted=False),
    control=partial(_given, deleted=True),
    runs=3,
    clients=("java",),
    needs=BUILD,
    apart=True,
)
