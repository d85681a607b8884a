"""KIP-1279 itself: a topic is deleted and made again at the source, and its old copy passes for
it."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, BranchMirror, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.mirrors.cluster_mirroring.answers import FAILED, MIRRORING
from linkflap.harness.model.wait import pause, until

OLD, NEW = 20, 50
WATCHED: Final = 20.0
"""Seconds for which it is watched once the new topic is there: ten refreshes of its metadata."""


def _recreated(bench: Bench, *, noticed: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-topic-recreated",
    title=(
        "A build of the KIP-1279 branch says MIRRORING, lag 0, of a topic that was deleted and made"
        " again, and has the deleted one"
    ),
    kind="proposal",
    claim_text=(
        "A mirrored topic is deleted at the source and made again with the same name, within one "
        "refresh of the mirror's metadata. Nothing of the new topic is mirrored; the destination "
        "keeps the records of the deleted one, and describe says MIRRORING, lag 0. Only the "
        "broker's log says that the ids of the topics differ."
    ),
    sources=(
        "docs/findings/cluster-mirroring-topic-recreated.md",
        "KIP-1279: a mirrored topic has its source's topic id; a source topic that is deleted",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        f"1. {OLD} records, mirrored; 2. delete the topic on A and make it again at once; 3. {NEW} "
        f"records; 4. describe, and both logs, for {WATCHED:.0f} s"
    ),
    reproduced="describe says MIRRORING, lag 0, and records of the new topic are missing on B",
    control_text=(
        "the topic is made again once the mirror says FAILED, source topic deleted: it stays "
        "FAILED, and does not pass for mirrored"
    ),
    refuted="the new topic's records on B, or a state other than MIRRORING",
    topology=PAIR,
    claim=partial(_recreated, noticed=False),
    control=partial(_recreated, noticed=True),
    runs=3,
    clients=("java",),
    needs=BUILD,
)
