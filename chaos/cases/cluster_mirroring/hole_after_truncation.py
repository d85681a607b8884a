"""KIP-1279 itself: a leader of the destination is truncated while it copies, and its log goes on
behind a hole."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from linkflap.chaos.cases.bench import WITHIN, Bench
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.tools import wire
from linkflap.harness.log.reference import Batch
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 3
ROUNDS: Final = 3
WATCHED: Final = 6.0
"""Seconds after a round: brokers look after their partitions every two."""
VALUE: Final = b"x" * 200
EVERY: Final = 0.005
"""Seconds between two records of a partition."""


@contextmanager
def _written(bench: Bench, topic: str) -> Iterator[None]:
    """Something writes to every partition all the time."""
    ended, producer = threading.Event(), bench.producer()

    def write() -> None:
        while not ended.wait(EVERY):
            for number in range(PARTITIONS):
                with contextlib.suppress(BufferError):
                    producer.produce(topic, VALUE, partition=number)
            producer.poll(0)

    thread = threading.Thread(target=write, name="writer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(WITHIN)


def holes(log: Sequence[Batch]) -> list[tuple[int, int]]:
    """The offsets that a log lacks between 0 and its end: from, up to. Nothing was deleted or
    compacted."""
    found, wanted = [], 0
    for batch in log:
        if batch.base_offset > wanted:
            found.append((wanted, batch.base_offset))
        wanted = batch.last_offset + 1
    return found


def _played(bench: Bench, *, move: bool) -> Observation:
    """Leaders of B's log of states are moved; A, the link and the leaders of the mirrored
    partitions are untouched."""
    topic = bench.topic(partitions=PARTITIONS)
    address = bench.bootstrap("B").split(",")[0]
    seen: dict[int, list[tuple[int, int]]] = {}

    def with_holes() -> dict[int, list[tuple[int, int]]]:
        """Partition -> what the log of its leader lacks, by its bytes."""
        led = {number: one.leader for number, one in wire.answered(address, topic).items()}
        logs = {n: bench.log(topic, n, broker=leader, cluster="B") for n, leader in led.items()}
        return {number: missing for number, log in logs.items() if (missing := holes(log))}

    def stays() -> bool:
        """A log that is read while it is truncated may seem to have one: twice the same is one."""
        nonlocal seen
        before, seen = seen, with_holes()
        return any(before.get(number) == missing for number, missing in seen.items())

    rounds = 0
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS)
        with _written(bench, topic):
            while rounds < ROUNDS:
                rounds += 1
                if move:
                    _moved(bench)
                with contextlib.suppress(DeadlineExceeded):
                    until(stays, within=WATCHED, what="a hole", every=1)
                    break
        states = dict(mirror.states())
    found = with_holes()
    facts = {
        "rounds": rounds,
        "holes_of_leaders": {str(number): missing[:3] for number, missing in found.items()},
        "high_watermarks": {str(n): bench.bound("high", topic, n, "B") for n in found},
        "states_at_the_end": states,
    }
    return Observation(shown=bool(found), facts=facts)


def _moved(bench: Bench) -> None:
    """Every partition of the log of states is led by the next broker."""
    asked = bench.ask(bench.up("B"))
    for number, now in sorted(asked.leadership(STATES).items()):
        bench.lead(STATES, number, bench.broker(1 + now.leader % 3, "B"), "B")


CASE = Case(
    name="KIP-1279-hole-after-truncation",
    title=(
        "A build of the KIP-1279 branch truncates leaders that copy when the log of states gets "
        "another leader, and their logs go on behind a hole"
    ),
    kind="proposal",
    claim_text=(
        "A broker that gives up a partition of __mirror_state forgets the states of all its "
        "partitions, takes them for ones that never began, and truncates them to offset 0 while it "
        "copies. What arrives is appended at the source's offsets: the log has nothing from 0 to "
        "there, and never gets it."
    ),
    sources=(
        "docs/findings/cluster-mirroring-hole-after-truncation.md",
        "docs/findings/cluster-mirroring-truncates-to-zero.md",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. three brokers of B; {PARTITIONS} partitions are written to all the time; 2. up to "
        f"{ROUNDS} times: another in-sync replica of each partition of __mirror_state leads it"
    ),
    reproduced="the log of a leader of B, from its bytes, lacks offsets between 0 and its end",
    control_text="no leader is moved: no log lacks anything",
    refuted="logs without holes",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim=partial(_played, move=True),
    control=partial(_played, move=False),
    clients=("java",),
    needs=BUILD,
    apart=True,
)
