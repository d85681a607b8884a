"""marker-pairing: headers that name a producer incompletely or wrongly, and damaged ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.checks.histories import view
from tests.unit.checks.logs import Log
from tests.unit.checks.verdicts import (
    anomalies,
)

NAME = "marker-pairing"


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
