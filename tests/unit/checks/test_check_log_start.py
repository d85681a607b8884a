"""log-start: the smallest histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.harness.model.events import RecordsDeleted, SettingsSampled
from linkflap.harness.model.scenario import TopicSpec
from linkflap.spark_verify.facts.partition_facts import Deletion, ReplicaSample, Window
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from linkflap.spark_verify.read.partition_events import partition_facts
from linkflap.topologies import parse
from tests.unit.checks.histories import (
    ENDED,
    SECOND,
    History,
    Log,
    but,
    ints,
    poll,
    promoted,
    samples,
    send,
    view,
)
from tests.unit.checks.verdicts import Rejected, anomalies, unjudged

NAME = "log-start"
ALL = Log("A").data(1, written=SECOND).data(2, written=2 * SECOND).data(3, written=3 * SECOND)
LATE = Log("A", start=2).data(3, at=2, written=3 * SECOND)
"""A, which has lost 1 and 2."""


def begins(*starts: int, end: int = 3) -> Watermarks:
    """Samples of a log start, one each second from second 1 on."""
    return replace(samples(*((end, end) for _ in starts)), log_start=ints(*starts))


SEGMENTS = {"segment.bytes": "100"}
"""Each segment has one batch."""


def seen(
    *logs: Log, config: Mapping[str, str] | None = None, **rest: Unpack[History]
) -> PartitionView:
    given: History = {"mirror_kind": "shadow"}
    return but(view(list(logs), **(given | rest)), topic_config={**SEGMENTS, **(config or {})})


def deleted(offset: int, *, cluster: str = "A", at: int = 5) -> Deletion:
    return Deletion(cluster=cluster, offset=offset, asked=at * SECOND)


def sampled(start: int, *, broker: int = 2, at: int = 5) -> ReplicaSample:
    return ReplicaSample(
        cluster="A",
        broker=broker,
        log_start=start,
        log_end=3,
        asked=at * SECOND,
        returned=at * SECOND + 1,
    )


KEPT = Log("A", start=2).data(1, at=0, written=1).data(2, at=1, written=1).data(3, at=2)
"""A, which has all bytes, and says that it begins at 2."""
FOLLOWS = [LATE, Log("B", start=2).data(3, at=2)]
A_FALLS = {"A": begins(0, 0, 2)}
WEEK = {"retention.ms": "604800000"}

ACCEPTED: Mapping[str, tuple[PartitionView, Mapping[str, int]]] = {
    "nothing is gone": (seen(ALL, watermarks={"A": begins(0, 0)}), {"A/native": 3}),
    "records were deleted": (seen(LATE, deletions=[deleted(2)]), {"A/native": 1}),
    "in two steps": (
        seen(LATE, deletions=[deleted(1, at=1), deleted(2, at=2)], watermarks={"A": begins(0, 1)}),
        {"A/native": 3},
    ),
    "in the middle of a batch": (seen(KEPT, deletions=[deleted(2)]), {"A/native": 1}),
    "a mirror follows": (
        seen(*FOLLOWS, deletions=[deleted(2, at=1)], watermarks=A_FALLS),
        {"A/native": 4, "B/mirrored": 1},
    ),
    "they were too old": (seen(LATE, config={"retention.ms": "100000"}), {"A/native": 1}),
    "there were too many": (seen(LATE, config={"retention.bytes": "50"}), {"A/native": 1}),
    "a topic that was there before": (
        seen(LATE, watermarks={"A": begins(2, 2)}),
        {"A/native": 3},
    ),
    "a leader that has not heard of it, and hears of it": (
        seen(LATE, deletions=[deleted(2, at=1)], watermarks={"A": begins(0, 2, 0, 2)}),
        {"A/native": 5},
    ),
    "not in logs alone": (but(seen(LATE), recorded=False), {}),
}


def test_retention_deletes_no_half_of_a_batch() -> None:
    half = Log("A", start=1).data(1, 2, at=0).data(3)
    for config in ({"retention.bytes": "50"}, {"retention.ms": "1"}):
        kept = seen(half, config=config, watermarks={"A": begins(0, 0)})
        assert anomalies(NAME, kept) == [("lost-beginning", "A", 0)]
        asked = seen(half, config=config, watermarks=kept.watermarks, deletions=[deleted(1)])
        assert anomalies(NAME, asked) == []


REJECTS = {"lost-beginning": Rejected(seen(LATE, watermarks={"A": begins(0, 2)}), "A", 0)}


def found(*logs: Log, config: Mapping[str, str] | None = None, **rest: Unpack[History]) -> object:
    rest.setdefault("watermarks", {"A": begins(0)})
    return anomalies(NAME, seen(*logs, config=config, **rest))


LOST = [("lost-beginning", "A", 0)]


DISKLESS = {"diskless.enable": "true", "segment.bytes": "1000000000"}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (DISKLESS | WEEK | {"retention.bytes": "100"}, False),
        (DISKLESS | {"retention.ms": "1000"}, False),
        (DISKLESS | WEEK, True),
        (DISKLESS | WEEK | {"retention.bytes": "100", "diskless.enable": "false"}, True),
    ],
)
def test_retention_of_a_diskless_topic_deletes_single_batches(
    config: Mapping[str, str], found: bool
) -> None:
    falls = seen(LATE, watermarks=A_FALLS, config=config)
    assert bool(anomalies(NAME, falls)) is found


@pytest.mark.parametrize(
    "deletions",
    [[deleted(1)], [deleted(3)], [deleted(2, cluster="B")], [deleted(2, at=2000)]],
    ids=["less", "more", "of another cluster", "later"],
)
def test_a_deletion_explains_its_own_offset_on_its_cluster_afterwards(
    deletions: Sequence[Deletion],
) -> None:
    assert found(LATE, deletions=deletions) == LOST


@pytest.mark.parametrize(
    "config",
    [
        WEEK,
        {"retention.ms": "-1"},
        {"retention.ms": "998001"},
        {"retention.ms": "1", "cleanup.policy": "compact"},
        {"retention.bytes": "72"},
        {"retention.bytes": "-1"},
    ],
    ids=lambda config: str(config),
)
def test_retention_deletes_nothing_within_its_limits(config: Mapping[str, str]) -> None:
    """Record 2 is from second 2, and the run ended at second 1000; 71 bytes are left."""
    assert found(LATE, ALL_AT_B, config=config) == LOST


ALL_AT_B = Log("B").data(1, written=SECOND).data(2, written=2 * SECOND).data(3)


@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": "998000"},
        {"retention.ms": "1", "cleanup.policy": "compact,delete"},
        {"retention.bytes": "71"},
    ],
    ids=lambda config: str(config),
)
def test_records_beyond_retention_may_be_deleted(config: Mapping[str, str]) -> None:
    assert found(LATE, ALL_AT_B, config=config) == []


@pytest.mark.parametrize("waits", [-1, 3], ids=["no answer", "a high watermark that stands"])
def test_a_log_reaches_as_far_as_a_high_watermark_that_has_grown(waits: int) -> None:
    """Three batches of 71 bytes are left when the log start moves, and one of them is above the
    high watermark."""
    marks = samples((3, 3), (3, 3), (waits, waits), (waits, waits), (5, 5), (9, 9))
    moved = {"A": replace(marks, log_start=ints(0, 2, 2, 2, 2, 2))}
    grows = Log("A", start=2)
    for number in range(2, 9):
        grows.data(number + 1, at=number)
    for size, expected in ((213, []), (214, LOST)):
        assert found(grows, config={"retention.bytes": str(size)}, watermarks=moved) == expected


def test_limits_of_brokers_count_where_the_topic_has_none() -> None:
    one = seen(LATE, watermarks={"A": begins(0)})

    def on_brokers(config: Mapping[str, str], topic: Mapping[str, str]) -> object:
        topology = parse("A->B")
        config = {"log.segment.bytes": "100", **config}
        clusters = tuple(replace(c, config=config) for c in topology.clusters)
        return anomalies(
            NAME, but(one, topology=replace(topology, clusters=clusters), topic_config=topic)
        )

    assert on_brokers({"log.retention.ms": "1000"}, {}) == []
    assert on_brokers({"log.retention.minutes": "1"}, {}) == []
    assert on_brokers({"log.retention.bytes": "9"}, {}) == []
    assert on_brokers({"log.retention.ms": "1000"}, WEEK) == LOST
    assert on_brokers({"log.retention.hours": "1"}, {}) == LOST
    assert on_brokers({"log.cleanup.policy": "compact", "log.retention.ms": "1"}, {}) == LOST


def test_retention_deletes_entire_segments() -> None:
    short = {"retention.ms": "1"}
    assert found(KEPT, config=short) == LOST
    follower = Log("A", broker=2, canonical=False, leader=False, start=2).data(3, at=2)
    assert found(KEPT, follower, config=short) == []


def test_a_clock_that_a_fault_sets_ahead_makes_records_older() -> None:
    skew = Window(id="s", fault="clock-skew", target="A/1", start=1, end=2)
    ahead = {"retention.ms": "4000000"}
    assert found(LATE, config=ahead) == LOST
    assert found(LATE, config=ahead, windows=[skew]) == []
    assert found(LATE, config=ahead, windows=[replace(skew, target="B/1")]) == LOST
    assert found(LATE, config=WEEK, windows=[skew]) == LOST


def test_the_times_of_acknowledgements_count_where_no_copy_is_left() -> None:
    short = {"retention.ms": "500000"}
    assert found(LATE, config=short) == []
    newer = [replace(send(1, 2, acked=0), invoked=ENDED - SECOND)]
    assert found(LATE, config=short, sends=newer) == LOST


def test_how_much_a_dead_cluster_had_on_no_disk_is_unknown() -> None:
    """Its topics are captured by Fetch, and it died behind its last sample."""
    sampled = {"A": begins(0, 2)}
    for config, expected in (({"retention.bytes": "9"}, ([], 1)), (WEEK, (LOST, 0))):
        one = seen(Log("B").data(1).data(2).data(3), config=config, watermarks=sampled)
        assert said(one) == expected


def test_a_damaged_log_does_not_show_that_less_was_left_than_retention_keeps() -> None:
    torn = Log("A", start=2).data(3, at=2, written=3 * SECOND).torn()
    sound = Log("A", broker=2, start=2).data(3, at=2, written=3 * SECOND)
    size, moves = {"retention.bytes": "72"}, {"A": begins(0, 2)}
    assert said(seen(torn, ALL_AT_B, config=size, watermarks=moves)) == ([], 1)
    assert said(seen(torn, sound, ALL_AT_B, config=size, watermarks=moves)) == (LOST, 0)
    assert said(seen(torn, ALL_AT_B, config=WEEK, watermarks=moves)) == (LOST, 0)


NEARLY = {"retention.ms": "999500"}
"""The run ended at second 1000: what is younger than half a second of the epoch is kept."""


def at_b(written: int) -> Log:
    return Log("B").data(1, written=written).data(2, written=written).data(3)


def of_users(*logs: Log, **rest: Unpack[History]) -> PartitionView:
    given: History = {"watermarks": {"A": begins(0)}}
    return but(seen(*logs, config=NEARLY, **(given | rest)), programs=frozenset({"A.t"}))


def said(one: PartitionView) -> tuple[object, int]:
    return anomalies(NAME, one), len(unjudged(NAME, one))


ACKED = [send(1, 2, acked=0)]
OWN = [replace(each, client="own-producer-1") for each in ACKED]


def test_timestamps_of_user_clients_prove_no_early_deletion() -> None:
    assert said(of_users(LATE)) == ([], 1)
    assert said(of_users(LATE, sends=ACKED)) == ([], 1)
    assert said(but(of_users(LATE, sends=OWN), programs=frozenset())) == ([], 1)
    assert said(but(of_users(LATE, sends=ACKED), programs=frozenset())) == (LOST, 0)
    assert said(of_users(LATE, sends=ACKED, deletions=[deleted(2)])) == ([], 0)
    assert said(of_users(LATE, sends=ACKED, watermarks={"A": begins(2)})) == ([], 1)


@pytest.mark.parametrize("mirror", ["shadow", "mm2"])
def test_copies_show_the_times_that_users_clients_gave(mirror: str) -> None:
    """Behind a mirror that moves offsets, of what is known by its acknowledgement."""
    for written, lost in ((0, []), (SECOND, LOST), (ENDED + 3600 * SECOND, LOST)):
        one = of_users(LATE, at_b(written), sends=ACKED, mirror_kind=mirror)
        assert said(one) == (lost, 0)
    assert said(of_users(LATE, at_b(SECOND), mirror_kind="mm2")) == ([], 1)


def test_native_records_of_the_destination_prove_no_early_deletion() -> None:
    own = Log("B").data(7, written=SECOND).data(8, written=SECOND)
    assert said(of_users(LATE, own, promotions=[promoted(0)])) == ([], 1)


def test_records_that_are_left_show_how_old_a_users_may_be() -> None:
    old = Log("A", start=2).data(3, at=2, written=0)
    assert said(of_users(old, sends=ACKED)) == ([], 0)
    assert said(of_users(old, at_b(SECOND), sends=ACKED)) == (LOST, 0)


@pytest.mark.parametrize("where", ["topic", "brokers", "another"])
def test_brokers_give_the_time_of_the_append(where: str) -> None:
    one = of_users(LATE, sends=[replace(each, invoked=SECOND) for each in ACKED])
    settings, clusters = dict(NEARLY), one.topology.clusters
    if where == "topic":
        settings["message.timestamp.type"] = "LogAppendTime"
    else:
        name = "A" if where == "brokers" else "B"
        on = {"log.message.timestamp.type": "LogAppendTime"}
        clusters = tuple(replace(c, config=on) if c.name == name else c for c in clusters)
    one = but(one, topic_config=settings, topology=replace(one.topology, clusters=clusters))
    assert said(one) == (([], 1) if where == "another" else (LOST, 0))
    skew = Window(id="s", fault="clock-skew", target="A/1", start=1, end=2)
    assert anomalies(NAME, but(one, windows=[skew])) == []


def test_every_partition_has_its_topics_settings() -> None:
    facts = seen(LATE, config=WEEK).partition_facts.facts
    events = [
        SettingsSampled(cluster="A", asked=1, topics={"A.t": {"retention.ms": "1"}}, time=1),
        RecordsDeleted(cluster="A", topic="A.t", partition=1, offset=1, time=ENDED),
    ]
    known = partition_facts(facts, events, [], TopicSpec())
    for key in (("A.t", 0), ("A.t", 1)):
        assert [each.settings for each in known[key].settings] == [{"retention.ms": "1"}]
        one = seen(LATE, watermarks={"A": begins(0)})
        assert anomalies(NAME, replace(one, partition_facts=known[key])) == []


def test_a_start_that_was_never_seen_lower_is_held_against_what_was_shown() -> None:
    late = {"A": begins(2, 2)}
    assert found(LATE, watermarks=late) == []
    assert found(LATE, watermarks=late, sends=[send(1, 2, acked=0)]) == LOST
    assert found(LATE, watermarks=late, reads=[poll((1, 2))]) == [("lost-beginning", "A", 1)]


def test_every_replica_is_asked() -> None:
    follower = Log("A", broker=2, canonical=False, leader=False, start=2).data(3, at=2)
    assert found(ALL, follower) == LOST
    assert found(ALL, replica_samples=[sampled(0), sampled(2, at=6)]) == LOST
    assert found(ALL, replica_samples=[sampled(2)], deletions=[deleted(2, at=1)]) == []


def test_a_destination_follows_its_source_alone() -> None:
    gone = [("lost-beginning", "B", 0)]
    assert found(ALL, FOLLOWS[1]) == gone
    deleted_late = deleted(2, at=600)
    late = {"A": begins(*[0] * 600, 2)}
    assert found(*FOLLOWS, deletions=[deleted_late], watermarks=late) == []
    # B was its own by then
    over = [promoted(3, at=400)]
    late["B"] = begins(*[0] * 500, 2)
    assert found(*FOLLOWS, deletions=[deleted_late], watermarks=late, promotions=over) == gone


def test_offsets_of_a_mirror_that_moves_them_say_nothing_about_its_destination() -> None:
    gone = [("lost-beginning", "B", 0)]
    deletions = [deleted(2)]
    assert found(*FOLLOWS, deletions=deletions, mirror_kind="mm2") == gone
    deletions.append(deleted(2, cluster="B"))
    assert found(*FOLLOWS, deletions=deletions, mirror_kind="mm2") == []


def test_topics_of_coordinators_lose_no_beginning() -> None:
    late = Log("A", start=2).data(3, at=2)
    for topic, lost in (("__transaction_state", LOST), ("__cluster_metadata", [])):
        assert found(late, topic=topic, config={"retention.ms": "1"}) == lost


@pytest.mark.parametrize(("since", "lost"), [(2, []), (1, [("lost-beginning", "A", 1)]), (0, LOST)])
def test_a_topic_of_coordinators_begins_where_a_round_of_a_soak_began(
    since: int, lost: Sequence[object]
) -> None:
    whole = seen(LATE, topic="__transaction_state")
    one = replace(whole, replicas=[replace(r, since=since) for r in whole.replicas])
    assert anomalies(NAME, one) == lost


def test_bytes_below_a_log_start_are_still_compared() -> None:
    """A says that it begins at 2, and has 1; B has another there, or nothing."""
    other = Log("B").data(1, digest={1: 5}, crc=5).data(2).data(3)
    one = seen(KEPT, other, deletions=[deleted(2)])
    assert anomalies("byte-equality", one) == [("byte-divergence", "B", 0)]
    assert anomalies("record-equality", one) == [("record-divergence", "B", 0)]
    late = Log("B", start=2).data(3, at=2)
    assert anomalies("byte-equality", seen(KEPT, late, deletions=[deleted(2)])) == []


HOUR = {"retention.ms": "3600000"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"retention.bytes": "50", "segment.bytes": "1073741824"}, LOST),
        ({"retention.bytes": "50", "segment.bytes": "1073741824", "segment.ms": "1000000"}, LOST),
        ({"retention.bytes": "50", "segment.bytes": "1073741824", "segment.ms": "900000"}, []),
        ({"retention.bytes": "50", "segment.bytes": "1048700"}, []),
        ({"retention.bytes": "50", "segment.bytes": "1048800"}, LOST),
        (
            {
                "retention.bytes": "50",
                "segment.bytes": "1073741824",
                "segment.ms": "1000000",
                "segment.jitter.ms": "2000",
            },
            [],
        ),
        ({"retention.bytes": "50", "segment.bytes": "1048800", "segment.index.bytes": "12"}, []),
        ({"retention.bytes": "50", "segment.bytes": "1048800", "max.message.bytes": "1050000"}, []),
        (
            {
                "retention.bytes": "50",
                "segment.bytes": "1048800",
                "cleanup.policy": "compact,delete",
            },
            [],
        ),
        ({"retention.ms": "1000", "segment.bytes": "1073741824"}, []),
        ({"retention.ms": "400000", "segment.bytes": "1073741824"}, LOST),
        ({"retention.ms": "400000", "segment.bytes": "1073741824", "segment.ms": "900000"}, []),
    ],
    ids=lambda each: str(each),
)
def test_retention_deletes_only_segments_that_had_ended(
    config: Mapping[str, str], expected: object
) -> None:
    """Two batches of 71 bytes are gone, and the one that follows was written two seconds later. It
    may have been appended two minutes after that, when the others were past 100 seconds."""
    assert found(LATE, ALL_AT_B, config=config) == expected


def test_a_log_without_remaining_records_ended_there() -> None:
    whole = {"retention.ms": "900000", "segment.bytes": "1073741824"}
    old = Log("B").data(1, 2, 3, written=3 * SECOND)
    assert found(Log("A", start=3), old, config=whole) == []
    assert found(LATE, old, config=whole) == LOST


@pytest.mark.parametrize("offsets", [300, 1200])
def test_records_that_no_copy_has_may_have_been_as_large_as_brokers_allow(offsets: int) -> None:
    """Segments of 1 GiB end with an index of 1 MiB, that is 358 MB: 342 of the largest batches."""
    late = Log("A", start=offsets).data(3, at=offsets)
    expected = [] if offsets > 342 else LOST
    assert found(late, config={"retention.bytes": "9", "segment.bytes": "1073741824"}) == expected
    kept = Log("B").data(*range(1, offsets + 1), at=0)
    with_copy = found(late, kept, config={"retention.bytes": "9", "segment.bytes": "1073741824"})
    assert with_copy == LOST


def test_segments_of_brokers_that_others_started_are_not_known() -> None:
    config = {"retention.bytes": "50", "segment.bytes": "1073741824"}
    one = seen(LATE, ALL_AT_B, config=config, watermarks={"A": begins(0)})
    clusters = tuple(replace(c, bootstrap="127.0.0.1:9092") for c in one.topology.clusters)
    assert anomalies(NAME, one) == LOST
    assert anomalies(NAME, but(one, topology=replace(one.topology, clusters=clusters))) == []
    assert anomalies(NAME, but(one, programs=frozenset({"A.t"}))) == []
