"""The log of the mirrors' states gets another leader (KIP-1279 itself)."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import WITHIN, Bench, happens, wait_for
from linkflap.chaos.cases.branch_mirror import STOPPED, BranchMirror, branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring.admin import VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.administration import write_to_brokers
from linkflap.harness.mirrors.cluster_mirroring.state_topic import STATES
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.topologies import parse

PROMOTED: Final = {STOPPED: 1}
FAILBACK: Final = 20.0
"""Seconds that a failback has."""
_OF_A: Final = 5


@case(
    "KIP-1279-promotion-forgotten",
    parse("A->B:3"),
    claim={"moved": True},
    control={"moved": False},
)
def promotion_forgotten(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. The topic gets another leader."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * _OF_A)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1, between=(partial(one_coordinator, bench),))
        promoted(mirror)
        bench.write(topic, [b"of B"], cluster="B")
        number = empty_state_partition(bench)
        if moved:
            bench.lead(STATES, number, bench.broker(2, "B"), "B")
        leader = bench.ask(bench.up("B")).leadership(topic)[0].leader
        bench.lead(topic, 0, bench.broker(2 if leader == 3 else 3, "B"), "B")
        happens(f"{topic} to be {STOPPED} again", lambda: mirror.states() == PROMOTED, every=0.5)
        states = dict(mirror.states())
        answers = write_to_brokers(bench.admin("B"), bench.bootstrap("B"), [topic])
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
    wait_for(what, stopped, within=2 * WITHIN, every=1.0, state=mirror.states)


def empty_state_partition(bench: Bench) -> int:
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


RECORDS: Final = 200
OF_B: Final = 10


@case(
    "KIP-1279-failback-from-zero",
    parse("A->B:3"),
    claim={"moved": True},
    control={"moved": False},
)
def failback_from_zero(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. A's log is no longer than B's."""
    topic = bench.topic()
    bench.write(topic, [b"of A %d" % n for n in range(RECORDS)])
    with branch_mirror(bench, topic) as away:
        away.mirrors(1, between=(partial(one_coordinator, bench),))
        bench.ends_at(RECORDS, topic)
        promoted(away)
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    number = empty_state_partition(bench)
    if moved:
        bench.lead(STATES, number, bench.broker(2, "B"), "B")
    with branch_mirror(bench, topic, "A", source="B") as back:
        back.created()
        back.started()
        ends = _ends(bench, topic)
        facts = {
            "records_of_A": RECORDS,
            "moved": f"{STATES}-{number}" if moved else "",
            "shortest_log_of_A": min(ends),
            "log_of_A_at_the_end": ends[-1],
            "states_at_the_end": dict(back.states()),
        }
    return Observation(shown=min(ends) < RECORDS, facts=facts)


def _ends(bench: Bench, topic: str) -> list[int]:
    """Where A's log ended, from its bytes, until it has the records that were written at B. Raises
    DeadlineExceeded if it neither gets them nor is ever shorter: then nothing is known."""
    ends: list[int] = []

    def followed() -> bool:
        ends.append(bench.log_end(topic))
        return ends[-1] >= RECORDS + OF_B

    try:
        wait_for("A to follow B", followed, every=0.02)
    except DeadlineExceeded:
        if min(ends) >= RECORDS:
            raise
    return ends


PARTITIONS: Final = 3
WATCHED: Final = 10.0
"""Seconds for which the logs of B's leaders are watched: brokers look after theirs every two."""


@case(
    "KIP-1279-states-moved",
    parse("A->B:3"),
    claim={"move": True},
    control={"move": False},
)
def states_moved(bench: Bench, *, move: bool) -> Observation:
    """A, the link and the leaders of the mirrored partitions are untouched."""
    topic = bench.topic(partitions=PARTITIONS)
    for number in range(PARTITIONS):
        bench.write(topic, [b"%d" % n for n in range(RECORDS)], number)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        for number in range(PARTITIONS):
            bench.ends_at(RECORDS, topic, number)
        shortest = dict.fromkeys(range(PARTITIONS), RECORDS)

        def truncated() -> bool:
            leaders = wire.answered(bench.bootstrap("B").split(",")[0], topic)
            for number, one in leaders.items():
                end = bench.log_end(topic, number, broker=one.leader, cluster="B")
                shortest[number] = min(shortest[number], end)
            return min(shortest.values()) < RECORDS

        if move:
            _moved(bench)
        happens("a leader's log to be shorter", truncated, within=WATCHED)
        facts = {
            "mirrored": RECORDS,
            "shortest_logs_of_leaders": {str(number): end for number, end in shortest.items()},
            "states_at_the_end": dict(mirror.states()),
        }
    return Observation(shown=min(shortest.values()) < RECORDS, facts=facts)


def _moved(bench: Bench) -> None:
    """Every partition of the log of states is led by the next broker."""
    asked = bench.ask(bench.up("B"))
    for number, now in sorted(asked.leadership(STATES).items()):
        bench.lead(STATES, number, bench.broker(1 + now.leader % 3, "B"), "B")
