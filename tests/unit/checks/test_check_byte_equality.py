"""byte-equality: the smallest histories."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import pytest

from linkflap.harness.capture.folders import record as record_logs
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.view import PartitionView
from tests.copied_logs import asked
from tests.kafka_log import (
    COMMIT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    changed,
    crc_with_id,
    marker,
    record,
    segment,
)
from tests.oracles import agreement
from tests.run_copy import views
from tests.unit.checks.histories import SECOND, Header, Log, but, kept, mirror_stop, promoted, view
from tests.unit.checks.verdicts import Rejected, anomalies, findings, unjudged

NAME = "byte-equality"


A = Log("A").data(1).data(2, 3)
ACCEPTED = {
    "same": (kept([A, Log("B").data(1).data(2, 3)]), {"B/mirrored": 2}),
    "another leader epoch": (kept([A, Log("B").data(1, leader_epoch=4).data(2, 3, leader_epoch=4)]),
        {"B/mirrored": 2}),
    "behind": (kept([A, Log("B").data(1)]), {"B/mirrored": 1}),
    "its own after a promotion": (kept([A, Log("B").data(1).data(9)], promotions=[promoted(1)]),
        {"B/mirrored": 1}),
    "a log that began to be mirrored late": (kept([A, Log("B", start=1).data(2, 3)]),
        {"B/mirrored": 1}),
    "ids mapped as declared": (
        kept([Log("A").data(1, pid=3),
            Log("B").data(1, pid=-5, epoch=0, crc=crc_with_id(1000, 71, 3, -5), producer_epoch=0,
                base_sequence=0)],
             options={"producer_ids": "negate"}),
        {"B/mirrored": 1},
    ),
}  # fmt: skip
REJECTS = {
    "byte-divergence": Rejected(kept([Log("A").data(1), Log("B").data(1, crc=5)]), "B", 0),
    "byte-hole": Rejected(kept([Log("A").data(1).data(2), Log("B").data(2, at=1)]), "B", 0),
    "byte-stranger": Rejected(
        kept([Log("A").data(1, 2), Log("B").data(1, 2).data(2, at=1)]), "B", 1
    ),
}


@pytest.mark.parametrize(("theirs", "ours"), [("abort", "commit"), ("commit", "abort")])
def test_a_marker_with_another_outcome_is_named_with_its_transaction(
    theirs: str, ours: str
) -> None:
    def log(cluster: str, end: str, **header: Unpack[Header]) -> Log:
        return (
            Log(cluster)
            .txn(1, 2, pid=7, end=None)
            .data(9)
            .marker(end, pid=7, **header)
            .txn(3, pid=7)
        )

    (found,) = findings(NAME, kept([log("A", theirs), log("B", ours, crc=5)]))
    assert (found.kind, found.cluster, found.offset) == ("byte-divergence", "B", 3)
    about = {name: found.evidence[name] for name in ("markers", "ends", "first_offset")}
    assert about == {"markers": [theirs.upper(), ours.upper()], "ends": 2, "first_offset": 0}


def test_a_marker_of_no_record_and_one_that_differs_otherwise() -> None:
    (found,) = findings(
        NAME, kept([Log("A").marker("abort", pid=7), Log("B").marker("commit", pid=7, crc=5)])
    )
    assert found.evidence["ends"] == 0
    assert "first_offset" not in found.evidence
    (found,) = findings(
        NAME, kept([Log("A").marker("abort", pid=7), Log("B").marker("abort", pid=7, crc=5)])
    )
    assert "markers" not in found.evidence


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (Log("B").data(1).data(2).torn(), []),
        (Log("B").data(1, crc=5).data(2).torn(), [("byte-divergence", "B", 0)]),
        (Log("B").data(2, at=1).torn(), [("byte-hole", "B", 0)]),
        (Log("B").data(1).torn().data(2, crc=5), []),
        (Log("B").torn().data(1, crc=5).data(2), []),
    ],
    ids=[
        "whole before it",
        "another batch before it",
        "none before it",
        "another behind it",
        "at the beginning",
    ],
)
def test_torn_log_is_compared_up_to_the_tear(ours: Log, found: list[tuple[str, str, int]]) -> None:
    seen = kept([Log("A").data(1).data(2).data(3), ours])
    assert anomalies(NAME, seen) == found
    assert unjudged(NAME, seen)
    assert (
        anomalies(NAME, kept([Log("A").data(1).torn().data(2), Log("B").data(1).data(2, crc=5)]))
        == []
    )


def test_copied_logs_without_mirrored_records_are_not_equal() -> None:
    seen = but(kept([Log("A").data(1), Log("B")]), recorded=False)
    assert unjudged(NAME, seen) == ["B has nothing of A.t-0, of which A has batches"]
    assert unjudged(NAME, but(kept([Log("A").data(1), Log("B", start=1)]), recorded=False)) == []
    assert unjudged(NAME, but(kept([Log("A"), Log("B")]), recorded=False)) == []


def mapped(how: str, source: int, *pids: int) -> PartitionView:
    """One batch of producer `source` for each id that it has on B."""
    a, b = Log("A"), Log("B")
    for n, pid in enumerate(pids):
        a.data(n, pid=source, producer_epoch=0, base_sequence=n)
        crc = crc_with_id(1000 + n, 71, source, pid)
        b.data(n, pid=pid, producer_epoch=0, base_sequence=n, crc=crc)
    return kept([a, b], options={"producer_ids": how})


REGION = -(1 << 63) + (77 << 31)


@pytest.mark.parametrize(
    ("how", "source", "pids", "wrong"),
    [
        ("negate", 3, (-5, -5), []),
        ("negate", 3, (-5, -6), [1]),
        ("negate", -1, (-1, -1), []),
        ("complement", 3, (2**63 - 5, 3), [1]),
        ("region", 3, (REGION + 3, REGION + 3), []),
        ("region", 3, (REGION + 3, REGION + 4), [1]),
        ("region", 3, (REGION + 3, REGION + 3 + (1 << 31)), [1]),
        ("region", 3, (REGION + 3 + (1 << 31), REGION + 3, REGION + 3), [0]),
        ("region", 3, (REGION + 3, 3, -4), [1, 2]),
    ],
)
def test_each_id_equals_its_mapping(
    how: str, source: int, pids: tuple[int, ...], wrong: list[int]
) -> None:
    assert anomalies(NAME, mapped(how, source, *pids)) == [
        ("byte-divergence", "B", offset) for offset in wrong
    ]


def test_two_ids_never_become_one() -> None:
    a, b = Log("A"), Log("B")
    for n, pid in enumerate((3, 3 + (1 << 31))):
        a.data(n, pid=pid, producer_epoch=0, base_sequence=0)
        crc = crc_with_id(1000 + n, 71, pid, REGION + 3)
        b.data(n, pid=REGION + 3, producer_epoch=0, base_sequence=0, crc=crc)
    seen = kept([a, b], options={"producer_ids": "region"})
    assert anomalies(NAME, seen) == [("byte-divergence", "B", 1)]


def test_a_region_is_one_for_all_partitions_of_a_source() -> None:
    rest = mapped("region", 3, REGION + 3, REGION + 3)
    one = mapped("region", 3, REGION + 3 + (1 << 31))
    views = [rest, but(one, partition=1)]
    rows = agreement.findings(REGISTRY[NAME], views)
    found = [(row.kind, row.cluster, row.partition) for row in rows if row.finding == "found"]
    assert found == [("byte-divergence", "B", 1)]


def _record(value: bytes | None = b"value", **rest: object) -> bytes:
    return batch(0, [record(value, **rest)], pid=3, epoch=0, seq=0)


def _value(key: bytes, value: bytes) -> bytes:
    return batch(
        0, [record(value, key=key)], pid=3, epoch=0, transactional=True, control=True, seq=-1
    )


PLAIN = _record(key=b"k")
MARKER = marker(0, COMMIT, pid=3, epoch=0, coordinator=4)
KEY, END = struct.pack(">hh", 0, COMMIT), struct.pack(">hi", 0, 4)
HEADERS = [("a", b"1"), ("b", b"2")]
TURNED = batch(0, [record(b"x", headers=HEADERS[::-1])], pid=3, epoch=0, seq=0, codec="gzip")
CHANGES = {
    "an attribute bit": (PLAIN, changed(PLAIN, attributes=0x80)),
    "the timestamps' type": (PLAIN, changed(PLAIN, attributes=LOG_APPEND_TIME)),
    "the transactional bit": (PLAIN, changed(PLAIN, attributes=TRANSACTIONAL)),
    "the base timestamp": (PLAIN, changed(PLAIN, base_timestamp=5)),
    "the latest timestamp": (PLAIN, changed(PLAIN, max_timestamp=5)),
    "the epoch": (PLAIN, changed(PLAIN, epoch=1)),
    "the sequence": (PLAIN, changed(PLAIN, seq=1)),
    "a marker's timestamp": (MARKER, changed(MARKER, base_timestamp=5)),
    "a marker's latest timestamp": (MARKER, changed(MARKER, max_timestamp=5)),
    "a marker's coordinator": (MARKER, marker(0, COMMIT, pid=3, epoch=0, coordinator=5)),
    "a marker's version": (MARKER, marker(0, COMMIT, pid=3, epoch=0, coordinator=4, version=1)),
    "a marker's value": (MARKER, _value(KEY, END[:-1] + b"\x05")),
    "a longer marker": (MARKER, _value(KEY, END + b"\x00")),
    "a null key": (_record(key=b""), _record(key=None)),
    "a null value": (_record(b""), _record(None)),
    "a null header": (_record(headers=[("a", b"")]), _record(headers=[("a", None)])),
    "the headers' order": (
        _record(headers=HEADERS), _record(headers=HEADERS[::-1])
    ),
    "the codec": (
        batch(0, [record(b"x", headers=HEADERS[::-1])], pid=3, epoch=0, seq=0), TURNED
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ["keep", "negate", "complement", "region"])
@pytest.mark.parametrize("what", CHANGES)
def test_difference_beyond_the_declared_producer_id_is_divergence(
    tmp_path: Path, what: str, how: str
) -> None:
    theirs, mine = CHANGES[what]
    pid = {"keep": 3, "negate": -5, "complement": 2**63 - 5, "region": REGION + 3}[how]

    def found(name: str, data: bytes) -> list[tuple[str, str, int]]:
        alike = batch(0, [record(b"alike")])
        segment(tmp_path / name / "A" / "t-0", [alike, changed(theirs, base_offset=1)])
        ours = changed(data, base_offset=1, pid=pid)
        segment(tmp_path / name / "B" / "t-0", [alike, ours])
        logs = {cluster: tmp_path / name / cluster for cluster in "AB"}
        wanted = replace(asked(logs, "A->B"), options={"producer_ids": how})
        record_logs(tmp_path / name / "judged", wanted, "")
        (seen,) = views(tmp_path / name / "judged")
        return anomalies(NAME, seen)

    assert found("same", theirs) == []
    assert found("changed", mine) == [("byte-divergence", "B", 1)]


def test_a_mirror_that_moves_offsets_is_not_judged() -> None:
    assert anomalies(NAME, view([Log("A").data(1), Log("B").data(1, crc=5)])) == []


def test_a_log_that_was_not_captured_is_unjudged() -> None:
    assert unjudged(NAME, kept([Log("A").data(1)])) == ["no log of B was captured for A.t-0"]


@pytest.mark.parametrize("crc", [7, 1002])
def test_markers_of_another_mirror_in_the_chain_do_not_count(crc: int) -> None:
    """B has 1 2 from A and an ABORT that its mirror wrote at its end; A has one of its own; C has 1
    and an ABORT of its mirror."""
    logs = [
        Log("A").txn(1, pid=7, end=None).data(2).marker("abort", pid=7),
        Log("B").txn(1, pid=7, end=None).data(2).marker("abort", pid=7, crc=crc),
        Log("C").txn(1, pid=7, end=None).marker("abort", pid=7),
    ]
    ends = {"B": 2, "C": 1}
    stops = [
        mirror_stop(at, at + 1, (at, "ABORT"), link=link, time=900 * SECOND)
        for link, at in (("A->B", ends["B"]), ("B->C", ends["C"]))
    ]
    assert anomalies(NAME, kept(logs, topology="A->B->C", stops=stops)) == []
    assert anomalies(NAME, kept(logs, topology="A->B->C", stops=stops[1:])) == (
        [("byte-divergence", "B", 2)] if crc == 7 else []
    )


@pytest.mark.parametrize(
    ("log", "appended", "wrong"),
    [
        (Log("B").data(1).marker("reset", pid=-1), [(1, "reset")], []),
        (Log("B").data(1).marker("abort", pid=7), [(1, "ABORT of producer 7, epoch 0")], []),
        (Log("B").data(1).marker("reset", pid=-1), [], [1]),
        (Log("B").data(1).data(9), [(1, "reset")], [1]),
    ],
    ids=["a reset", "an ABORT", "nobody said so", "it said another thing"],
)
def test_markers_that_a_mirror_appends_at_the_end_of_the_run_are_its_own(
    log: Log, appended: list[tuple[int, str]], wrong: list[int]
) -> None:
    """A has 1; no failover: the mirror is ended with the run, and reports then what it appended."""
    stop = mirror_stop(1, 2, *appended, time=900 * SECOND)
    seen = kept([Log("A").data(1), log], stops=[stop])
    assert anomalies(NAME, seen) == [("byte-stranger", "B", offset) for offset in wrong]
