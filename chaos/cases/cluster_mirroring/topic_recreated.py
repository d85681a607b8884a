"""KIP-1279 itself: a topic is deleted and made again at the source, and its old copy passes for
it."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from confluent_kafka import KafkaException

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BranchMirror, branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.mirrors.cluster_mirroring.answers import FAILED, MIRRORING
from linkflap.harness.model.wait import pause, until

OLD, NEW = 20, 50
WATCHED: Final = 20.0
"""Seconds for which it is watched once the new topic is there: ten refreshes of its metadata."""


@case("KIP-1279-topic-recreated", PAIR, claim={"noticed": False}, control={"noticed": True})
def topic_recreated(bench: Bench, *, noticed: bool) -> Observation:
    """`noticed`: the mirror has reported that the topic is deleted before it is made again."""
    topic = bench.topic()
    bench.write(topic, [b"old %d" % n for n in range(OLD)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        until(
            lambda: _counted(bench, topic) == (OLD, 0),
            within=WITHIN,
            what="B to have the old topic",
            every=0.2,
        )
        _delete(bench, topic)
        if noticed:
            until(
                lambda: mirror.states() == {FAILED: 1},
                within=WITHIN,
                what=f"{topic} to be FAILED",
                every=0.2,
                state=mirror.states,
            )
        bench.deployment.clusters["A"].create_topic(topic, partitions=1)
        bench.write(topic, [b"new %d" % n for n in range(NEW)])
        described = _watched(mirror)
        old, new = _counted(bench, topic)
    return Observation(
        shown=described.get(f"{MIRRORING}, lag 0", 0) > 0 and new < NEW,
        facts={"of_the_deleted_topic": old, "of_the_new_topic": new, "describe": described},
    )


def _delete(bench: Bench, topic: str) -> None:
    admin = bench.admin()
    admin.delete_topics([topic])[topic].result(WITHIN)

    def gone() -> bool:
        with contextlib.suppress(KafkaException):
            return topic not in admin.list_topics(timeout=10).topics
        return False

    until(gone, within=WITHIN, what=f"{topic} to be gone", every=0.05)


def _watched(mirror: BranchMirror) -> dict[str, int]:
    """How often describe answered what, in the second half of the time."""
    described: dict[str, int] = {}
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < WATCHED:
        for row in mirror.rows() if seconds > WATCHED / 2 else ():
            words = f"{row.state}, lag {row.lag}" + (f": {row.error}" if row.error else "")
            described[words] = described.get(words, 0) + 1
        pause(0.2, lambda: False)
    return described


def _counted(bench: Bench, topic: str) -> tuple[int, int]:
    """Records of the old and of the new topic in B's log, by its bytes."""
    found = [(record.value or b"") for record in records(bench.log(topic, cluster="B"))]
    return (
        sum(value.startswith(b"old") for value in found),
        sum(value.startswith(b"new") for value in found),
    )
