"""marker-pairing: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np
import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.spark_verify.facts.partition_facts import MirrorStop, TopicSettings, Window
from linkflap.spark_verify.facts.view import NO_EPOCH, PartitionView
from linkflap.topologies import parse
from tests.unit.checks.histories import (
    SECOND,
    Header,
    History,
    Log,
    but,
    mirror_stop,
    promoted,
    send,
    view,
)
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged


def pair(a: Log, b: Log, **rest: Unpack[History]) -> PartitionView:
    given: History = {"mirror_kind": "exact", "promotions": [promoted(1)]}
    return view([a, b], **(given | rest))


LEFT = pair(
    Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).marker("reset", pid=-1)
)


SPLIT = pair(Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end="abort"))


NAME = "marker-pairing"
ACCEPTED = {
    "transactions v1": (view([Log("A").txn(1, pid=7).txn(2, pid=7)]), {"A/native": 2}),
    "transactions v2": (
        view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, epoch=1, marker_epoch=2)]),
        {"A/native": 2},
    ),
    "transactions v2, the epochs used up: another id from then on": (
        view(
            [Log("A").txn(1, pid=7, epoch=32766, marker_epoch=32767).txn(2, pid=8, marker_epoch=1)]
        ),
        {"A/native": 2},
    ),
    "fenced": (
        view([Log("A").txn(1, pid=7, end="abort", marker_epoch=3).txn(2, pid=7, epoch=4)]),
        {"A/native": 2},
    ),
    "empty markers": (
        view([Log("A").marker("commit", pid=7).txn(1, pid=7).marker("abort", pid=7)]),
        {"A/native": 1},
    ),
    "open at the end": (view([Log("A").txn(1, pid=7, end=None)]), {"A/native": 1}),
    "others in between": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .txn(2, pid=8)
                .data(3, pid=7, transactional=True, operation=1)
                .marker("commit", pid=7)
            ]
        ),
        {"A/native": 2},
    ),
    "no transactions": (view([Log("A").data(1, pid=7).data(2, pid=7)]), {}),
    "not ours": (view([Log("A").txn(-1, pid=7, end=None).txn(-1, -1, pid=7)]), {"A/native": 1}),
    "a mirror's own": (
        view(
            [Log("A"), Log("B").txn(1, pid=5, end=None).txn(2, pid=5).data(3)],
            promotions=[promoted(3)],
        ),
        {"B/mirrored": 1},
    ),
    "left open, fenced by a successor": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .marker("abort", pid=7, epoch=1)
                .txn(2, pid=7, epoch=2, end=None)
            ]
        ),
        {"A/native": 2},
    ),
    "begun anew after a reset (KIP-1279)": (
        view([Log("A").txn(1, pid=7, epoch=1).marker("reset", pid=-1, epoch=-1).txn(2, pid=7)]),
        {"A/native": 2},
    ),
    "open where it is still mirrored": (
        view(
            [Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None)],
            mirror_kind="shadow",
        ),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "aborted by the mirror that ended": (
        view(
            [
                Log("A").txn(1, pid=7, end=None),
                Log("B").txn(1, pid=7, end="abort").marker("reset", pid=-1).txn(2, pid=7, end=None),
            ],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"A/native": 1, "B/mirrored": 1, "B/native": 1},
    ),
    "aborted on both": (
        view(
            [
                Log("A").txn(1, pid=7, end="abort"),
                Log("B").txn(1, pid=7, end="abort", marker_epoch=1),
            ],
            mirror_kind="shadow",
        ),
        {"A/native": 1, "B/mirrored": 1},
    ),
    "stable up to what is open": (
        view([Log("A").txn(1, pid=7).txn(2, pid=8, end=None).data(3).answered(2, above=4)]),
        {"A/native": 2},
    ),
    "ended after it was asked": (
        view([Log("A").txn(1, pid=7).answered(0, above=1)]),
        {"A/native": 1},
    ),
    "asked when there was more": (
        view([Log("A").txn(1, pid=7).answered(9, above=2)]),
        {"A/native": 1},
    ),
    "coordinators in turn": (
        view(
            [
                Log("A")
                .txn(1, pid=7, end=None)
                .marker("commit", pid=7, coordinator_epoch=4)
                .txn(2, pid=8)
            ]
        ),
        {"A/native": 2},
    ),
    "coordinators of two clusters": (
        view(
            [
                Log("A").txn(1, pid=7, end=None),
                Log("B").txn(1, pid=7, end=None).marker("abort", pid=7).txn(2, pid=7, end=None),
            ],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"A/native": 1, "B/mirrored": 1, "B/native": 1},
    ),
    "ids that clash over a promotion": (
        view(
            [Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)],
            mirror_kind="shadow",
            promotions=[promoted(1)],
        ),
        {"B/mirrored": 1},
    ),
}


REJECTS = {
    "marker-epoch": Rejected(view([Log("A").txn(1, pid=7, epoch=2, marker_epoch=1)]), "A", 1),
    "marker-missing": Rejected(
        view([Log("A").txn(9, pid=7).txn(1, pid=7, end=None).txn(2, pid=7)]), "A", 2
    ),
    "transaction-left-open": Rejected(LEFT, "B", 0),
    "stable-offset-stuck": Rejected(view([Log("A").txn(1, pid=7).answered(0, above=2)]), "A", 0),
    "outcome-split": Rejected(SPLIT, "B", 1),
    "impossible-header": Rejected(view([Log("A").data(1, transactional=True)]), "A", 0),
    "not-transactional": Rejected(view([Log("A").data(1, pid=7).marker("commit", pid=7)]), "A", 0),
    "coordinator-epoch-regression": Rejected(
        view(
            [
                Log("A")
                .data(1, pid=7, transactional=True)
                .marker("commit", pid=7, coordinator_epoch=4)
                .txn(2, pid=7)
            ]
        ),
        "A",
        3,
    ),
    "stale-data": Rejected(
        view([Log("A").txn(1, pid=7, marker_epoch=1).txn(2, pid=7, end=None)]), "A", 2
    ),
}


def test_a_new_epoch_without_a_marker() -> None:
    seen = view([Log("A").txn(1, pid=7, end=None).txn(2, pid=7, epoch=1, end=None)])
    assert anomalies(NAME, seen) == [("marker-missing", "A", 0)]


def test_each_operation_without_a_marker_is_one_anomaly_that_names_the_next() -> None:
    log = (
        Log("A")
        .txn(1, 2, pid=7, end=None)
        .txn(20, pid=8)
        .data(3, pid=7, transactional=True, operation=1)
    )
    log.txn(4, pid=7, end=None).txn(5, pid=7, end=None)
    found = findings(NAME, view([log]))
    assert [(f.kind, f.offset) for f in found] == [("marker-missing", 0), ("marker-missing", 5)]
    assert [f.evidence for f in found] == [
        {"producer_id": 7, "records": 3, "operations": [1, 4], "next_offset": 5},
        {"producer_id": 7, "records": 1, "operations": [4, 5], "next_offset": 6},
    ]


def test_a_mirror_that_keeps_bytes_keeps_markers() -> None:
    seen = view([Log("A"), Log("B").txn(1, pid=7, end=None).txn(2, pid=7)], mirror_kind="shadow")
    assert anomalies(NAME, seen) == [("marker-missing", "B", 0)]


def test_natively_on_a_promoted_cluster() -> None:
    seen = view(
        [Log("A"), Log("B").data(9).txn(1, pid=7, end=None).txn(2, pid=7)], promotions=[promoted(1)]
    )
    assert anomalies(NAME, seen) == [("marker-missing", "B", 1)]


def test_transaction_left_open_is_found_in_one_log_alone() -> None:
    seen = view(
        [Log("B").txn(1, pid=7, end=None).marker("reset", pid=-1)], topology="B->C", topic="B.t"
    )
    assert anomalies(NAME, seen) == [("transaction-left-open", "B", 0)]


def test_a_marker_behind_the_reset_ends_nothing_before_it() -> None:
    """B hands the id out again: its own producer's transaction is committed, and A's stays open."""
    b = (
        Log("B")
        .txn(1, pid=7, end=None)
        .marker("reset", pid=-1)
        .data(2, pid=7, sequence=0, transactional=True)
    )
    seen = pair(Log("A").txn(1, pid=7, end=None), b.marker("commit", pid=7))
    assert anomalies(NAME, seen) == [("transaction-left-open", "B", 0)]
    assert findings(NAME, seen)[0].evidence == {
        "producer_id": 7, "producer_epoch": 0, "last_offset": 0, "reset_offset": 1, "log_end": 4,
    }  # fmt: skip


def test_open_transaction_of_copied_logs_without_a_reset_is_unjudged() -> None:
    seen = but(
        pair(Log("A").txn(1, pid=7, end=None), Log("B").txn(1, pid=7, end=None).data(2)),
        recorded=False,
    )
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == [
        "1 transactions were open where B was promoted, and have no marker: it may be on its way"
    ]


def test_a_mirrors_abort_is_of_no_coordinator_where_no_promotion_is_known() -> None:
    def log(**header: Unpack[Header]) -> Log:
        log = (
            Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7, coordinator_epoch=4)
        )
        return log.data(2, pid=7, transactional=True).marker("abort", pid=7, **header)

    raised = view([log(leader_epoch=9)])
    assert anomalies(NAME, raised) == [("coordinator-epoch-regression", "A", 3)]
    assert anomalies(NAME, but(raised, recorded=False)) == []
    assert anomalies(NAME, but(view([log()]), recorded=False)) == [
        ("coordinator-epoch-regression", "A", 3)
    ]


@pytest.mark.parametrize(("copied", "forced"), [(0, True), (3, False)])
def test_a_split_is_a_failovers_only_if_the_commit_was_behind_all_that_was_mirrored(
    copied: int, forced: bool
) -> None:
    theirs, ours = Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end=None)
    for each in range(copied):
        theirs = theirs.data(10 + each)
        ours = (ours if each else ours.skip(1)).data(10 + each)
    promotions = [promoted(ours.end)]
    (found,) = [
        each
        for each in findings(NAME, pair(theirs, ours.marker("abort", pid=7), promotions=promotions))
        if each.kind == "outcome-split"
    ]
    assert ("failover" in found.evidence) == forced


def test_a_split_outcome_names_both_markers() -> None:
    assert findings(NAME, SPLIT)[0].evidence == {
        "producer_id": 7, "producer_epoch": 0, "first_offset": 0, "source": "A", "source_marker": 1,
        "outcomes": ["COMMIT", "ABORT"], "failover": "forced",
        "not_arrived": "COMMIT at offset 1 of A",
    }  # fmt: skip


def stopped(mirrored: int) -> MirrorStop:
    """The mirror ended with the run, and aborted open transactions."""
    appended = ((1, "ABORT of producer 7, epoch 0"),)
    return mirror_stop(mirrored, 2, *appended, time=900 * SECOND)


@pytest.mark.parametrize(
    ("seen", "failover"),
    [
        (but(SPLIT, recorded=False), None),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[promoted(1, kind="planned")],
            ),
            "planned",
        ),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[promoted(2)],
            ),
            None,
        ),
        (pair(Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end="abort"), promotions=[]), None),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[],
                stops=[stopped(1)],
            ),
            "run-end",
        ),
        (
            pair(
                Log("A").txn(1, pid=7),
                Log("B").txn(1, pid=7, end="abort"),
                promotions=[],
                stops=[stopped(2)],
            ),
            None,
        ),
        (pair(Log("A").txn(1, pid=7, end="abort"), Log("B").txn(1, pid=7)), None),
    ],
    ids=[
        "copied",
        "planned",
        "mirrored marker",
        "no promotion",
        "behind at the end",
        "not behind at the end",
        "committed there",
    ],
)
def test_only_transactions_open_at_the_end_of_a_lagging_mirror_are_allowed(
    seen: PartitionView, failover: str | None
) -> None:
    assert anomalies(NAME, seen) == [("outcome-split", "B", 1)]
    assert findings(NAME, seen)[0].evidence.get("failover") == failover


@pytest.mark.parametrize(
    "other",
    [
        Log("B").txn(2, pid=8, end="abort"),
        Log("B").txn(1, pid=7, epoch=1, end="abort"),
        Log("B").data(0).txn(1, pid=7),
    ],
)
def test_another_transaction_may_have_another_outcome(other: Log) -> None:
    assert anomalies(NAME, pair(Log("A").txn(1, pid=7), other)) == []


def test_ids_that_a_mirror_maps_are_of_one_transaction() -> None:
    seen = pair(
        Log("A").txn(1, pid=7),
        Log("B").txn(1, pid=2**63 - 9, end="abort"),
        mirror={"producer_ids": "complement"},
    )
    assert anomalies(NAME, seen) == [("outcome-split", "B", 1)]


def test_a_batch_that_rotted_may_have_been_another_producers() -> None:
    """The bytes of 2 and 3 are damaged: the producer epochs in their headers prove nothing."""
    rotten = (
        Log("A")
        .txn(1, pid=7, epoch=1, end=None)
        .data(2, pid=7, epoch=9, transactional=True, crc_ok=False)
    )
    rotten.marker("commit", pid=7, epoch=1).data(3, pid=7, epoch=0, crc_ok=False)
    assert anomalies(NAME, view([rotten])) == []
    whole = (
        Log("A")
        .txn(1, pid=7, epoch=1, end=None)
        .data(2, pid=7, epoch=9, transactional=True)
        .marker("commit", pid=7, epoch=1)
    )
    found = {kind for kind, *_ in anomalies(NAME, view([whole.data(3, pid=7, epoch=0)]))}
    assert found >= {"marker-epoch", "stale-data"}


def test_without_a_marker_the_kind_that_an_id_has_less_of_is_wrong() -> None:
    mixed = (
        Log("A")
        .data(1, pid=7, transactional=True)
        .data(2, pid=7, transactional=True, operation=1)
        .data(3, pid=7)
    )
    assert anomalies(NAME, view([mixed])) == [("not-transactional", "A", 2)]
    mixed = Log("A").data(1, pid=7, transactional=True).data(2, pid=7).data(3, pid=7)
    assert anomalies(NAME, view([mixed])) == [("not-transactional", "A", 0)]


@pytest.mark.parametrize(("rotten", "found"), [(False, [("stale-data", "A", 2)]), (True, [])])
def test_a_damaged_marker_fences_no_producer(
    rotten: bool, found: list[tuple[str, str, int]]
) -> None:
    log = Log("A").txn(1, pid=7, marker_epoch=1).data(2, pid=7, transactional=True, sequence=1)
    log.batches[1]["crc_ok"] = not rotten
    assert [
        anomaly for anomaly in anomalies(NAME, view([log])) if anomaly[0] == "stale-data"
    ] == found


@pytest.mark.parametrize(
    "log",
    [
        Log("A").data(1, transactional=True, base_sequence=0, producer_epoch=0),
        Log("A").data(1, pid=7, producer_epoch=-1),
        Log("A").marker("commit", pid=-1),
        Log("A").marker("abort", pid=7, epoch=-1),
    ],
    ids=[
        "a transaction of nobody",
        "an id alone",
        "a marker of nobody",
        "a marker without an epoch",
    ],
)
def test_a_header_that_names_a_producer_in_part(log: Log) -> None:
    assert anomalies(NAME, view([log])) == [("impossible-header", "A", 0)]


def test_a_marker_has_no_sequence() -> None:
    log = Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7, base_sequence=0)
    assert anomalies(NAME, view([log])) == [("impossible-header", "A", 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_timestamp": 5},
        {"max_timestamp": 5},
        {"last_offset": 2},
        {"count": 2},
    ],
)
def test_a_marker_is_of_one_record_one_offset_and_one_time(wrong: Header) -> None:
    log = Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7, **wrong)
    assert anomalies(NAME, but(view([log]), recorded=False)) == [("impossible-header", "A", 1)]


@pytest.mark.parametrize("header", [{"log_append_time": True}, {"attributes": 0x40}])
def test_a_leader_or_a_cleaner_gives_a_marker_another_time(header: Header) -> None:
    log = Log("A").data(1, pid=7, transactional=True)
    log.marker("commit", pid=7, base_timestamp=5, **header)
    assert anomalies(NAME, but(view([log]), recorded=False)) == []


def test_only_a_cleaner_writes_a_delete_horizon() -> None:
    log = Log("A").data(1, pid=7, transactional=True).marker("commit", pid=7, attributes=0x40)
    seen = view([log.data(2, attributes=0x40)])
    assert anomalies(NAME, seen) == [("impossible-header", "A", 1), ("impossible-header", "A", 2)]
    cleaned = replace(seen.partition_facts, compacted={"A": 3})
    assert anomalies(NAME, replace(seen, partition_facts=cleaned)) == []
    assert anomalies(NAME, but(seen, recorded=False)) == []


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ({"attributes": 0x80}, [0]),
        ({"attributes": 0x4000}, [0]),
        ({"attributes": -0x8000}, [0]),
        ({"base_sequence": 10}, [0]),
        ({"attributes": 0x04}, []),
        ({"base_sequence": 0}, []),
    ],
)
def test_headers_that_no_client_of_linkflap_writes(header: Header, found: list[int]) -> None:
    seen = view([Log("A").data(1, **header)], sends=[send(1, acked=0)])
    assert anomalies(NAME, seen) == [("impossible-header", "A", at) for at in found]
    assert anomalies(NAME, but(seen, programs=frozenset({"A.t"}))) == []
    mirrored = view([Log("B").data(1, **header)], sends=[send(1, acked=0)])
    assert anomalies(NAME, mirrored) == [], "users' mirrors write what they like"


@pytest.mark.parametrize("times", [{"max_timestamp": 5}, {"max_timestamp": 10**12}])
def test_the_maximum_timestamp_is_that_of_a_record(times: Header) -> None:
    seen = view([Log("A").data(1, 2, **times)])
    assert anomalies(NAME, seen) == [("impossible-header", "A", 0)]
    (whole,) = seen.replicas
    read_in_part = replace(whole, records=whole.records.take(slice(1)))
    assert anomalies(NAME, replace(seen, replicas=[read_in_part])) == []


@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_has_as_many_records_as_offsets_where_no_cleaner_has_been(last: int) -> None:
    seen = view([Log("A").data(1, 2, last_offset=last), Log("B").data(1, 2, last_offset=last)])
    wrong = [("impossible-header", "A", 0), ("impossible-header", "B", 0)]
    assert anomalies(NAME, seen) == wrong
    facts = seen.partition_facts
    for below, found in ((1, []), (0, wrong)):
        cleaned = replace(seen, partition_facts=replace(facts, compacted={"A": below}))
        assert anomalies(NAME, cleaned) == found
    old = view([Log("A").data(1, 2, last_offset=last, leader_epoch=NO_EPOCH)])
    assert anomalies(NAME, old) == []
    assert anomalies(NAME, but(seen, recorded=False)) == []
    attached = parse("A@bootstrap:h:1->B@bootstrap:h:2")
    assert anomalies(NAME, but(seen, topology=attached)) == wrong
    assert anomalies(NAME, but(seen, programs=frozenset({"A.t"}), topology=attached)) == []


@pytest.mark.parametrize("given", [True, False])
def test_a_type_of_timestamp_that_its_topic_never_had(given: bool) -> None:
    """That is known at home, where only linkflap gave the topic settings."""
    created = {"message.timestamp.type": "CreateTime"}
    appended = {"message.timestamp.type": "LogAppendTime"}
    right, wrong = (appended, created) if given else (created, appended)
    sent = send(1, acked=0)
    one = view([Log("A").data(1, log_append_time=given)], sends=[sent])
    assert anomalies(NAME, but(one, topic_config=right)) == []
    assert anomalies(NAME, but(one, topic_config=wrong)) == [("impossible-header", "A", 0)]
    elsewhere = view([Log("B").data(1, log_append_time=given)], sends=[sent])
    anew = Window(id="t", fault="topic-recreated", target="A", start=1, end=2)
    for unknown in (
        elsewhere,
        but(elsewhere, promotions=[promoted(0)]),
        replace(one, sends=[]),
        but(one, recorded=False),
        replace(one, sends=[replace(sent, client="own-producer-1")]),
        but(one, programs=frozenset({"A.t"})),
        but(one, windows=[anew]),
    ):
        assert anomalies(NAME, but(unknown, topic_config=wrong)) == []


@pytest.mark.parametrize("given", [False, True])
def test_type_of_timestamp_that_a_sampled_topic_never_had_on_a_destination(given: bool) -> None:
    """It wrote the batch itself: offsets move, or it was promoted."""
    created = {"message.timestamp.type": "CreateTime"}
    appended = {"message.timestamp.type": "LogAppendTime"}
    right, wrong = (appended, created) if given else (created, appended)
    brokers = {f"log.{name}": value for name, value in wrong.items()}
    on_b = view([Log("B").data(1, log_append_time=given)], sends=[send(1, acked=0)])
    cluster = replace(on_b.topology.cluster("B"), config=brokers)
    others = [each for each in on_b.topology.clusters if each.name != "B"]
    topology = replace(on_b.topology, clusters=(*others, cluster))
    found = [("impossible-header", "B", 0)]
    wrongly, rightly = (
        but(
            on_b,
            topic_config=config,
            topology=topology,
            settings=[TopicSettings(cluster="B", settings=config, asked=1, until=9)],
        )
        for config in (wrong, right)
    )
    assert anomalies(NAME, wrongly) == found
    assert anomalies(NAME, rightly) == []
    assert anomalies(NAME, but(wrongly, settings=[])) == []
    kept = declared(MirrorSpec(kind="shadow"))
    assert anomalies(NAME, but(wrongly, mirror=kept)) == []
    assert anomalies(NAME, but(wrongly, mirror=kept, promotions=[promoted(0)])) == found


def test_a_marker_is_transactional() -> None:
    seen = view([Log("A").txn(1, pid=7)])
    (replica,) = seen.replicas
    batches = replace(replica.batches, transactional=np.array([True, False]))
    assert anomalies(NAME, replace(seen, replicas=[replace(replica, batches=batches)])) == [
        ("impossible-header", "A", 1)
    ]


@pytest.mark.parametrize(
    "log",
    [
        Log("A").data(1),
        Log("A").data(1, base_sequence=0),
        Log("A").data(1, base_sequence=0, producer_epoch=0),
        Log("A").data(1, pid=-9, producer_epoch=0),
        Log("A").marker("reset", pid=-1),
    ],
)
def test_a_header_without_a_producer_or_with_a_mirrors_id_is_none(log: Log) -> None:
    assert anomalies(NAME, view([log])) == []
