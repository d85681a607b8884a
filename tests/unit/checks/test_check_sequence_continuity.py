"""sequence-continuity: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.unit.checks.histories import SECOND, History, Log, Sent, but, promoted, send, uid, view
from tests.unit.checks.round_trip import AWAY, BACK, home_again
from tests.unit.checks.verdicts import Rejected, anomalies, assert_rejected, findings, unjudged

NAME = "sequence-continuity"
ACCEPTED = {
    "in turn": (view([Log("A").data(1, 2, pid=7).data(3, pid=8).data(4, pid=7)]), {"A/native": 3}),
    "from 0 in a new epoch": (
        view([Log("A").data(1, pid=7).data(2, pid=7, epoch=1)]),
        {"A/native": 2},
    ),
    "from 0 with another id, the epochs of the first used up": (
        view([Log("A").txn(1, pid=7, epoch=32766, marker_epoch=32767).txn(2, pid=8)]),
        {"A/native": 2},
    ),
    "wraps": (
        view([Log("A", start=5).data(1, pid=7, sequence=2**31 - 1).data(2, pid=7, sequence=0)]),
        {"A/native": 2},
    ),
    "a deleted start": (view([Log("A", start=5).data(1, pid=7, sequence=9)]), {"A/native": 1}),
    "from 0 behind a reset": (
        view([Log("A").data(1, pid=7).marker("reset", pid=-1).data(2, pid=7, sequence=0)]),
        {"A/native": 2},
    ),
    "plain": (view([Log("A").data(1).data(2)]), {}),
}
REJECTS = {
    "sequence-gap": Rejected(view([Log("A").data(1, 2, pid=7).data(3, pid=7, sequence=3)]), "A", 2),
    "sequence-repeat": Rejected(
        view([Log("A").data(1, 2, pid=7).data(1, 2, pid=7, sequence=0)]), "A", 2
    ),
    "sequence-start": Rejected(view([Log("A").data(1, pid=7, sequence=3)]), "A", 0),
    "no-sequence": Rejected(view([Log("A").data(1, pid=7, sequence=-1)]), "A", 0),
    "epoch-regression": Rejected(
        view([Log("A").data(1, pid=7, epoch=1).data(2, pid=7, epoch=0)]), "A", 1
    ),
}


def test_a_new_epoch_that_does_not_begin_at_zero() -> None:
    seen = view([Log("A").data(1, pid=7).data(2, pid=7, epoch=1, sequence=4)])
    assert_rejected(NAME, "sequence-start", Rejected(seen, "A", 1))


def follower(*, first: int = 1, pid: int = 7, epoch: int = 0, crc: int = 55) -> Log:
    """B has one record of A's producer 7, a reset, and one record of its own producer."""
    return (
        Log("B")
        .data(1, pid=7)
        .marker("reset", pid=-1)
        .data(2, pid=pid, epoch=epoch, sequence=first, crc=crc)
    )


def alone(log: Log) -> PartitionView:
    """The log of one cluster, without any promotion."""
    return view([log], topology=f"{log.cluster}->Z", topic=f"{log.cluster}.t")


def promoted_b(b: Log, **rest: Unpack[History]) -> PartitionView:
    given: History = {"mirror_kind": "exact", "promotions": [promoted(1)]}
    return view([Log("A").data(1, pid=7), b], **(given | rest))


@pytest.mark.parametrize(
    ("first", "pid", "epoch"),
    [(1, 7, 0), (3, 7, 0), (1, 8, 0), (1, 7, 1)],
    ids=["goes on", "further", "other id", "other epoch"],
)
def test_behind_a_reset_an_id_begins_at_zero(first: int, pid: int, epoch: int) -> None:
    seen = promoted_b(follower(first=first, pid=pid, epoch=epoch))
    for each in (seen, but(seen, recorded=False)):
        assert_rejected(NAME, "sequence-start", Rejected(each, "B", 2))


def test_behind_a_reset_an_id_may_come_again_from_zero() -> None:
    assert anomalies(NAME, promoted_b(follower(first=0))) == []


def test_late_sequence_start_is_found_in_one_log_alone() -> None:
    assert anomalies(NAME, alone(follower())) == [("sequence-start", "B", 2)]


def test_a_batch_that_was_mirrored_is_there_again_behind_the_reset() -> None:
    b = (
        Log("B")
        .data(1, pid=7)
        .marker("reset", pid=-1)
        .data(2, pid=7, sequence=0, crc=77)
        .data(1, pid=7, sequence=0, crc=1000)
    )
    for each in (promoted_b(b), alone(b)):
        assert ("sequence-repeat", "B", 3) in anomalies(NAME, each)


def test_a_deleted_beginning_excuses_only_what_it_may_have_held() -> None:
    b = Log("B", start=1).data(1, pid=7).marker("reset", pid=-1).data(2, pid=8, sequence=4)
    assert anomalies(NAME, but(promoted_b(b), promotions=[promoted(2)])) == [
        ("sequence-start", "B", 3)
    ]
    assert anomalies(NAME, alone(b)) == []


def home(*, first: int, pid: int = 7, epoch: int = 0) -> Log:
    """A has two records of its own, B's records (producer 7 too), and then another of its own;
    resets are between them."""
    a = Log("A").data(1, pid=7).data(2, pid=7).marker("reset", pid=-1)
    a.data(4, pid=7, sequence=0, crc=44).marker("reset", pid=-1)
    return a.data(6, pid=pid, epoch=epoch, sequence=first, crc=66)


def trip(a: Log, **rest: Unpack[History]) -> PartitionView:
    b = (
        Log("B")
        .data(1, pid=7)
        .data(2, pid=7)
        .marker("reset", pid=-1)
        .data(4, pid=7, sequence=0, crc=44)
    )
    given: History = {"mirror_kind": "exact", "promotions": [AWAY, home_again()], "windows": [BACK]}
    return view([a, b], **(given | rest))


@pytest.mark.parametrize("first", [2, 5], ids=["goes on", "its tail was truncated"])
def test_a_session_that_outlives_a_failback_goes_on(first: int) -> None:
    assert anomalies(NAME, trip(home(first=first))) == []
    assert anomalies(NAME, alone(home(first=first))) == []


@pytest.mark.parametrize("first", [0, 1])
def test_a_session_that_outlives_a_failback_repeats_nothing(first: int) -> None:
    assert anomalies(NAME, trip(home(first=first))) == [("sequence-repeat", "A", 5)]


def test_a_sequence_below_the_former_session_is_not_its_continuation() -> None:
    """After two resets the batch may be A's, which had 0 and 1, or another cluster's, which begins
    at 0: neither begins at 1."""
    assert anomalies(NAME, alone(home(first=1))) == [("sequence-start", "A", 5)]


def test_a_session_with_a_truncated_beginning_is_known_by_what_was_captured() -> None:
    seen = trip(home(first=3, pid=8))
    tail = Log("A").data(1, pid=7).data(2, pid=7).data(3, pid=8).taken("1-away", at=510)
    other = Log("A").data(1, pid=7).data(2, pid=7).data(3, pid=9).taken("1-away", at=510)
    assert anomalies(NAME, replace(seen, earlier=[tail.replica()])) == []
    assert anomalies(NAME, replace(seen, earlier=[other.replica()])) == [("sequence-start", "A", 5)]
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == [
        "1 sequences of A begin above 0 where a log goes on that may have been truncated: "
        "what came before was truncated, or acknowledged and never appended"
    ]


def test_a_session_of_another_cluster_that_goes_on_is_no_tail() -> None:
    a = (
        Log("A")
        .data(1, pid=9)
        .data(2, pid=9)
        .marker("reset", pid=-1)
        .data(4, pid=7, sequence=0, crc=44)
        .marker("reset", pid=-1)
    )
    seen = trip(a.data(6, pid=7, sequence=1, crc=66))
    assert anomalies(NAME, seen) == [("sequence-start", "A", 5)]


@pytest.mark.parametrize(("unclear", "reasons"), [({}, 1), ({"B": 3}, 0)])
def test_era_without_its_promotion_mark_may_begin_below_the_log_start(
    unclear: dict[str, int], reasons: int
) -> None:
    """B's log begins at offset 3, perhaps already in its own era, with sequence 5 of its own
    producer."""
    logs = [
        Log("A").data(1).data(2).data(3),
        Log("B", start=3).data(4, pid=7, sequence=5).data(5, pid=7),
    ]
    seen = view(logs, promotions=[promoted(3)], mirror_kind="exact")
    seen = but(seen, unclear=unclear, recorded=False)
    assert (anomalies(NAME, seen), len(unjudged(NAME, seen))) == ([], reasons)


def refused(*numbers: int, **rest: Unpack[Sent]) -> Send:
    """Records of a producer that its client got no acknowledgement of."""
    process = rest.get("process", 1)
    given: Sent = {
        "outcome": "fail", "process": process, "producer_id": 7, "invoked": 10 * SECOND,
        "returned": 130 * SECOND,
    }  # fmt: skip
    given.update(rest)
    return send(*(uid(process, n) for n in numbers), **given)


def accepted() -> Send:
    return send(uid(1, 3), acked=1, process=1, invoked=11 * SECOND, returned=12 * SECOND)


def why(*sends: Send, kafka: str = "4.3.1", at: int = 1, sequence: int = 2) -> str | None:
    """Why the first batch of producer 7, its third record, may begin at a sequence above 0."""
    log = Log("A").data(90).data(uid(1, 3), pid=7, sequence=sequence)
    if at == 0:
        log = Log("A").data(uid(1, 3), pid=7, sequence=sequence)
    seen = view([log], sends=sends)
    clusters = (ClusterSpec(name="A", kafka=kafka), ClusterSpec(name="B"))
    topology = Topology(clusters=clusters, links=(LinkSpec(source="A", destination="B"),))
    seen = but(seen, topology=topology)
    (found,) = findings(NAME, seen)
    assert found.kind == "sequence-start"
    anomaly = Anomaly(
        check=NAME, kind=found.kind, cluster=found.cluster, topic="A.t", partition=0,
        offset=found.offset, evidence=found.evidence,
    )  # fmt: skip
    guarantee = declared(MirrorSpec(kind="none")).guarantee
    return why_allowed(anomaly, guarantee, "", [])


def test_a_broker_without_state_accepts_any_first_sequence() -> None:
    assert why(refused(1, 2), accepted()) == (
        "a broker that does not know a producer accepts any first sequence (KAFKA-15591); 2 records"
        f" of client from #{uid(1, 1)} on had not been acknowledged"
    )
    assert why(refused(1), refused(2), accepted())
    assert why(refused(1, 2, outcome="info", returned=-1), accepted())


@pytest.mark.parametrize(
    "sends",
    [
        (accepted(),),
        (refused(2), accepted()),
        (refused(0, 1), refused(2, offsets=[0], outcome="ok"), accepted()),
        (refused(1, 2, offsets=[5, -1], outcome="ok"), accepted()),
        (refused(1, 2, returned=10 * SECOND), accepted()),
        (refused(1, 2, cluster="B"), accepted()),
        (refused(1, 2, process=2), accepted()),
        (refused(1, 2, producer_id=8), accepted()),
        (refused(4, 5), accepted()),
        (refused(1, 2),),
    ],
    ids=[
        "nothing was refused", "fewer than are missing", "the one before was acknowledged",
        "one was acknowledged", "given up before", "on another cluster", "of another client",
        "of another producer", "sent later", "the batch was not sent",
    ],
)  # fmt: skip
def test_a_first_sequence_above_zero_is_allowed_for_no_other_reason(
    sends: tuple[Send, ...],
) -> None:
    assert why(*sends) is None


@pytest.mark.parametrize(
    ("kafka", "at", "allowed"),
    [
        ("2.4.1", 1, False),
        ("2.5.0", 0, True),
        ("4.4.0", 0, True),
        ("4.5.0", 0, False),
        ("4.5.0", 1, True),
        ("/opt/kafka", 0, True),
    ],
)
def test_gap_after_refused_records_is_allowed_for_releases_that_make_it(
    kafka: str, at: int, allowed: bool
) -> None:
    assert (why(refused(1, 2), accepted(), kafka=kafka, at=at) is not None) == allowed


def test_more_is_missing_than_was_refused() -> None:
    assert why(refused(1, 2), accepted(), sequence=3) is None


def test_records_that_are_there_elsewhere_were_not_refused() -> None:
    log = Log("A").data(uid(1, 2)).data(uid(1, 3), pid=7, sequence=2)
    (found,) = findings(NAME, view([log], sends=[refused(1, 2), accepted()]))
    assert "not_acknowledged" not in found.evidence


def test_records_that_another_cluster_has_were_not_refused() -> None:
    a = Log("A").data(uid(1, 2), pid=7, sequence=1).data(uid(1, 3), pid=7, sequence=2)
    b = Log("B").data(uid(1, 3), pid=7, sequence=2)
    found = findings(NAME, view([a, b], sends=[refused(1, 2), accepted()]))
    (of_b,) = (each for each in found if each.cluster == "B")
    assert "not_acknowledged" not in of_b.evidence


@pytest.mark.parametrize(("how", "pid"), [("keep", 7), ("complement", 2**63 - 1 - 8)])
def test_records_refused_at_the_source_explain_the_gap_on_the_mirror(how: str, pid: int) -> None:
    logs = [
        Log(cluster).data(90).data(uid(1, 3), pid=number, sequence=2)
        for cluster, number in (("A", 7), ("B", pid))
    ]
    sends = [refused(1, 2), accepted()]
    seen = view(logs, sends=sends, mirror_kind="shadow", mirror={"producer_ids": how})
    both = findings(NAME, seen)
    assert [(each.cluster, each.evidence["not_acknowledged"]) for each in both] == [
        ("A", 2), ("B", 2),
    ]  # fmt: skip


def test_late_sequence_start_without_a_history_may_be_a_refused_record() -> None:
    log = Log("A").data(90).data(1, pid=7, sequence=2)
    seen = but(view([log]), recorded=False)
    assert (anomalies(NAME, seen), anomalies(NAME, view([log]))) == (
        [], [("sequence-start", "A", 1)],
    )  # fmt: skip
    assert any("KAFKA-15591" in reason for reason in unjudged(NAME, seen))


def test_a_broker_that_knows_the_producer_of_a_mirrored_batch_refuses_nothing_of_its_id() -> None:
    """B has A's producer 7, and one of its own with this id, whose first records it acknowledged as
    repeats (Redpanda, pull request 31659)."""
    b = Log("B").data(uid(1, 0), pid=7).data(uid(2, 3), pid=7, sequence=2)
    sends = [
        refused(1, 2, process=2, cluster="B"),
        send(uid(2, 3), acked=1, process=2, cluster="B", invoked=11 * SECOND, returned=12 * SECOND),
    ]
    a = Log("A").data(uid(1, 0), pid=7)
    seen = view([a, b], mirror_kind="exact", promotions=[promoted(1)], sends=sends)
    for each in (seen, but(seen, recorded=False)):
        (found,) = findings(NAME, each)
        assert (found.kind, found.offset) == ("sequence-start", 1)
        assert "not_acknowledged" not in found.evidence


def test_a_new_epoch_begins_at_zero_whatever_was_refused() -> None:
    """A broker that has state of a producer accepts no other first sequence of a new epoch."""
    log = Log("A").data(uid(1, 0), pid=7).data(uid(1, 3), pid=7, epoch=1, sequence=2)
    (found,) = findings(NAME, view([log], sends=[refused(1, 2), accepted()]))
    assert "not_acknowledged" not in found.evidence
