"""Topics of the destination that are not as the source's are."""

from __future__ import annotations

from random import Random

from linkflap.harness.model.history import EventRow
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    PLANNED,
    ROUND_TRIP,
    drop_events,
    mutation,
)
from tests.faithful.spec import TOPIC


def _compared(made: Made, **row: object) -> None:
    """At its end the mirror of A->B held its topics against the source's."""
    time = max(event.time for event in made.events if event.kind != "phase")
    found = {"topic": TOPIC, "there": 2, "here": 2, "compared": 3, **row}
    made.events.append(
        EventRow(
            time=time,
            kind="topics-compared",
            subject="A->B",
            data={"rows": [found], "seconds": 20.0},
        )
    )


@mutation(PAIR, must="topic-sync/topic-missing")
def topic_that_was_not_made(made: Made, rng: Random) -> None:
    """After all records were copied, the destination lacks the topic."""
    _compared(made, here=0)


@mutation(PAIR, must="topic-sync/partitions-differ")
def topic_that_did_not_grow(made: Made, rng: Random) -> None:
    """The source's topic has a new partition, and the destination's topic lacks it."""
    _compared(made, there=3)


@mutation(PAIR, must="topic-sync/setting-differs")
def setting_that_was_not_synced(made: Made, rng: Random) -> None:
    """The destination's topic lacks a config of the source's topic."""
    _compared(made, differing={"delete.retention.ms": ["60000", None]})


@mutation(PAIR, must="topic-sync/acl-differs")
def acl_that_was_not_synced(made: Made, rng: Random) -> None:
    """The destination's topic lacks an ACL of the source's topic, which allows a principal to
    read."""
    _compared(made, acls=2, missing=["allow read to User:reader from *"])


@mutation(PAIR, verdict="valid")
def topics_that_are_the_same(made: Made, rng: Random) -> None:
    """The topic has the same partitions and configs on both clusters."""
    _compared(made)


def _sampled(made: Made, cluster: str, number: int, **own: str | None) -> None:
    """Changes settings in one sample of a cluster's topics."""
    rows = [e for e in made.events if e.kind == "settings-sampled" and e.subject == cluster]
    topics = rows[number].data["topics"]
    assert isinstance(topics, dict)
    for of_topic in topics.values():
        of_topic |= {name.replace("_", "."): value for name, value in own.items()}
        for name in [name for name, value in of_topic.items() if value is None]:
            del of_topic[name]


@mutation(FORCED, must="topic-sync/setting-differs")
def setting_that_was_not_restored(made: Made, rng: Random) -> None:
    """After a failover, topics of the promoted cluster have the retention that they had while they
    were mirrored."""
    _sampled(made, "B", -1, retention_ms="-1")


@mutation(PLANNED, must="topic-sync/setting-differs")
def setting_of_the_mirror_that_stayed(made: Made, rng: Random) -> None:
    """After a failover, topics of the promoted cluster have a setting that their home never had."""
    _sampled(made, "B", -1, retention_bytes="-1")


@mutation(ROUND_TRIP, must="topic-sync/setting-differs")
def setting_that_was_not_restored_at_home(made: Made, rng: Random) -> None:
    """After a failback, topics of the first cluster are without the retention that they had."""
    _sampled(made, "A", -1, retention_ms=None)


@mutation(FORCED, unknown="topic-sync", verdict="unknown")
def settings_that_nobody_sampled(made: Made, rng: Random) -> None:
    """Nothing says what was set on the topics of the promoted cluster."""
    drop_events(made, lambda e: e.kind == "settings-sampled" and e.subject == "B")


@mutation(FORCED, unknown="topic-sync", verdict="unknown")
def settings_that_nobody_sampled_after_the_failover(made: Made, rng: Random) -> None:
    """The promoted cluster's settings were sampled before its failover alone."""
    last = [e for e in made.events if e.kind == "settings-sampled" and e.subject == "B"][-1]
    drop_events(made, lambda e: e is last)


@mutation(FORCED, verdict="valid")
def replicas_in_sync_as_many_as_there_are(made: Made, rng: Random) -> None:
    """More replicas have to be in sync at home than the promoted cluster has brokers: there all of
    them have to be."""
    _sampled(made, "A", 0, min_insync_replicas="9")
    _sampled(made, "B", -1, min_insync_replicas=str(made.scenario.topology.cluster("B").brokers))
