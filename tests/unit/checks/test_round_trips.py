"""Several promotions: every check accepts a faithful round trip and a faithful chain, and finds the
errors in others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Promotion, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.kafka_log import crc_with_id
from tests.unit.checks.clients import commit, poll, send
from tests.unit.checks.histories import WholeHistory, promoted, reversed_, samples, view
from tests.unit.checks.logs import SECOND, Log, uid
from tests.unit.checks.round_trip import ACKED, AWAY, BACK, before, home_again, on_a, on_b, trip
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

    promotions: Sequence[Promotion]
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
