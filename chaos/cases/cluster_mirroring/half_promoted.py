"""KIP-1279 itself: a stop that is refused and takes effect on some partitions of the topic, and not
on others."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING, Refused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 10
STOPPED: Final = "STOPPED"
ASKED: Final = 20.0
"""Seconds for which stop is asked for, and in which an accepted one takes effect."""


def _stopped(bench: Bench, *, lost: bool) -> Observation:
    """The source has lost a broker and got it back; then it stands still, and stop is asked for."""
    topic = bench.topic(partitions=PARTITIONS)
    brokers = bench.cluster("A").brokers
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        if lost:
            for _ in range(2):
                brokers[3].kill()
                brokers[3].start()
            until(
                lambda: mirror.states() == {MIRRORING: PARTITIONS},
                within=WITHIN,
                what=f"{topic} to mirror",
                every=0.1,
            )
        for broker in brokers.values():
            broker.pause()
        answers: list[str] = []

        def accepted() -> bool:
            try:
                mirror.stop()
            except Refused as error:
                answers.append(error.name)
                return False
            answers.append("accepted")
            return True

        try:
            with contextlib.suppress(DeadlineExceeded):
                until(accepted, within=ASKED, what="stop to be accepted", every=0.3)
                until(
                    lambda: mirror.states() == {STOPPED: PARTITIONS},
                    within=ASKED,
                    what="all to be STOPPED",
                    every=0.3,
                )
            states = dict(mirror.states())
        finally:
            for broker in brokers.values():
                broker.resume()
    stopped = states.get(STOPPED, 0)
    said = {name: answers.count(name) for name in dict.fromkeys(answers)}
    shown = stopped < PARTITIONS if "accepted" in answers else stopped > 0
    return Observation(
        shown=shown, facts={"answers": said, "states_at_the_end": states, "partitions": PARTITIONS}
    )


CASE = Case(
    name="KIP-1279-half-promoted",
    title=(
        "A build of the KIP-1279 branch refuses a stop and promotes some of the partitions all the "
        "same"
    ),
    kind="proposal",
    claim_text=(
        "Stop is answered INVALID_CLUSTER_MIRROR_STATES every time, and takes effect on most "
        "partitions of the topic: those are STOPPED and writable, and one goes back to MIRRORING "
        "or FAILED. By the KIP a refusal is for all of it."
    ),
    sources=("docs/findings/cluster-mirroring-half-promoted.md", "KIP-1279: StopMirrorTopics"),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule=(
        f"1. three brokers of A and of B; {PARTITIONS} partitions are mirrored; 2. kill -9 and "
        "start of a broker of A, twice; 3. SIGSTOP of all of A; 4. stop"
    ),
    reproduced=(
        f"stop is refused and a partition is STOPPED, or it is accepted and {ASKED:g} s later a "
        "partition is not STOPPED"
    ),
    control_text=(
        "the source has lost no broker before: stop is accepted, and every partition is STOPPED"
    ),
    refuted="a refusal that leaves every partition as it was, and an accepted stop that stops all",
    topology=Topology(
        clusters=(ClusterSpec(name="A", brokers=3), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim=partial(_stopped, lost=True),
    control=partial(_stopped, lost=False),
    runs=10,
    clients=("java",),
    needs=BUILD,
    apart=True,
)
