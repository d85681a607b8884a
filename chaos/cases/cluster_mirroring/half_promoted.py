"""KIP-1279 itself: a stop that is refused, and takes effect on the partitions that are
MIRRORING."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import (
    STOPPED,
    BranchMirror,
    branch_mirror,
    one_coordinator,
)
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring.answers import FAILED, MIRRORING, VerbRefused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 10
ASKED: Final = 15.0
"""Seconds for which stop is asked for unless it is accepted, and in which it takes effect."""
_ACCEPTED: Final = "accepted"


@case(
    "KIP-1279-half-promoted",
    Topology(
        clusters=(ClusterSpec(name="A", brokers=3), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim={"spread": True},
    control={"spread": False},
)
def half_promoted(bench: Bench, *, spread: bool) -> Observation:
    """One partition has its only replica on a broker of A that dies; stop is asked for. `spread`:
    the brokers of B lead partitions of __mirror_state as they were given them."""
    lost = bench.broker(3)
    topic = bench.topic(partitions=PARTITIONS, assigned=[[1]] * (PARTITIONS - 1) + [[lost.id]])
    with branch_mirror(bench, topic) as mirror:
        mirror.created()
        if not spread:
            one_coordinator(bench)
        mirror.started()
        mirror.mirroring(PARTITIONS)
        lost.kill()
        before = {MIRRORING: PARTITIONS - 1, FAILED: 1}
        until(
            lambda: mirror.states() == before,
            within=WITHIN,
            what=f"one partition of {topic} to be {FAILED}",
            every=0.1,
            state=mirror.states,
        )
        answers = _answers(mirror)
        states = dict(mirror.states())
        lost.start()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: mirror.states() == {STOPPED: PARTITIONS},
                within=ASKED,
                what="all to be STOPPED",
                every=0.3,
            )
        later = dict(mirror.states())
    shown = _ACCEPTED not in answers and states.get(STOPPED, 0) > 0
    facts = {
        "answers": dict(answers),
        "states_before": before,
        "states_at_the_end": states,
        "states_once_the_broker_is_back": later,
    }
    return Observation(shown=shown, facts=facts)


def _answers(mirror: BranchMirror) -> Counter[str]:
    """What stop is answered, how often, until it is accepted."""
    answers: Counter[str] = Counter()

    def accepted() -> bool:
        try:
            mirror.stop()
        except VerbRefused as error:
            answers[error.name] += 1
            return False
        answers[_ACCEPTED] += 1
        return True

    with contextlib.suppress(DeadlineExceeded):
        until(accepted, within=ASKED, what="stop to be accepted", every=0.3)
    return answers
