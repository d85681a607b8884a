"""ACLs that a mirror syncs (KIP-1279 itself)."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import PAIR, Bench, wait_for
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring import comparison
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import pause

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
        if not comparison.make_acls(bench.admin("B"), [own]):
            raise EnvironmentFailure("B keeps no ACLs")
        held = partial(_acls_on, bench, own)
        wait_for(f"B to have the ACLs on {own}", held, every=0.05)
        began = time.monotonic()
        while held() and time.monotonic() - began < WATCHED:
            pause(EVERY, lambda: False)
        seconds = round(time.monotonic() - began, 1)
        left = held()
        states = dict(mirror.states())
    facts = {"acls_left": left, "watched_for": seconds, "states_at_the_end": states}
    return Observation(shown=left < comparison.ACLS_PER_TOPIC, facts=facts)


def _acls_on(bench: Bench, topic: str) -> int:
    """How many of the ACLs that were made on it B has."""
    return len((comparison.acls_of(bench.admin("B"), [topic]) or {}).get(topic, ()))


INTO_C: Final = Topology(
    clusters=tuple(ClusterSpec(name=name) for name in "ABC"),
    links=(LinkSpec(source="A", destination="C"), LinkSpec(source="B", destination="C")),
)


@case("KIP-1279-acls-of-two-mirrors", INTO_C, claim={"both": True}, control={"both": False})
def acls_of_two_mirrors(bench: Bench, *, both: bool) -> Observation:
    """`both`: a second mirror leads to C, of a topic of B."""
    sources = "AB" if both else "A"
    topics = {source: bench.topic(cluster=source) for source in sources}
    with ExitStack() as mirrors:
        for source, topic in topics.items():
            if not comparison.make_acls(bench.admin(source), [topic]):
                raise EnvironmentFailure(f"{source} keeps no ACLs")
            mirror = mirrors.enter_context(branch_mirror(bench, topic, "C", source=source))
            mirror.mirrors(1)
        for topic in topics.values():
            wait_for(f"C to have the ACLs on {topic}", partial(_holds, bench, topic), every=EVERY)
        missing = dict.fromkeys(sources, 0)
        went = dict.fromkeys(sources, 0)
        here = dict.fromkeys(sources, True)
        asked = 0
        began = time.monotonic()
        while time.monotonic() - began < WATCHED:
            held = _held(bench, topics.values())
            asked += 1
            for source, topic in topics.items():
                missing[source] += not held[topic]
                went[source] += here[source] and not held[topic]
                here[source] = held[topic]
            pause(EVERY, lambda: False)
    return Observation(
        shown=any(went.values()),
        facts={"asked": asked, "without_those_of": missing, "times_that_they_went": went},
    )


def _held(bench: Bench, topics: Collection[str]) -> dict[str, bool]:
    """Topic -> whether C has the ACLs that were made on it."""
    found = comparison.acls_of(bench.admin("C"), topics) or {}
    return {topic: len(found.get(topic, ())) == comparison.ACLS_PER_TOPIC for topic in topics}


def _holds(bench: Bench, topic: str) -> bool:
    return _held(bench, [topic])[topic]
