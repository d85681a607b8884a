"""KIP-1279 itself: a stop that is accepted in the moment in which the source dies, and takes no
effect."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.answers import VerbRefused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

PARTITIONS: Final = 4
STOPPED: Final = {"STOPPED": PARTITIONS}


def _stopped(bench: Bench, *, dies: bool) -> Observation:
    """The source dies while its partitions are still MIRRORING by describe, and stop is asked for
    at once."""
    topic = bench.topic(partitions=PARTITIONS)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        if dies:
            bench.broker().kill()
        try:
            mirror.stop()
            answer = "accepted"
        except VerbRefused as error:
            answer = error.name
        if answer == "accepted":
            with contextlib.suppress(DeadlineExceeded):
                until(
                    lambda: mirror.states() == STOPPED,
                    within=WITHIN,
                    what="all to be STOPPED",
                    every=0.3,
                )
        states = dict(mirror.states())
    return Observation(
        shown=answer == "accepted" and states != STOPPED,
        facts={"answer": answer, "states_at_the_end": states},
    )


CASE = Case(
    name="KIP-1279-stop-of-a-dying-source",
    title=(
        "A build of the KIP-1279 branch accepts a stop as its source dies, and never stops the "
        "partitions"
    ),
    kind="proposal",
    claim_text=(
        "Stop is accepted because partitions are MIRRORING. They turn FAILED before they are "
        "stopped, and stay so: the answer says that the destination is promoted, and it is not."
    ),
    sources=("docs/findings/cluster-mirroring-failover-refused.md", "KIP-1279: StopMirrorTopics"),
    expected=(Expected(shows=True, since="4.2.0"),),
    schedule=f"1. {PARTITIONS} partitions are mirrored; 2. kill -9 of A; 3. stop, at once",
    reproduced=f"stop is accepted, and {WITHIN:g} s later a partition is not STOPPED",
    control_text="A lives: stop is accepted, and every partition is STOPPED",
    refuted="a refusal, or partitions that are STOPPED",
    topology=PAIR,
    claim=partial(_stopped, dies=True),
    control=partial(_stopped, dies=False),
    runs=10,
    clients=("java",),
    needs=BUILD,
    apart=True,
)
