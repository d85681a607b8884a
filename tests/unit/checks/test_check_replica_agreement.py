"""replica-agreement: the smallest histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import ChangedBytes
from linkflap.spark_verify.facts.view import NULL, PartitionView, digested
from tests.unit.checks.histories import Header, Log, but, view
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "replica-agreement"
NEEDS_NO_EVENTS = (
    "it only counts by era what it compared; copies of one log are equal whoever wrote it"
)
"""Why a missing event cannot cause an anomaly of a check that uses eras."""


def replica(broker: int) -> Log:
    return Log("A", broker=broker, canonical=broker == 1, leader=broker == 1)


def held_back(log: Log, high_watermark: int) -> Log:
    log.high_watermark = high_watermark
    return log


ACCEPTED = {
    "same": (view([replica(1).data(1, 2), replica(2).data(1, 2)]), {"A/native": 2}),
    "one replica": (view([replica(1).data(1)]), {"A/native": 1}),
    "above the common high watermark": (
        view([replica(1).data(1).data(2), held_back(replica(2).data(1).data(3, crc=9), 1)]),
        {"A/native": 4},
    ),
}
REJECTS = {
    "replica-disagreement": Rejected(
        view([replica(1).data(1, 2, 3), replica(2).data(1, 2, 3, crc=9, digest={2: 0})]), "A", 1
    ),
    "replica-missing": Rejected(
        view([replica(1).data(1).data(2), held_back(replica(2).data(1), 2)]),
        "A",
        1,
        only=("log-ends-early",),
    ),
    "log-ends-early": Rejected(view([held_back(replica(1).data(1), 2)]), "A", 1),
    "corrupt-batch": Rejected(view([replica(1).data(1, crc_ok=False)]), "A", 0),
    "bytes-changed": Rejected(
        view(
            [replica(1).data(1)],
            changed_bytes=[ChangedBytes(cluster="A", broker=1, offset=0, crc=(1, 2))],
        ),
        "A",
        0,
    ),
    "log-disorder": Rejected(view([replica(1).data(1).data(1, at=0)]), "A", 0),
}


def test_without_decoded_records_the_batch_is_named() -> None:
    other = replica(2).data(1, 2, crc=9)
    other.records = []
    (found,) = findings(NAME, view([replica(1).data(1, 2), other]))
    assert (found.offset, found.evidence["batch"], found.evidence["records"]) == (0, [0, 1], [])
    assert found.evidence["uids"] == [1, 2]


def test_the_changed_record_is_named() -> None:
    (found,) = findings(NAME, REJECTS["replica-disagreement"].view)
    assert found.evidence["changed"] == [{"offset": 1, "uid": 2, "fields": ["value"]}]


def test_a_record_that_one_replica_lacks_is_named() -> None:
    other = held_back(replica(2).data(1, crc=9, last_offset=1), 2)
    (found,) = findings(NAME, view([replica(1).data(1, 2), other]))
    assert found.evidence["changed"] == [{"offset": 1, "uid": 2, "fields": ["absent on one"]}]
    assert found.offset == 1


def test_another_producer_is_reported() -> None:
    (found,) = findings(NAME, view([replica(1).data(1, pid=7), replica(2).data(1, pid=8, crc=9)]))
    assert found.evidence["producer_id"] == [7, 8]


def test_three_replicas_are_compared_each_up_to_its_end() -> None:
    behind = held_back(replica(2).data(1), 1)
    seen = view([replica(1).data(1).data(2), behind, held_back(replica(3).data(1), 2)])
    assert ("replica-missing", "A", 1) in anomalies(NAME, seen)


def test_a_copy_of_a_running_brokers_folder_proves_nothing_above_its_end() -> None:
    """But another broker that lacks less is compared further."""
    half = held_back(replica(2).data(1), 3)
    for third, wrong in (
        (replica(3).data(1).data(2).data(3), []),
        (replica(3).data(1).data(3, at=2), [("replica-missing", "A", 1)]),
    ):
        seen = but(view([replica(1).data(1).data(2).data(3), half, third]), recorded=False)
        copies = [replace(r, high_watermark_from="copied") for r in seen.replicas]
        seen = replace(seen, replicas=tuple(copies))
        assert anomalies(NAME, seen) == wrong
        assert "ends at 1, below the high watermark 3" in unjudged(NAME, seen)[0]


def test_records_missing_in_a_torn_log_are_unknown() -> None:
    seen = view([replica(1).data(1).data(2), held_back(replica(2).data(1).torn(), 2)])
    assert anomalies(NAME, seen) == []
    assert unjudged(NAME, seen) == [
        "the log of A.t-0 on A/2 is torn, so not all of it could be compared"
    ]


def test_a_wrong_crc_on_one_side_is_a_disagreement_too() -> None:
    seen = view([replica(1).data(1, 2), replica(2).data(1, 2, crc_ok=False, digest={2: 0})])
    assert ("replica-disagreement", "A", 1) in anomalies(NAME, seen)


def test_the_odd_one_of_three_is_named() -> None:
    seen = view([replica(1).data(1), replica(2).data(1), replica(3).data(1, crc=9)])
    (found,) = findings(NAME, seen)
    assert (found.evidence["odd_one_out"], found.evidence["crc"]) == (3, [1000, 9])


def test_a_batch_twice_on_one_replica_is_not_hidden_by_its_content() -> None:
    found = anomalies(NAME, view([replica(1).data(1), replica(2).data(1).data(1, at=0)]))
    assert ("replica-missing", "A", 0) in found


def test_leader_epochs_count() -> None:
    found = findings(NAME, view([replica(1).data(1), replica(2).data(1, leader_epoch=4)]))
    assert [f.evidence["leader_epoch"] for f in found] == [[0, 4]]


def cleaned(*, below: int = 9, **header: Unpack[Header]) -> PartitionView:
    """Broker 2's cleaner gave a marker its own delete horizon, or the marker has a change that no
    cleaner makes."""
    one, other = (replica(n).data(1, pid=7, transactional=True) for n in (1, 2))
    horizon: Header = {"length": 80, "crc": 9}
    logs = [one.marker("commit", pid=7), other.marker("commit", pid=7, **horizon | header)]
    return view(logs, compacted={"A": below})


def test_a_delete_horizon_of_one_brokers_cleaner_is_no_difference() -> None:
    assert (anomalies(NAME, cleaned()), unjudged(NAME, cleaned())) == ([], [])
    assert anomalies(NAME, cleaned(below=1)) == [("replica-disagreement", "A", 1)]


@pytest.mark.parametrize("kept", [{"producer_epoch": 1}, {"leader_epoch": 4}, {"producer_id": 8}])
def test_fields_that_no_cleaner_changes_must_agree_below_its_checkpoint_too(kept: Header) -> None:
    assert anomalies(NAME, cleaned(**kept)) == [("replica-disagreement", "A", 1)]


def test_an_emptied_follower_ends_below_its_brokers_high_watermark() -> None:
    emptied = held_back(replica(2), 2)
    assert (
        anomalies(NAME, view([replica(1).data(1).data(2), emptied])).count(
            ("log-ends-early", "A", 0)
        )
        == 1
    )
    torn = held_back(replica(1).data(1), 2)
    torn.damage, torn.torn_from = ("half a batch",), 1
    assert anomalies(NAME, view([torn])) == []
    assert unjudged(NAME, view([torn])) != []


def on(broker: int) -> Log:
    return Log("A", broker=broker, canonical=broker == 1, leader=broker == 1)


def compacted(*logs: Log, upto: int = 9) -> PartitionView:
    return view(list(logs), topology="A:3->B", compacted={"A": upto})


def found(*logs: Log, upto: int = 9) -> list[tuple[str, str, int]]:
    return anomalies(NAME, compacted(*logs, upto=upto))


FULL = on(1).data(1, keys={1: 5}).data(2, keys={2: 6}).data(3, keys={3: 5})
"""Keys 5, 6, and 5 again."""


def test_null_is_the_digest_of_nothing() -> None:
    assert digested(None) == NULL


@pytest.mark.parametrize(
    "other",
    [
        on(2).skip(1).data(2, keys={2: 6}).data(3, keys={3: 5}),
        on(2).data(1, keys={1: 5}).data(2, keys={2: 6}).data(3, keys={3: 5}),
    ],
    ids=["a later one has its key", "nothing is gone"],
)
def test_a_record_may_go_when_a_later_one_has_its_key(other: Log) -> None:
    assert found(FULL, other) == []
    assert unjudged(NAME, compacted(FULL, other)) == []


@pytest.mark.parametrize("holder", [1, 2])
def test_the_last_record_of_a_key_is_on_every_replica(holder: int) -> None:
    logs = [FULL, on(2).data(1, keys={1: 5}).skip(1).data(3, keys={3: 5})]
    if holder == 2:
        logs = [
            on(1).data(1, keys={1: 5}).skip(1).data(3, keys={3: 5}),
            on(2).data(1, keys={1: 5}).data(2, keys={2: 6}).data(3, keys={3: 5}),
        ]
    assert found(*logs) == [("replica-missing", "A", 1)]
    (one,) = findings(NAME, compacted(*logs))
    assert (one.evidence["missing_on"], one.evidence["uids"]) == (3 - holder, [2])


@pytest.mark.parametrize(
    ("left", "anomalies"), [((2, 3), []), ((1, 3), [("replica-missing", "A", 1)])]
)
def test_also_within_a_batch_that_both_have(
    left: tuple[int, int], anomalies: list[tuple[str, str, int]]
) -> None:
    """Of 1 2 3 with the keys 5, 6 and 5 two records are left in the batch, which keeps its
    offsets."""
    keys = {1: 5, 2: 6, 3: 5}
    thin = on(2).data(*left, keys=keys, last_offset=2, crc=7).skip(1)
    thin.records = [(uid - 1, uid, content, 0, 1) for _, uid, content, _, _ in thin.records]
    assert found(on(1).data(1, 2, 3, keys=keys), thin) == anomalies
    assert unjudged(NAME, compacted(on(1).data(1, 2, 3, keys=keys), thin)) == []


def test_at_one_offset_is_one_value() -> None:
    other = (
        on(2).data(1, keys={1: 5}).data(2, keys={2: 6}, crc=7, digest={2: 1}).data(3, keys={3: 5})
    )
    assert found(FULL, other) == [("replica-disagreement", "A", 1)]


def test_a_tombstone_goes_when_its_horizon_has_passed_and_takes_no_value_with_it() -> None:
    gone = on(2).data(1, keys={1: 5}).skip(1).data(3, keys={3: 5})
    tombstone = (
        on(1).data(1, keys={1: 5}).data(2, keys={2: 6}, digest={2: NULL}).data(3, keys={3: 5})
    )
    config = {"delete.retention.ms": "1000000"}
    assert anomalies(NAME, but(compacted(tombstone, gone), topic_config=config)) == []
    config = {"delete.retention.ms": "1000001"}
    kept = but(compacted(tombstone, gone), topic_config=config)
    assert anomalies(NAME, kept) == [("replica-missing", "A", 1)]
    assert found(FULL, gone) == [("replica-missing", "A", 1)]


def test_a_record_without_a_key_is_not_kept() -> None:
    assert found(on(1).data(1, keys={1: NULL}).data(2), on(2).skip(1).data(2)) == []


@pytest.mark.parametrize(
    ("end", "anomalies"), [("commit", [("replica-missing", "A", 0)]), ("abort", []), (None, [])]
)
def test_aborted_records_are_removed_and_committed_ones_stay(
    end: str | None, anomalies: list[tuple[str, str, int]]
) -> None:
    one = on(1).txn(1, pid=7, end=end).data(2, keys={2: 6})
    other = (
        on(2).skip(1).data(2, keys={2: 6})
        if end is None
        else on(2).skip(1).marker(end, pid=7).data(2, keys={2: 6})
    )
    assert found(one, other) == anomalies
    assert unjudged(NAME, compacted(one, other)) == (
        ["1 batches differ" + UNREAD] if end is None else []
    )


UNREAD = (
    " between the brokers of A below offset 9, which are compacted, and their records could not be "
    "read"
)


def test_a_later_record_that_was_aborted_takes_no_key() -> None:
    one = on(1).data(1, keys={1: 5}).txn(2, pid=7, end="abort")
    other = on(2).skip(1).txn(2, pid=7, end="abort")
    one.keys[2] = other.keys[2] = 5
    assert found(one, other) == [("replica-missing", "A", 0)]


def test_a_marker_stays_while_a_batch_of_its_transaction_is_there() -> None:
    one = on(1).txn(1, pid=7).data(2)
    other = on(2).txn(1, pid=7, end=None).skip(1).data(2)
    assert found(one, other) == [("replica-missing", "A", 1)]


def test_a_record_is_replaced_below_where_the_cleaner_was() -> None:
    """It may have come further and not noted it; then it took from all before, too."""
    keys = {1: 5, 2: 6, 3: 5, 4: 6}
    one = on(1).data(1, keys=keys).data(2, keys=keys).data(3, keys=keys).data(4, keys=keys)
    first = on(2).skip(1).data(2, keys=keys).data(3, keys=keys).data(4, keys=keys)
    second = on(2).data(1, keys=keys).skip(1).data(3, keys=keys).data(4, keys=keys)
    assert (found(one, first, upto=3), found(one, second, upto=4)) == ([], [])
    assert found(one, second, upto=2) == [("replica-missing", "A", 1)]
    unsure = compacted(one, first, upto=2)
    assert (anomalies(NAME, unsure), len(unjudged(NAME, unsure))) == ([], 1)


def test_a_marker_goes_when_its_transaction_is_gone_and_a_reset_is_not_judged() -> None:
    assert found(on(1).marker("commit", pid=7).data(2), on(2).skip(1).data(2)) == []
    reset = on(1).marker("reset", pid=-1).data(2)
    assert unjudged(NAME, compacted(reset, on(2).skip(1).data(2))) == ["1 batches differ" + UNREAD]


def test_above_the_cleaners_all_replicas_have_the_same() -> None:
    assert found(FULL, on(2).skip(1).data(2, keys={2: 6}).data(3, keys={3: 5}), upto=0) == [
        ("replica-missing", "A", 0)
    ]


def test_why_unreadable_records_are_gone_is_unknown() -> None:
    one = compacted(FULL, on(2).data(1, keys={1: 5}).skip(1).data(3, keys={3: 5}))
    unread = replace(
        one,
        replicas=[
            replace(r, parts=type(r.parts)(**dict.fromkeys(r.parts.__slots__, r.parts.uid[:0])))
            for r in one.replicas
        ],
    )
    assert anomalies(NAME, unread) == []
    assert unjudged(NAME, unread) == ["1 batches differ" + UNREAD]


@pytest.mark.parametrize(
    ("digest", "wrong"), [({}, []), ({3: 1}, [("replica-disagreement", "A", 2)])]
)
def test_in_copied_logs_a_cleaner_may_have_run_further_than_visible(
    digest: dict[int, int], wrong: list[tuple[str, str, int]]
) -> None:
    """It wrote its delete horizon into a batch from which it removed nothing; the batch before it
    lacks records."""
    keys = {1: 5, 2: 6, 3: 7}
    one, other = (
        Log("A", broker=n, canonical=n == 1, leader=n == 1)
        .data(1, keys=keys, last_offset=1)
        .skip(1)
        for n in (1, 2)
    )
    logs = [one.data(3, keys=keys), other.data(3, keys=keys, crc=9, length=80, digest=digest)]
    seen = compacted(*logs, upto=0)
    copied = but(seen, recorded=False)
    assert [f for f in findings_of(copied) if f[0] != "epoch-reuse"] == wrong
    assert ("epoch-reuse", "A", 2) not in findings_of(copied)
    assert {("replica-disagreement", "A", 2), ("epoch-reuse", "A", 2)} <= {*findings_of(seen)}


def findings_of(seen: PartitionView) -> list[tuple[str, str, int]]:
    return [*anomalies(NAME, seen), *anomalies("leader-epochs", seen)]


def test_bytes_that_changed_are_found_whatever_is_left_of_the_log() -> None:
    """A cluster that died behind its capture has no log in the end."""
    changed = [ChangedBytes(cluster="B", broker=2, offset=7, crc=(1, None))]
    for logs in ([Log("A").data(1)], [Log("A").data(1), Log("B").data(1).torn()]):
        found = findings(NAME, view(logs, changed_bytes=changed))
        assert [(f.kind, f.cluster, f.offset) for f in found] == [("bytes-changed", "B", 7)]
        assert found[0].evidence == {"broker": 2, "crc": [1, None]}
    (kind,) = (each for each in REGISTRY[NAME].anomalies if each.name == "bytes-changed")
    assert kind.despite_torn
