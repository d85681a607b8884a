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
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 3
ROUNDS: Final = 5
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


def _played(bench: Bench, *, pause: bool) -> Observation:
    """The brokers of B stand still in turn, each until it is out of sync; A and the link are
    untouched."""
    topic = bench.topic(partitions=PARTITIONS)
    address = bench.bootstrap("B").split(",")[0]
    seen: dict[int, list[tuple[int, int]]] = {}

    def with_holes() -> dict[int, list[tuple[int, int]]]:
        """Partition -> what the log of its leader lacks, by its bytes."""
        leaders = {
            number: one.leader
            for number, one in wire.answered(address, topic).items()
            if one.leader > 0
        }
        logs = {n: bench.log(topic, n, broker=leader, cluster="B") for n, leader in leaders.items()}
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
            for rounds in range(1, ROUNDS + 1):
                if pause:
                    _out_and_in(bench, topic, 1 + rounds % 3)
                with contextlib.suppress(DeadlineExceeded):
                    until(stays, within=5, what="a hole", every=1)
                    break
        states = dict(mirror.states())
    found = with_holes()
    facts = {
        "rounds": rounds,
        "holes_of_leaders": {str(number): missing[:3] for number, missing in found.items()},
        "high_watermarks": {
            str(number): bench.bound("high", topic, number, "B") for number in found
        },
        "states_at_the_end": states,
    }
    return Observation(shown=bool(found), facts=facts)


def _out_and_in(bench: Bench, topic: str, number: int) -> None:
    """A broker stands still until the others have taken it out of sync, and is waited for, but not
    for ever."""
    broker = bench.broker(number, "B")
    asked = bench.ask(next(one for one in bench.cluster("B").brokers.values() if one.id != number))

    def in_sync() -> int:
        return sum(number in one.in_sync for one in asked.leadership(topic).values())

    broker.pause()
    try:
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: in_sync() == 0,
                within=WITHIN,
                what=f"broker {number} to be out of sync",
                every=0.05,
            )
    finally:
        broker.resume()
    with contextlib.suppress(DeadlineExceeded):
        until(
            lambda: in_sync() == PARTITIONS,
            within=10,
            what=f"broker {number} to be in sync",
            every=0.1,
        )


CASE = Case(
    name="KIP-1279-hole-after-truncation",
    title=(
        "A build of the KIP-1279 branch leaves a hole in the log of a leader that it truncates "
        "while it copies"
    ),
    kind="proposal",
    claim_text=(
        "LOG_TRUNCATION may begin while the leader's mirror fetcher has an answer under way. What "
        "arrives is appended behind the truncated log, at the source's offsets: the log has "
        "nothing from 0 to there, and never gets it."
    ),
    sources=(
        "docs/findings/cluster-mirroring-hole-after-truncation.md",
        "docs/findings/cluster-mirroring-truncates-to-zero.md",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. three brokers of B; {PARTITIONS} partitions are written to all the time; 2. up to "
        f"{ROUNDS} times: SIGSTOP of a broker of B until it is out of sync, then SIGCONT"
    ),
    reproduced="the log of a leader of B, from its bytes, lacks offsets between 0 and its end",
    control_text="nobody stands still: no log lacks anything",
    refuted="logs without holes",
    topology=Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim=partial(_played, pause=True),
    control=partial(_played, pause=False),
    clients=("java",),
    needs=BUILD,
    apart=True,
)
