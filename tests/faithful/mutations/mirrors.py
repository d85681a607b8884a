"""Reports of a mirror about itself that the logs contradict; topics of the destination that differ
from the source's."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import EventRow
from tests.faithful.made import Made
from tests.faithful.mutations.base import FORCED, PAIR, PLANNED, ROUND_TRIP, drop_events, mutation
from tests.faithful.spec import TOPIC

LINK = ("A", "B")


def described(made: Made) -> Made:
    """Adds an event for each sample of B, until B is promoted: how far B is behind A's last
    sample."""
    source, destination = LINK
    over = min((e.time for e in made.events if e.kind == "promotion"), default=2**62)
    heights: dict[tuple[str, int], int] = {}
    for mark in sorted(made.marks, key=lambda m: m.returned):
        if mark.topic.startswith("__") or mark.high_watermark < 0:
            continue
        heights[mark.topic, mark.partition] = heights.get((mark.topic, mark.partition), 0)
        if mark.cluster == source:
            heights[mark.topic, mark.partition] = mark.high_watermark
        elif mark.cluster == destination:
            lag = max(0, heights[mark.topic, mark.partition] - mark.high_watermark)
            made.events.append(
                described_at(
                    mark.topic,
                    mark.partition,
                    mark.time,
                    mark.returned,
                    lag if mark.returned < over else -1,
                )
            )
    made.events.sort(key=lambda event: event.time)
    mirror = declared(made.scenario.mirror)
    made.scenario = replace(
        made.scenario,
        mirror=replace(mirror, declared=replace(mirror.guarantee, describes_itself=True)),
    )
    return made


def described_at(
    topic: str, partition: int, asked: int, returned: int, lag: int, *, unknown: bool = False
) -> EventRow:
    """The mirror's report about one partition; a lag of -1 means that it has stopped, or that its
    state is unknown."""
    row = {
        "topic": topic,
        "partition": partition,
        "state": "MIRRORING" if lag >= 0 else "UNKNOWN" if unknown else "STOPPED",
        "mirrors": lag >= 0,
        "promoted": lag < 0 and not unknown,
        "lag": lag,
    }
    return EventRow(
        time=returned,
        kind="mirror-described",
        subject="->".join(LINK),
        data={"asked": asked, "rows": [row]},
    )


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
