"""KIP-1279 itself: the log of the mirrors' states gets another leader, and a topic that was
promoted has no state from then on, so that its clients can neither write nor go back."""

from __future__ import annotations

import contextlib
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
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.answers import VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.mirrors.cluster_mirroring.read_only import written
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import until

PROMOTED: Final = {STOPPED: 1}
FAILBACK: Final = 20.0
"""Seconds that a failback has."""
_OF_A: Final = 5


@case(
    "KIP-1279-promotion-forgotten",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=PAIR.links,
    ),
    claim={"moved": True},
    control={"moved": False},
)
def promotion_forgotten(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. The topic gets another leader."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * _OF_A)
    with branch_mirror(bench, topic) as mirror:
        mirror.created()
        one_coordinator(bench)
        mirror.started()
        mirror.mirroring(1)
        promoted(mirror)
        bench.write(topic, [b"of B"], cluster="B")
        number = given_up(bench)
        if moved:
            bench.lead(STATES, number, bench.broker(2, "B"), "B")
        leader = bench.ask(bench.up("B")).leadership(topic)[0].leader
        bench.lead(topic, 0, bench.broker(2 if leader == 3 else 3, "B"), "B")
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: mirror.states() == PROMOTED,
                within=WITHIN,
                what=f"{topic} to be {STOPPED} again",
                every=0.5,
            )
        states = dict(mirror.states())
        answers = written(bench.admin("B"), bench.bootstrap("B"), [topic])
        facts = {
            "moved": f"{STATES}-{number}" if moved else "",
            "states_a_minute_later": states,
            "a_write_a_minute_later": [one.words for one in answers],
            "failback": _failback(bench, topic),
        }
    return Observation(shown=states != PROMOTED, facts=facts)


def promoted(mirror: BranchMirror) -> None:
    """Stops it. A stop may be refused, and may be refused and carried out."""

    def stopped() -> bool:
        with contextlib.suppress(VerbRefused):
            mirror.stop()
        return mirror.states() == PROMOTED

    what = f"{mirror.topic} to be {STOPPED}"
    until(stopped, within=2 * WITHIN, what=what, every=1.0, state=mirror.states)


def given_up(bench: Bench) -> int:
    """A partition of __mirror_state that keeps no state. Raises EnvironmentFailure."""
    for number in sorted(bench.ask(bench.up("B")).leadership(STATES)):
        if not bench.log(STATES, number, cluster="B"):
            return number
    raise EnvironmentFailure(f"every partition of {STATES} has records")


def _failback(bench: Bench, topic: str) -> dict[str, str]:
    """The state and the error of a mirror back once it mirrors, or when its time is over."""
    with branch_mirror(bench, topic, "A", source="B") as back:
        back.created()
        back.started()
        with contextlib.suppress(DeadlineExceeded):
            back.mirroring(1, FAILBACK)
        return {row.state: row.error for row in back.rows()}
