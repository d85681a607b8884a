"""Several promotions: every check accepts a faithful round trip and a faithful chain, and finds the
errors in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Examined
from linkflap.spark_verify.checks.log_model.generations import every, marks_in, reads_in
from linkflap.spark_verify.checks.read_committed_visibility import kernel
from linkflap.spark_verify.facts.eras import FOREVER, history
from linkflap.spark_verify.facts.partition_facts import LogPromotion, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView, Watermarks
from tests.kafka_log import crc_with_id
from tests.unit.checks.histories import (
    SECOND,
    Log,
    WholeHistory,
    commit,
    ints,
    poll,
    promoted,
    reversed_,
    samples,
    send,
    uid,
    view,
)
from tests.unit.checks.round_trip import (
    ACKED,
    AWAY,
    BACK,
    before,
    home_again,
    on_a,
    on_b,
    trip,
    truncation,
)
from tests.unit.checks.verdicts import anomalies, examined, unjudged

CHAIN: WholeHistory = {"topology": "A->B->C", "mirror_kind": "shadow", "promotions": [promoted(2)]}


def chain(**rest: Unpack[WholeHistory]) -> PartitionView:
    """A->B->C: A dies at offset 2, clients continue on B, C has it all."""
    log = [Log(name).data(1).data(2).data(4, crc=44, leader_epoch=3) for name in "BC"]
    sends = [
        send(1, 2, acked=0),
        send(4, acked=2, cluster="B", invoked=550 * SECOND, returned=551 * SECOND),
    ]
    given: WholeHistory = {"logs": [Log("A").data(1).data(2), *log], "sends": sends}
    return view(**(given | CHAIN | rest))


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize("seen", [trip(), chain()], ids=["round trip", "chain"])
def test_every_check_accepts_what_is_faithful(name: str, seen: PartitionView) -> None:
    assert anomalies(name, seen) == []
    assert unjudged(name, seen) == []


def test_every_era_is_examined() -> None:
    assert examined("duplicate", trip()) == {
        "A/native": 4,
        "A/mirrored": 2,
        "B/mirrored": 2,
        "B/native": 2,
    }
    assert examined("order-equality", trip()) == {"A/mirrored": 2, "B/mirrored": 2}
    assert examined("byte-equality", chain()) == {"B/mirrored": 2, "C/mirrored": 3}


class Again(TypedDict):
    """The second failover from A."""

    promotions: Sequence[LogPromotion]
    windows: Sequence[Window]


AGAIN: Again = {
    "promotions": [AWAY, home_again(), promoted(5, at=900 * SECOND)],
    "windows": [BACK, reversed_("B->A", at=800)],
}


def test_a_third_failover() -> None:
    b = on_b().data(6, leader_epoch=4).data(7, leader_epoch=5)
    last = send(7, acked=5, cluster="B", invoked=950 * SECOND, returned=951 * SECOND)
    seen = trip(
        logs=[on_a(), b],
        earlier=[before(), on_b().taken("1-reverse-800", at=805)],
        sends=[*ACKED, last],
        **AGAIN,
    )
    for name in REGISTRY:
        assert anomalies(name, seen) == [], name
        assert unjudged(name, seen) == [], name
    assert examined("order-equality", seen) == {"A/mirrored": 2, "B/mirrored": 3}


def test_bytes_and_records_that_came_back_changed() -> None:
    other = Log("A").data(1).data(2).data(4, crc=45, digest={4: 7}).data(5, crc=55).data(6)
    assert anomalies("byte-equality", trip(logs=[other, on_b()])) == [("byte-divergence", "A", 2)]
    assert anomalies("order-equality", trip(logs=[other, on_b()])) == [
        ("mirror-divergence", "A", 2)
    ]


def test_a_standby_that_was_truncated_to_nothing_is_compared() -> None:
    """A dies with 1, which B never got. Nothing that A has now is its clients'."""
    given: WholeHistory = {
        "logs": [
            Log("A").data(4, crc=44, leader_epoch=3),
            Log("B").data(4, crc=44, leader_epoch=3),
        ],
        "promotions": [promoted(0)],
        "earlier": [Log("A").data(1).taken("1-away", at=510)],
        "truncations": [truncation(0, end=1)],
        "sends": [
            send(1, acked=0),
            send(4, acked=0, cluster="B", invoked=550 * SECOND, returned=551 * SECOND),
        ],
    }
    again = send(6, acked=1, invoked=750 * SECOND, returned=751 * SECOND)
    assert unjudged("order-equality", trip(**given)) == []
    assert examined("order-equality", trip(**given)) == {"A/mirrored": 1}
    given["sends"] = [*given["sends"], again]
    assert "no promotion was recorded" in unjudged("order-equality", trip(**given))[0]


def test_a_hole_in_the_records_mirrored_back() -> None:
    hole = Log("A").data(1).data(2).data(5, at=3, crc=55, leader_epoch=3).data(6, leader_epoch=4)
    assert anomalies("byte-equality", trip(logs=[hole, on_b()])) == [("byte-hole", "A", 2)]
    assert [kind for kind, _, _ in anomalies("order-equality", trip(logs=[hole, on_b()]))] == [
        "mirror-hole"
    ]


def test_the_end_of_a_chain_is_compared_with_its_owner() -> None:
    log = [Log(name).data(1).data(2, crc=9).data(4, crc=44, leader_epoch=3) for name in "BC"]
    seen = chain(logs=[Log("A").data(1).data(2), *log])
    assert anomalies("byte-equality", seen) == [
        ("byte-divergence", "B", 1),
        ("byte-divergence", "C", 1),
    ]


def test_negated_ids_are_restored_on_a_second_hop() -> None:
    def log(name: str, pid: int) -> Log:
        crc = crc_with_id(5, 71, 3, pid)
        return Log(name).data(1, pid=pid, epoch=0, crc=crc, producer_epoch=0, base_sequence=0)

    seen = view(
        [log("A", 3), log("B", -5), log("C", 3)],
        topology="A->B->C",
        mirror_kind="shadow",
        mirror={"producer_ids": "negate"},
    )
    assert anomalies("byte-equality", seen) == []
    seen = view(
        [log("A", 3), log("B", -5), log("C", 4)],
        topology="A->B->C",
        mirror_kind="shadow",
        mirror={"producer_ids": "negate"},
    )
    assert ("byte-divergence", "C", 0) in anomalies("byte-equality", seen)


def ids(log: Log, first: int, second: int, third: int | None = None) -> Log:
    """The round trip's log with producer ids of A, B and A again."""
    log.data(uid(1, 1), pid=first).data(uid(1, 2), pid=first).data(uid(2, 4), pid=second).data(
        uid(2, 5), pid=second
    )
    return log if third is None else log.data(uid(3, 6), pid=third)


NAME = "producer-id-uniqueness"


def test_an_id_that_both_clusters_handed_out_is_a_collision_wherever_both_are() -> None:
    seen = trip(logs=[ids(Log("A"), 7, 7, 9), ids(Log("B"), 7, 7)], earlier=[], sends=[])
    assert sorted(anomalies(NAME, seen)) == [
        ("producer-id-collision", "A", 2),
        ("producer-id-collision", "B", 2),
    ]
    c = ids(Log("C"), 7, 7)
    assert ("producer-id-collision", "C", 2) in anomalies(
        NAME, chain(logs=[Log("A").data(1).data(2), c], sends=[])
    )


def test_an_id_of_the_other_cluster_that_is_handed_out_after_the_failback() -> None:
    seen = trip(logs=[ids(Log("A"), 7, 2001, 2001), ids(Log("B"), 7, 2001)], earlier=[], sends=[])
    assert anomalies(NAME, seen) == [("producer-id-collision", "A", 4)]


def test_an_id_that_continues_on_its_own_cluster_is_no_collision() -> None:
    own = [
        Log("A")
        .data(1, pid=7)
        .data(2, pid=7)
        .data(4, pid=2001)
        .data(5, pid=2001)
        .data(6, pid=7, epoch=1)
    ]
    assert anomalies(NAME, trip(logs=own, earlier=[], sends=[])) == []
    assert anomalies("sequence-continuity", trip(logs=own, earlier=[], sends=[])) == []


def test_a_reset_parts_two_producers_of_one_id() -> None:
    a, b = [ids(Log(name), 7, 2001).marker("reset", pid=-1, epoch=-1) for name in "AB"]
    seen = trip(
        logs=[a.data(uid(3, 6), pid=2001, sequence=0), b],
        promotions=[AWAY, home_again(5)],
        earlier=[],
        sends=[],
    )
    assert anomalies(NAME, seen) == []


def test_one_id_on_two_clusters_has_two_sequences() -> None:
    log = [
        Log(n).data(1, pid=7).data(2, pid=7).data(4, pid=7, sequence=0).data(5, pid=7) for n in "AB"
    ]
    assert anomalies("sequence-continuity", trip(logs=log, earlier=[], sends=[])) == []


def test_duplicates_of_what_the_tail_had() -> None:
    twice = Log("A").data(1).data(2).data(4).data(5).data(3).data(3)
    assert anomalies("duplicate", trip(logs=[twice, on_b()])) == [("duplicate", "A", 5)]


def test_a_stranger_in_the_tail_is_named_with_its_capture() -> None:
    assert anomalies(
        "provenance", trip(earlier=[Log("A").data(1).data(2).data(9).taken("1-away", at=510)])
    ) == [("stranger", "A", 2)]


def test_readers_are_compared_with_the_log_of_their_time() -> None:
    early, late = poll((2, 3), at=400 * SECOND), poll((2, 4), at=650 * SECOND)
    for name in ("read-committed-visibility", "aborted-read"):
        assert anomalies(name, trip(reads=[early, late])) == []
    stale = poll((2, 3), at=650 * SECOND)
    assert anomalies("read-committed-visibility", trip(reads=[stale])) == [("phantom-read", "A", 2)]


def test_samples_are_compared_with_the_log_of_their_time() -> None:
    marks = samples(
        *[(3, 3)] * 499, *[(-1, -1)] * 102, *[(4, 4)] * 148, epochs=[0] * 601 + [3] * 148
    )
    assert anomalies("last-stable-offset", trip(watermarks={"A": marks})) == []


def test_a_transaction_is_torn_by_the_failover_that_truncated_it() -> None:
    a = Log("A").txn(1, pid=7).txn(2, 3, pid=7)
    b = Log("B").txn(1, pid=7).data(4).data(5)
    sends = [commit(1, acked=0), commit(2, 3, acked=2)]
    seen = trip(logs=[b, replace_cluster(b)], earlier=[a.taken("1-away", at=510)], sends=sends)
    assert anomalies("torn-transaction", seen) == []


def replace_cluster(log: Log) -> Log:
    """The same log on A."""
    other = Log("A")
    other.end, other.batches, other.records = log.end, log.batches, log.records
    return other


def test_groups_that_come_home() -> None:
    away = [
        poll(kind="commit", position=1, group="g", at=400 * SECOND),
        poll((0, 1), group="g", at=399 * SECOND),
    ]
    there = [poll((1, 2), (2, 4), (3, 5), cluster="B", group="g", at=560 * SECOND)]
    there += [poll(kind="commit", position=4, cluster="B", group="g", at=570 * SECOND)]
    home = poll((4, 6), group="g", at=760 * SECOND)
    assert anomalies("group-offsets", trip(reads=[*away, *there, home])) == []
    skipping = [
        *away,
        *there[:1],
        poll(kind="commit", position=3, cluster="B", group="g", at=570 * SECOND),
    ]
    skipping[2] = poll((1, 2), (2, 4), cluster="B", group="g", at=560 * SECOND)
    assert anomalies("group-offsets", trip(reads=[*skipping, home])) == [("group-skip", "A", 3)]


def test_an_era_without_its_capture_is_reported_as_unjudged() -> None:
    planned = [replace(AWAY, kind="planned"), home_again()]
    reasons = unjudged("lost-write", trip(promotions=planned, earlier=[]))
    assert reasons == ["no log of A was captured for A.t-0"]


LASTS = replace(reversed_("A->B", at=600), end=640 * SECOND)
TRUNCATED = replace(truncation(), time=620 * SECOND)
OLD, NEW = poll((2, 3), at=610 * SECOND), poll((2, 4), (3, 5), at=630 * SECOND)
EMPTY = poll(at=625 * SECOND, position=3)


class Logs(TypedDict, total=False):
    """Logs of a round trip that a test replaces."""

    logs: Sequence[Log]
    earlier: Sequence[Log]


def during(
    *reads: Read, watermarks: Mapping[str, Watermarks] | None = None, **rest: Unpack[Logs]
) -> PartitionView:
    return trip(
        windows=[LASTS], truncations=[TRUNCATED], reads=reads, watermarks=watermarks, **rest
    )


def of_a(seen: PartitionView) -> list[list[tuple[int, ...]]]:
    """(offset, payload) of the records read in each log generation of A."""
    generations = [generation for generation in every(seen) if generation.cluster == "A"]
    got = [
        [(o, u) for r in reads_in(seen, generation) for o, u in zip(r.offsets, r.uids, strict=True)]
        for generation in generations
    ]
    return [[tuple(map(int, pair)) for pair in each] for each in got]


def spanning(*pairs: tuple[int, int]) -> Read:
    return replace(poll(*pairs), time=615 * SECOND, returned=625 * SECOND)


@pytest.mark.parametrize(
    ("reads", "old", "new"),
    [
        ([OLD], [(2, 3)], []),
        ([NEW], [], [(2, 4), (3, 5)]),
        ([OLD, NEW], [(2, 3)], [(2, 4), (3, 5)]),
        ([spanning((0, 1), (2, 3))], [(0, 1), (2, 3)], []),
        ([spanning((1, 2), (2, 4))], [], [(1, 2), (2, 4)]),
        ([spanning((2, 3), (3, 5))], [(2, 3)], [(3, 5)]),
        # It had fetched that before the truncation and returned it afterwards.
        (
            [poll((1, 2), at=622 * SECOND), poll((2, 3), at=623 * SECOND), NEW],
            [(1, 2), (2, 3)],
            [(2, 4), (3, 5)],
        ),
        # The mirror had copied that before the harness read the truncation in the mirror's journal.
        ([poll((2, 4), at=618 * SECOND), poll((3, 5), at=619 * SECOND)], [], [(2, 4), (3, 5)]),
        # Not an old record: it had looked at the log end, or got what replaced it.
        ([EMPTY, poll((2, 3), at=630 * SECOND)], [], [(2, 3)]),
        ([NEW, poll((2, 3), at=635 * SECOND)], [], [(2, 4), (3, 5), (2, 3)]),
        ([poll((2, 9), at=610 * SECOND)], [(2, 9)], []),
        ([poll((2, 9), at=630 * SECOND)], [], [(2, 9)]),
    ],
)
def test_a_record_that_a_reader_got_is_of_one_log_generation(
    reads: list[Read], old: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    assert of_a(during(*reads)) == [old, new]


def test_each_consumer_sees_the_truncation_by_itself() -> None:
    late = [poll((1, 2), at=622 * SECOND, reader="s"), poll((2, 3), at=623 * SECOND, reader="s")]
    assert of_a(during(poll((2, 4), at=621 * SECOND), *late)) == [[(1, 2), (2, 3)], [(2, 4)]]


def test_a_transaction_may_end_otherwise_in_either() -> None:
    """A transaction committed in the tail was open where the logs diverge, and the new owner has
    aborted it."""
    a, b = (
        log.data(1).data(2, pid=7, transactional=True).marker("abort", pid=7)
        for log in (Log("A"), Log("B"))
    )
    old = (
        Log("A")
        .data(1)
        .data(2, pid=7, transactional=True)
        .marker("commit", pid=7)
        .taken("1-away", at=510)
    )
    got = [poll((1, 2), at=623 * SECOND)]
    assert anomalies("aborted-read", during(*got, logs=[a, b], earlier=[old])) == []
    assert anomalies(
        "aborted-read", during(EMPTY, poll((1, 2), at=630 * SECOND), logs=[a, b], earlier=[old])
    ) == [("aborted-read", "A", 1)]


@pytest.mark.parametrize("at", [610, 630])
def test_another_payload_is_seen_whenever_it_was_got(at: int) -> None:
    seen = during(poll((2, 9), at=at * SECOND))
    assert anomalies("read-committed-visibility", seen) == [("phantom-read", "A", 2)]
    assert anomalies("inconsistent-offset", seen) == [("inconsistent-offset", "A", 2)]


@pytest.mark.parametrize(("at", "pairs"), [(610, ((1, 2), (0, 1))), (630, ((3, 5), (2, 4)))])
def test_a_reader_that_went_back_while_it_lasted(
    at: int, pairs: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    one, two = (poll(pair, at=(at + n) * SECOND) for n, pair in enumerate(pairs))
    assert anomalies("poll-continuity", during(one, two)) == [("poll-regression", "A", pairs[1][0])]


def test_a_record_of_the_tail_that_came_back_is_none_that_was_left_over() -> None:
    assert anomalies(
        "read-committed-visibility", during(OLD, NEW, poll((2, 3), at=635 * SECOND))
    ) == [("phantom-read", "A", 2)]


def test_without_a_truncation_written_down_the_reversal_lasts_to_its_end() -> None:
    seen = trip(windows=[LASTS], truncations=[], reads=[OLD, NEW])
    assert of_a(seen) == [[(2, 3)], [(2, 4), (3, 5)]]
    assert anomalies("read-committed-visibility", seen) == []


def test_reads_of_b_during_the_reversal_are_of_b_only() -> None:
    seen = during(
        poll((2, 4), cluster="B", at=610 * SECOND), poll((3, 5), cluster="B", at=630 * SECOND)
    )
    assert of_a(seen) == [[], []]
    assert anomalies("read-committed-visibility", seen) == []


def marks(*rows: tuple[int, int, int, int]) -> Watermarks:
    """(second, LSO, high watermark, leader epoch) of samples of A; each sample takes a second."""
    time, lso, high, epoch = (ints(*column) for column in zip(*rows, strict=True))
    ones = ints(*[1] * len(rows))
    return Watermarks(
        time=time * SECOND, returned=(time + 1) * SECOND, leader=ones, log_start=ones - 1,
        last_stable=lso, high_watermark=high, leader_epoch=epoch,
    )  # fmt: skip


def sampled(
    *rows: tuple[int, int, int, int], earlier: Sequence[Log] | None = None
) -> PartitionView:
    rest: Logs = {} if earlier is None else {"earlier": earlier}
    return during(watermarks={"A": marks(*rows)}, **rest)


def highs(seen: PartitionView) -> list[list[int]]:
    generations = [generation for generation in every(seen) if generation.cluster == "A"]
    found = [marks_in(seen, generation) for generation in generations]
    assert None not in found
    return [[int(high) for high in each.high_watermark] for each in found if each is not None]


@pytest.mark.parametrize(
    ("rows", "old", "new"),
    [
        ([(610, 3, 3, 0), (630, 2, 2, 3)], [3], [2]),
        ([(610, 3, 3, 0), (618, 3, 3, 3), (630, 4, 4, 3)], [3, 3], [4]),
        # It was recorded a moment later, or earlier, than it happened.
        ([(610, 3, 3, 3), (612, 2, 2, 3), (630, 4, 4, 3)], [3], [2, 4]),
        ([(622, 3, 3, 3), (624, 2, 2, 3), (630, 4, 4, 3)], [3], [2, 4]),
        # A request that was in flight when it was recorded, and the next sample has another epoch.
        ([(607, 4, 4, 0), (609, 3, 3, 0), (620, 3, 3, 0), (622, 2, 2, 3)], [4, 3, 3], [2]),
        ([(607, 4, 4, 0), (609, 3, 3, 0), (620, 4, 4, 3), (622, 4, 4, 3)], [4, 3], [4, 4]),
        # One or two later samples that repeat the one before: the log was truncated, and its high
        # watermark was not corrected yet.
        ([(610, 3, 3, 0), (622, 3, 3, 0), (624, 2, 2, 3)], [3, 3], [2]),
        ([(610, 3, 3, 0), (622, 3, 3, 0), (624, 3, 3, 0), (626, 2, 2, 3)], [3, 3, 3], [2]),
        ([(610, 3, 3, 0), (622, 4, 4, 0), (624, 2, 2, 3)], [3], [4, 2]),
        # It was truncated in steps.
        ([(607, 4, 4, 3), (609, 3, 3, 3), (612, 2, 2, 3), (622, 2, 2, 3)], [4, 3], [2, 2]),
        # A step back in an earlier epoch does not belong to it.
        ([(605, 3, 3, 0), (607, 2, 2, 0), (618, 3, 3, 3), (622, 2, 2, 3)], [3, 2, 3], [2]),
    ],
)
def test_a_sample_is_of_one_log_generation(
    rows: list[tuple[int, int, int, int]], old: list[int], new: list[int]
) -> None:
    assert highs(sampled(*rows)) == [old, new]


def test_a_log_may_be_truncated_in_steps_until_it_is_written_down() -> None:
    steps = ((605, 4, 4, 0), (607, 3, 3, 0), (609, 2, 2, 1), (622, 2, 2, 3), (630, 4, 4, 3))
    assert anomalies("last-stable-offset", sampled(*steps)) == []
    reopened = ((605, 4, 4, 0), (607, 1, 3, 0), (609, 1, 3, 0), (622, 2, 2, 3), (630, 4, 4, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*reopened))}
    assert "lso-regression" not in found, "what it is by the bytes, another anomaly says"
    deeper = ((605, 4, 4, 0), (607, 1, 1, 0), (622, 2, 2, 3), (630, 4, 4, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*deeper))}
    assert "high-watermark-regression" in found


def test_a_log_may_be_truncated_between_the_two_requests_of_a_sample() -> None:
    across = ((610, 3, 3, 3), (618, 3, 2, 3), (624, 2, 2, 3), (630, 4, 4, 3))
    assert highs(sampled(*across)) == [[3], [2, 2, 4]]
    assert anomalies("last-stable-offset", sampled(*across)) == []
    # In an earlier step, of a log that ended with a marker that was appended after its capture.
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-reverse-600", at=605)
    early = [(606, 2, 3, 0), (610, 4, 4, 0), (612, 4, 3, 0), (614, 2, 3, 0), (622, 2, 2, 3)]
    assert anomalies("last-stable-offset", sampled(*early, earlier=[old])) == []
    again = [*early[:3], (614, 4, 3, 0), (616, 2, 3, 0), early[-1]]
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*again, earlier=[old]))}
    assert found == {"lso-above-high-watermark", "lso-mismatch"}
    twice = ((610, 3, 3, 3), (618, 3, 2, 3), (624, 3, 2, 3), (630, 4, 2, 3))
    found = {kind for kind, *_ in anomalies("last-stable-offset", sampled(*twice))}
    assert "lso-above-high-watermark" in found


def test_samples_are_judged_while_it_lasts() -> None:
    name = "last-stable-offset"
    assert (
        anomalies(name, sampled((605, 3, 3, 0), (610, 3, 3, 0), (622, 2, 2, 3), (630, 4, 4, 3)))
        == []
    )
    for rows, kind, at in (
        ([(605, 2, 2, 0), (607, 9, 3, 0), (609, 9, 3, 0)], "lso-above-high-watermark", 9),
        ([(605, 3, 3, 0), (607, 1, 3, 0), (609, 3, 3, 0)], "lso-regression", 1),
        ([(622, 2, 2, 3), (626, 9, 4, 3), (630, 9, 4, 3)], "lso-above-high-watermark", 9),
        ([(622, 2, 2, 3), (626, 4, 4, 3), (630, 3, 4, 3)], "lso-mismatch", 3),
        ([(622, 2, 2, 3), (626, 4, 4, 3), (630, 3, 3, 3)], "high-watermark-regression", 3),
    ):
        assert (kind, "A", at) in anomalies(name, sampled(*rows)), rows


def test_no_capture_has_a_marker_appended_before_the_truncation() -> None:
    """A transaction was open when A died; A was restarted, and its coordinator appended an ABORT
    after the capture."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-reverse-600", at=605)
    rows = [(606, 2, 3, 0), (610, 2, 3, 0), (612, 4, 4, 0), (622, 2, 2, 3)]
    assert anomalies("last-stable-offset", sampled(*rows, earlier=[old])) == []
    # The log is truncated in steps: a later sample is below the end of the capture again.
    steps = [(606, 2, 3, 0), (612, 4, 4, 0), (614, 2, 2, 1), (622, 2, 2, 3)]
    assert anomalies("last-stable-offset", sampled(*steps, earlier=[old])) == []
    wrong = [(606, 2, 3, 0), (608, 3, 3, 0), (610, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(
        "last-stable-offset", sampled(*wrong, earlier=[old])
    )


def test_a_capture_from_before_a_restart_judges_no_sample_of_what_was_appended_since() -> None:
    """A was captured when it was lost; it came back by itself, and its coordinator appended an
    ABORT, long before the reversal."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    name = "last-stable-offset"
    first, after = [(505, 2, 3, 0), (508, 2, 3, 0)], [(622, 2, 2, 3), (630, 4, 4, 3)]
    assert anomalies(name, sampled(*first, (560, 4, 4, 0), *after, earlier=[old])) == []
    assert (
        anomalies(name, sampled(*first, (560, 4, 4, 0), (570, 4, 4, 0), *after, earlier=[old]))
        == []
    )
    # As long as nothing was appended, the capture is what was sampled.
    late = [(560, 3, 3, 0), (570, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(
        name, sampled(*first, *late, *after, earlier=[old])
    )
    early = [(505, 3, 3, 0), (508, 3, 3, 0)]
    assert ("lso-mismatch", "A", 3) in anomalies(name, sampled(*early, *after, earlier=[old]))
    high = [(505, 2, 4, 0), (508, 2, 4, 0)]
    found = {kind for kind, *_ in anomalies(name, sampled(*high, *after, earlier=[old]))}
    assert "high-watermark-above-log" in found


@pytest.mark.parametrize(
    ("at", "of", "found"),
    [
        (610, commit(3, cluster="A"), []),
        (610, commit(3, cluster="A", outcome="info"), []),
        # A died before that was read, and what its client was refused stays unread.
        (505, commit(3, cluster="A"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="A", outcome="fail"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="A", ending="abort"), [("phantom-read", "A", 2)]),
        (610, commit(3, cluster="B"), [("phantom-read", "A", 2)]),
        (610, None, [("phantom-read", "A", 2)]),
    ],
)
def test_a_commit_appended_before_the_truncation_is_no_phantom(
    at: int, of: Send | None, found: list[tuple[str, str, int]]
) -> None:
    """A transaction was open when A died; A was restarted for a failback, and its coordinator
    appended the COMMIT after the capture."""
    old = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    sends = [*ACKED[:1], *ACKED[2:], *([] if of is None else [of])]
    seen = trip(
        windows=[LASTS],
        truncations=[TRUNCATED],
        reads=[poll((2, 3), at=at * SECOND)],
        earlier=[old],
        sends=sends,
    )
    assert anomalies("read-committed-visibility", seen) == found
    examined = [f for f in kernel(seen) if isinstance(f, Examined) and f.cluster == "A"]
    assert bool(examined) == bool(found), "what cannot be judged is not examined"


def test_a_log_that_was_never_truncated_has_one_generation() -> None:
    seen = view([on_a(), on_b()], reads=[OLD, NEW])
    assert of_a(seen) == [[(2, 3), (2, 4), (3, 5)]]
    assert before().end == 3


def eras_of(seen: PartitionView, cluster: str) -> list[tuple[str, str, str, int, int]]:
    return [
        (e.origin, e.owner, e.source, e.start, e.end)
        for e in history(seen.partition_facts).generations[cluster][-1].eras
    ]


def kept(
    *promotions: LogPromotion, windows: Sequence[Window] = (), topology: str = "A->B"
) -> PartitionView:
    return view([], mirror_kind="shadow", promotions=promotions, windows=windows, topology=topology)


HOME = [promoted(3), promoted(7, kind="planned", source="B", cluster="A", at=700 * SECOND)]
ONCE_MORE = promoted(9, at=900 * SECOND)


def test_the_home_cluster_is_native_throughout() -> None:
    seen = view([Log("A")], promotions=[promoted(3)])
    assert eras_of(seen, "A") == [("native", "A", "", 0, FOREVER)]


def test_a_destination_is_mirrored_until_it_is_promoted() -> None:
    assert eras_of(view([Log("B")]), "B") == [("mirrored", "A", "A", 0, FOREVER)]
    seen = view([Log("B")], promotions=[promoted(3)])
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, FOREVER)]


def test_a_cluster_that_was_given_up_follows_the_promoted_one() -> None:
    seen = kept(promoted(3), windows=[reversed_("A->B", at=600)])
    assert eras_of(seen, "A") == [("native", "A", "", 0, 3), ("mirrored", "B", "B", 3, FOREVER)]


def test_there_and_back() -> None:
    seen = kept(*HOME, windows=[reversed_("A->B", at=600)])
    assert eras_of(seen, "A") == [
        ("native", "A", "", 0, 3),
        ("mirrored", "B", "B", 3, 7),
        ("native", "A", "", 7, FOREVER),
    ]
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, FOREVER)]


def test_there_and_back_and_there_again() -> None:
    seen = kept(*HOME, ONCE_MORE, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    first = [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, 7), ("mirrored", "A", "A", 7, 9)]
    assert eras_of(seen, "B") == [*first, ("native", "B", "", 9, FOREVER)]


def test_generations_end_where_a_log_is_truncated() -> None:
    seen = kept(*HOME, ONCE_MORE, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    generations = history(seen.partition_facts).generations
    assert [
        (generation.truncated_to, generation.lost, generation.before, generation.last)
        for generation in generations["A"]
    ] == [
        (3, 500 * SECOND, "1-reverse-600", False),
        (FOREVER, 900 * SECOND, "", True),
    ]
    assert [
        (generation.truncated_to, generation.lost, generation.last)
        for generation in generations["B"]
    ] == [
        (7, None, False),
        (FOREVER, None, True),
    ]
    assert [(generation.began, generation.ended) for generation in generations["A"]] == [
        (0, 600 * SECOND),
        (601 * SECOND, FOREVER),
    ]


def test_mirrored_ranges_are_the_offsets_that_each_mirror_copied() -> None:
    seen = kept(*HOME, ONCE_MORE, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    crossed = [
        (c.source, c.destination, c.start, c.end, c.generation, c.source_generation)
        for c in history(seen.partition_facts).mirrored_ranges
    ]
    assert crossed == [("A", "B", 0, 3, 0, 0), ("B", "A", 3, 7, 1, 0), ("A", "B", 7, 9, 1, 1)]


def test_a_chain_continues_after_a_promoted_cluster() -> None:
    seen = kept(promoted(3), topology="A->B->C")
    assert eras_of(seen, "C") == [("mirrored", "A", "B", 0, 3), ("mirrored", "B", "B", 3, FOREVER)]
    seen = kept(
        promoted(3), promoted(5, source="B", cluster="C", at=800 * SECOND), topology="A->B->C"
    )
    assert eras_of(seen, "C") == [
        ("mirrored", "A", "B", 0, 3),
        ("mirrored", "B", "B", 3, 5),
        ("native", "C", "", 5, FOREVER),
    ]
    assert [
        (c.source, c.destination, c.end) for c in history(seen.partition_facts).mirrored_ranges
    ] == [
        ("A", "B", 3),
        ("B", "C", 5),
    ]


def test_offsets_of_a_mirror_that_moves_them_mean_nothing_further_down() -> None:
    seen = view([], promotions=[promoted(3)], topology="A->B->C")
    assert eras_of(seen, "C") == [("mirrored", "A", "B", 0, FOREVER)]


def test_a_cluster_that_follows_with_other_offsets_is_emptied_and_copied_again() -> None:
    turns = [reversed_("A->B", at=600), reversed_("B->A", at=800)]
    seen = view([], promotions=[*HOME, ONCE_MORE], windows=turns)
    assert eras_of(seen, "A") == [("mirrored", "B", "B", 0, 7), ("native", "A", "", 7, FOREVER)]
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 9), ("native", "B", "", 9, FOREVER)]
    past = history(seen.partition_facts)
    assert [generation.truncated_to for generation in past.generations["A"]] == [0, FOREVER]
    assert [(e.origin, e.start, e.end) for e in past.generations["A"][0].eras] == [
        ("native", 0, FOREVER)
    ]
    crossed = [
        (c.source, c.destination, c.start, c.end, c.generation, c.source_generation)
        for c in past.mirrored_ranges
    ]
    assert crossed == [("A", "B", 0, 3, 0, 0), ("B", "A", 0, 7, 1, 0), ("A", "B", 0, 9, 1, 1)]


def test_a_reversal_of_a_link_that_was_not_failed_over_changes_nothing() -> None:
    assert eras_of(kept(windows=[reversed_("A->B", at=600)]), "A") == [
        ("native", "A", "", 0, FOREVER)
    ]


def test_only_a_forced_failover_gives_a_cluster_up() -> None:
    assert (
        history(kept(promoted(3, kind="planned")).partition_facts).generations["A"][0].lost is None
    )
    assert history(kept(promoted(3, at=7)).partition_facts).generations["A"][0].lost == 7


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        # The elected leader lacked 3, and its coordinator appended a marker in its place.
        ([(400, 2, 2, 0), (598, 3, 3, 1), (599, 3, 3, 1)], []),
        # 3 was committed, and another leader must have it.
        ([(400, 2, 3, 0), (598, 3, 3, 1), (599, 3, 3, 1)], [("lso-mismatch", "A", 3)]),
        # The same leader has it.
        ([(400, 2, 2, 0), (598, 3, 3, 0), (599, 3, 3, 0)], [("lso-mismatch", "A", 3)]),
    ],
    ids=["another leader", "committed before", "the same leader"],
)
def test_samples_of_a_restarted_cluster_are_not_held_against_what_only_its_dead_leader_had(
    rows: list[tuple[int, int, int, int]], found: list[tuple[str, str, int]]
) -> None:
    """A died at second 500 with the open transaction of 3 at offset 2, was captured at 510, and was
    started again to be truncated at 600."""
    dead = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    judged = anomalies("last-stable-offset", sampled(*rows, earlier=[dead]))
    assert judged[:1] == found


def test_samples_of_a_restarted_cluster_are_held_against_its_capture_before_the_truncation() -> (
    None
):
    dead = Log("A").data(1).data(2).txn(3, pid=7, end=None).taken("1-away", at=510)
    restarted = Log("A").data(1).data(2).marker("abort", pid=7).taken("1-reverse-600", at=599)
    for lso, found in ((3, []), (2, [("lso-mismatch", "A", 2)])):
        rows = [(400, 2, 2, 0), (597, lso, 3, 1), (598, lso, 3, 1)]
        judged = anomalies("last-stable-offset", sampled(*rows, earlier=[dead, restarted]))
        assert judged[:1] == found
