"""KIP-1279 itself: a stop that is accepted in the moment in which the source dies, and takes no
effect."""

from __future__ import annotations

import contextlib
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.answers import VerbRefused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

PARTITIONS: Final = 4
STOPPED: Final = {"STOPPED": PARTITIONS}


@case("KIP-1279-stop-of-a-dying-source", PAIR, claim={"dies": True}, control={"dies": False})
def stop_of_a_dying_source(bench: Bench, *, dies: bool) -> Observation:
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
