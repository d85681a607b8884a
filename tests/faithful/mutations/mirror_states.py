"""What a mirror says of itself that the logs do not bear out, and what they do."""

from __future__ import annotations

from random import Random

from linkflap.harness.model.history import EventRow
from tests.faithful.descriptions import described, described_at
from tests.faithful.made import Made
from tests.faithful.mutations.base import PLANNED, mutation
from tests.faithful.spec import TOPIC

SECOND = 10**9


def _after_the_promotion(made: Made, seconds: int, lag: int) -> None:
    """The mirror describes a partition of A's again, so long after B was promoted."""
    described(made)
    time = max(event.time for event in made.events if event.kind == "promotion") + seconds * SECOND
    made.events.append(described_at(TOPIC, 0, time, time + 1, lag))
    made.ended = max(made.ended, time + 2)


@mutation(PLANNED, must="mirror-states/state-lie")
def said_to_mirror_what_was_promoted(made: Made, rng: Random) -> None:
    """Six seconds after the promotion of B, the mirror reports that it mirrors a partition to B,
    with lag 0."""
    _after_the_promotion(made, 6, 0)


@mutation(PLANNED, verdict="valid")
def said_to_mirror_a_moment_after(made: Made, rng: Random) -> None:
    """Two seconds after the promotion of B, the mirror still reports that it mirrors a partition to
    B. Its report may be that old."""
    _after_the_promotion(made, 2, 0)


@mutation(PLANNED, verdict="valid")
def said_to_have_stopped(made: Made, rng: Random) -> None:
    """The mirror's reports agree with the samples, and six seconds after the promotion of B it
    reports that it has stopped."""
    _after_the_promotion(made, 6, -1)


def _unknown(made: Made, seconds: int, every: int) -> None:
    """From six seconds after the promotion of B on, the mirror reports a partition's state as
    UNKNOWN."""
    described(made)
    began = max(event.time for event in made.events if event.kind == "promotion") + 6 * SECOND
    for time in range(began, began + seconds * SECOND + 1, every * SECOND):
        made.events.append(described_at(TOPIC, 0, time, time + 1, -1, unknown=True))
        made.ended = max(made.ended, time + 2)


@mutation(PLANNED, must="mirror-states/promotion-forgotten")
def promotion_that_was_forgotten(made: Made, rng: Random) -> None:
    """After the promotion of B, the mirror reports the state of a partition as UNKNOWN for half a
    minute."""
    _unknown(made, 30, 1)


@mutation(PLANNED, verdict="valid")
def promotion_that_is_read_again(made: Made, rng: Random) -> None:
    """After the promotion of B, the mirror reports the state of a partition as UNKNOWN for 29 s: as
    long as another coordinator may need."""
    _unknown(made, 29, 1)


@mutation(PLANNED, verdict="valid")
def state_that_was_rarely_described(made: Made, rng: Random) -> None:
    """After the promotion of B, the mirror reports the state of a partition as UNKNOWN, and gives
    no other report for six seconds each time: it may have known the state in between."""
    _unknown(made, 60, 6)


def _verbs(made: Made, **said: object) -> None:
    """Verbs were asked of the mirror of A->B."""
    described(made)
    time = max(event.time for event in made.events if event.kind == "mirror-described")
    data = {
        "seed": "verbs-1 1000",
        "steps": [f"[{TOPIC} MIRRORING] pause {TOPIC}: accepted"],
        **said,
    }
    made.events.append(EventRow(time=time, kind="verbs-played", subject="A->B", data=data))


@mutation(PLANNED, must="mirror-states/verb-disagreement")
def verb_that_should_be_refused(made: Made, rng: Random) -> None:
    """A paused topic was paused again, and the mirror accepted this. The recorded result is a
    disagreement with the model."""
    _verbs(
        made,
        wrong=f"pause {TOPIC} was accepted, expected: INVALID_CLUSTER_MIRROR_STATES",
        topic=TOPIC,
    )


@mutation(PLANNED, must="mirror-states/record-differs")
def state_that_was_not_recorded(made: Made, rng: Random) -> None:
    """The last record of a partition has the state FAILED, and describe reports MIRRORING."""
    time = max(event.time for event in made.events if event.kind != "phase")
    said = ["partition 0: FAILED recorded, MIRRORING described"]
    row = {"topic": TOPIC, "there": 2, "here": 2, "compared": 0, "recorded": said}
    data = {"rows": [row], "seconds": 20.0}
    made.events.append(EventRow(time=time, kind="topics-compared", subject="A->B", data=data))


@mutation(PLANNED, verdict="valid")
def verbs_that_agree(made: Made, rng: Random) -> None:
    """Verbs were sent to the mirror, and each answer agrees with the model."""
    _verbs(made)


@mutation(PLANNED, verdict="valid")
def verb_without_an_answer(made: Made, rng: Random) -> None:
    """The last verb got no answer in time, which is not a disagreement."""
    _verbs(made, unanswered=f"pause {TOPIC}: NO_ANSWER")


@mutation(PLANNED, unknown="mirror-states", verdict="unknown")
def never_described(made: Made, rng: Random) -> None:
    """A mirror that describes itself has no recorded description."""
    described(made)
    made.events = [event for event in made.events if event.kind != "mirror-described"]
