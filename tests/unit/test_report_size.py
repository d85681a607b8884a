"""The report of a run of a million records is small: 3 MB at most, whatever the run has many of."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.model.events import Note
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.rundir import RunReader
from linkflap.report import payload as drawn_payload
from linkflap.report.operations import ReturnedOperations
from linkflap.report.payload import MOST_TEXT, ShownCommits, payload, script_safe
from linkflap.report.series import Mark, Series, series
from linkflap.spark_verify.facts.eras import FOREVER, Era, LogGeneration
from linkflap.spark_verify.inspect import commits, lanes
from linkflap.spark_verify.inspect.lanes import Drawn, LanePoints
from linkflap.spark_verify.read.captures import CapturedReplica
from tests.unit.recorded_run import Recorded

MOST_BYTES = 3_000_000
BATCHES, PARTITIONS = 10_000, 48
"""On each of two clusters: 960,000 batches, more than a million records have in transactions of
10."""
CLIENTS, OPERATIONS = 16, 200_000


def log(cluster: str, partition: int, headers: Headers) -> Drawn:
    key = ("A.orders", partition)
    bounds = Bounds(
        cluster=cluster, broker=1, topic=key[0], partition=partition, leader=True, alive=True,
        log_start=0,
        high_watermark=BATCHES * 10, high_watermark_from="sampled",
    )  # fmt: skip
    era = Era(
        cluster=cluster,
        began=0,
        ended=FOREVER,
        start=0,
        end=FOREVER,
        owner="A",
        source="" if cluster == "A" else "A",
    )
    generation = LogGeneration(
        cluster=cluster,
        number=0,
        began=0,
        ended=FOREVER,
        truncated_to=-1,
        before="",
        lost=None,
        eras=(era,),
    )
    return Drawn(
        key,
        generation,
        CapturedReplica(run="", moment="", canonical=True, bounds=bounds, paths=(), size=0),
        headers,
    )


def headers() -> Headers:
    """Batches of 10 from four producers, every second one next to a marker; columns that are not
    drawn are zero."""
    row = np.arange(BATCHES)
    columns: dict[str, Any] = {each.name: np.zeros(BATCHES, np.int64) for each in fields(Headers)}
    columns |= {
        "base_offset": row * 10, "last_offset": row * 10 + 9, "count": np.full(BATCHES, 10),
        "producer_id": 1000 + row % 4,
        "transactional": np.ones(BATCHES, np.bool_), "max_timestamp": 1_790_000_000_000 + row * 60,
        "control": np.where(row % 2, layout.COMMIT, layout.DATA),
    }  # fmt: skip
    return Headers(**columns)


def many_lanes(monkeypatch: pytest.MonkeyPatch, points: LanePoints) -> Sequence[lanes.Lane]:
    same = headers()
    logs = [log(cluster, partition, same) for partition in range(PARTITIONS) for cluster in "AB"]
    monkeypatch.setattr(lanes, "drawn_logs", lambda planned: iter(logs))
    return lanes.lanes(SimpleNamespace(promotions={}), points)  # type: ignore[arg-type]


def test_batches_that_are_drawn_are_bounded_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = {
        ("A.orders", partition): set(range(0, BATCHES * 10, 2_500))
        for partition in range(PARTITIONS)
    }
    times = {(1_790_000_000_000 + each * 3_000) * 1_000_000 for each in range(200)}
    found = many_lanes(monkeypatch, LanePoints(offsets=wrong, times=times))
    assert 0 < sum(len(lane["base"]) for lane in found) <= lanes.RAW
    # All of them are counted, and each partition has some.
    assert {sum(lane["bins"]["records"]) for lane in found if lane["bins"]} == {BATCHES * 10}
    assert all(lane["bins"] for lane in found)
    assert min(len(lane["base"]) for lane in found) > 0


def test_what_is_next_to_an_anomaly_is_kept_before_what_is_next_to_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {(1_790_000_000_000 + each * 1_200) * 1_000_000 for each in range(500)}
    found = many_lanes(monkeypatch, LanePoints(offsets={("A.orders", 7): [50_000]}, times=times))
    there = [lane for lane in found if lane["partition"] == 7]
    assert [50_000 in lane["base"] for lane in there] == [True, True]
    assert sum(len(lane["base"]) for lane in found) < lanes.RAW


def test_where_batches_are_counted_only_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = many_lanes(monkeypatch, LanePoints(offsets={("A.orders", 7): [30_000, 70_000]}))
    lane, _ = (lane for lane in found if lane["partition"] == 7)
    bases, gaps = lane["base"], lane["gaps"]
    assert all(
        after - before == 10 for n, (before, after) in enumerate(pairwise(bases)) if n not in gaps
    )
    assert all(
        after - before > 10 for n, (before, after) in enumerate(pairwise(bases)) if n in gaps
    )
    assert gaps[-1] == len(bases) - 1


def busy(recorded: Series) -> Series:
    """The series of a run in which each client has many operations, one in ten of unknown outcome,
    and dies often."""
    done = ReturnedOperations(
        clients={n: f"transactional-{n}" for n in range(CLIENTS)}, clusters={"A": 0, "B": 1}
    )
    row = np.arange(OPERATIONS)
    done.start = array("q", (recorded.began + row * 3_000_000).tolist())
    done.took = array("q", (row % 977 * 1_000_000).tolist())
    done.process, done.number = array("q", (row % CLIENTS).tolist()), array("q", row.tolist())
    done.outcome = array("b", np.where(row % 10, 0, 2).tolist())
    done.ending, done.cluster = array("b", (row % 2).tolist()), array("b", (row % 2).tolist())
    marks = [
        Mark(at=n / 10, label=f"transactional-{n % CLIENTS} crashed", kind="client-crash")
        for n in range(5_000)
    ]
    return replace(recorded, done=done, marks=marks, length=600.0)


def anomalies() -> tuple[Anomaly, ...]:
    """20 of each of 40 kinds: the document's limits."""
    sentence = (
        "B acknowledged the record of transactional-3 #1234 at A.orders-7 @ 123456, below the "
        "promotion offset. " * 2
    )
    return tuple(
        Anomaly(
            check=f"check-{kind}", kind=f"kind-{kind}", cluster="B", topic="A.orders",
            partition=n % PARTITIONS,
            offset=n * 4_999, allowed=False, sentence=sentence,
            evidence={"source": "A", "source_offset": n * 4_999, "uid": n},
        )
        for kind in range(40) for n in range(20)
    )  # fmt: skip


def every_commit() -> ShownCommits:
    listed = [
        commits.Commit(
            operation=(n % CLIENTS << 40) + n, cluster="A", topic="A.orders",
            partition=n % PARTITIONS, first=n * 11,
            returned=1_790_000_000_000_000_000 + n * 10**7, ending=ending, marker=n * 11 + 10,
            written=1_790_000_000_000 + n,
        )
        for ending in (commits.NONE, commits.ABORT, commits.COMMIT,
        commits.UNKNOWN) for n in range(commits.MOST)
    ]  # fmt: skip
    return commits.Commits(
        listed=listed, counted=dict.fromkeys((commits.NONE, commits.COMMIT), 500_000)
    )


def test_the_report_of_a_million_records_has_three_megabytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything at its maximum at once: more than any run of that size has."""
    recorded = series(RunReader(Recorded(tmp_path / "run").write().close()))
    judged = Document(verdict=Verdict.INVALID, anomalies=anomalies())
    events = [
        Note(
            time=recorded.began + n * 10**8,
            about="A",
            name=f"line {n}",
            data={"said": "of what an application said " * 20},
        )
        for n in range(5_000)
    ]
    points = LanePoints(
        offsets={("A.orders", n): set(range(0, BATCHES * 10, 2_500)) for n in range(PARTITIONS)}
    )
    drawn = payload(
        busy(recorded), judged, many_lanes(monkeypatch, points), events, ["A", "B"], every_commit()
    )
    assert isinstance(drawn, dict)
    assert len(drawn["operations"]["start"]) == drawn_payload.MOST_OPERATIONS
    assert drawn["operations_left_out"] == OPERATIONS - drawn_payload.MOST_OPERATIONS
    assert len(drawn["marks"]) == drawn_payload.MOST_MARKS
    assert sum(len(row["text"]) for row in drawn["events"]) <= MOST_TEXT
    assert drawn["events_left_out"] > 0
    size = len(script_safe(drawn))
    assert size <= MOST_BYTES * 0.8, f"{size:,} characters of what is drawn"


def test_operations_that_are_kept_are_of_all_of_the_run(tmp_path: Path) -> None:
    recorded = series(RunReader(Recorded(tmp_path / "run").write().close()))
    drawn = payload(busy(recorded), Document(verdict=Verdict.VALID), (), (), ["A", "B"])
    assert isinstance(drawn, dict)
    starts = drawn["operations"]["start"]
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, pytest.approx((OPERATIONS - 1) * 3, abs=100))
    # One in ten has an unknown outcome; as many of them are drawn as of all others.
    assert drawn["operations"]["outcome"].count(2) == pytest.approx(
        drawn_payload.MOST_OPERATIONS / 2, abs=1
    )
