"""Topics of the destination that are not as the source's are."""

from __future__ import annotations

from random import Random

from linkflap.harness.model.history import EventRow
from tests.faithful.made import Made
from tests.faithful.mutations.base import PAIR, mutation
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
