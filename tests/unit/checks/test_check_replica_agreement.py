"""replica-agreement: the smallest histories."""

from __future__ import annotations

from typing import Unpack

import pytest

from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import view
from tests.unit.checks.logs import Header, Log
from tests.unit.checks.verdicts import (
    Rejected,
    anomalies,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

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
        view=view([replica(1).data(1, 2, 3), replica(2).data(1, 2, 3, crc=9, digest={2: 0})]),
        cluster="A",
        offset=1,
    ),
    "replica-missing": Rejected(
        view=view([replica(1).data(1).data(2), held_back(replica(2).data(1), 2)]),
        cluster="A",
        offset=1,
        only=("log-ends-early",),
    ),
    "log-ends-early": Rejected(
        view=view([held_back(replica(1).data(1), 2)]), cluster="A", offset=1
    ),
    "corrupt-batch": Rejected(view=view([replica(1).data(1, crc_ok=False)]), cluster="A", offset=0),
    "log-disorder": Rejected(view=view([replica(1).data(1).data(1, at=0)]), cluster="A", offset=0),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


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
