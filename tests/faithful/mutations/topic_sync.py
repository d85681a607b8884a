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
    """When everything was copied, the mirror's destination had no topic of that name."""
    _compared(made, here=0)


@mutation(PAIR, must="topic-sync/partitions-differ")
def topic_that_did_not_grow(made: Made, rng: Random) -> None:
    """The source's topic has got a partition that the destination's has not."""
    _compared(made, there=3)


@mutation(PAIR, must="topic-sync/setting-differs")
def setting_that_was_not_synced(made: Made, rng: Random) -> None:
    """A setting of the source's topic is none of the destination's."""
    _compared(made, differing={"delete.retention.ms": ["60000", None]})


@mutation(PAIR, must="topic-sync/acl-differs")
def acl_that_was_not_synced(made: Made, rng: Random) -> None:
    """Somebody who may read the source's topic may not read the destination's."""
    _compared(made, acls=2, missing=["allow read to User:reader from *"])


@mutation(PAIR, verdict="valid")
def topics_that_are_the_same(made: Made, rng: Random) -> None:
    """The topic has the same partitions and settings on both."""
    _compared(made)
