"""Rates, levels and lag of a report equal those of the rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from linkflap.harness.report.series import series
from linkflap.harness.rundir import RunReader
from tests.traced import peak
from tests.unit.recorded_run import Recorded

HELD_PER_ROW = 120
"""Bytes: measured 23; objects took 547."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "run").write().close()


def test_rates_and_lag_add_up(folder: Path) -> None:
    shown = series(RunReader(folder))
    width = shown.length / len(shown.at)
    acknowledged = sum(float(rates.sum()) for rates in shown.acknowledged.values()) * width
    reader = RunReader(folder)
    expected = sum(
        run[1] for op in reader.operations()[0] for send in op.sends for run in send.acks
    )
    assert acknowledged == pytest.approx(expected)
    lag = shown.lag["A->B"]
    assert np.nanmax(lag[(shown.at > 3) & (shown.at < 4)]) > 200, (
        "the mirror stood still while the link was cut"
    )
    assert np.isnan(lag[shown.at > 14]).all(), "after the failover nothing is behind"
    assert [(w.id, w.bit, w.lasting) for w in shown.windows] == [
        ("f1", True, False),
        ("f2", True, False),
        ("f3", True, False),
        ("f4", True, True),
    ]


def test_rates_and_levels_equal_those_of_the_rows(folder: Path) -> None:
    reader = RunReader(folder)
    shown = series(reader)
    width = shown.length / len(shown.at)
    edges = np.linspace(0.0, shown.length, len(shown.at) + 1)
    (operations, _), (polls, _), (marks, _) = (
        reader.operations(),
        reader.polls(),
        reader.watermarks(),
    )
    began = min(row.time for rows in (operations, polls, marks) for row in rows)

    def bins(rows: list[tuple[str, int, int]]) -> dict[str, list[float]]:
        found = {cluster: [0.0] * len(shown.at) for cluster, _, _ in sorted(rows)}
        for cluster, time, count in rows:
            at = int(np.searchsorted(edges, (time - began) / 1e9, side="right")) - 1
            found[cluster][min(at, len(shown.at) - 1)] += count
        return {cluster: [count / width for count in counts] for cluster, counts in found.items()}

    acked = [
        (o.cluster, o.time, sum(a[1] for s in o.sends for a in s.acks))
        for o in operations
        if o.phase == "return"
    ]
    got = [(p.cluster, p.returned, sum(run[2] for f in p.fetched for run in f.runs)) for p in polls]
    for rates, rows in ((shown.acknowledged, acked), (shown.read, got)):
        wanted = bins([row for row in rows if row[2]])
        assert list(rates) == list(wanted)
        assert all(rates[cluster].tolist() == pytest.approx(wanted[cluster]) for cluster in wanted)

    def level(cluster: str, end: float) -> float:
        known = [
            (m.returned, m.high_watermark)
            for m in marks
            if m.cluster == cluster and (m.returned - began) / 1e9 <= end
        ]
        return max(known)[1] if known else np.nan

    over = next(mark.at for mark in shown.marks if mark.label.startswith("failover"))
    lag = [
        np.nan if end > over else max(level("A", end) - level("B", end), 0.0) for end in edges[1:]
    ]
    assert shown.lag["A->B"].tolist() == pytest.approx(lag, nan_ok=True)


def test_a_long_history_is_gone_through_row_by_row(tmp_path: Path) -> None:
    peaks, rows = [], []
    for seconds in (20.0, 120.0):
        folder = Recorded(tmp_path / str(seconds), seconds=seconds).write().close()
        rows.append(sum(len(path.read_bytes().splitlines()) for path in folder.glob("*/*.jsonl")))
        peaks.append(peak(partial(lambda at: series(RunReader(at)), folder)))
    assert (peaks[1] - peaks[0]) / (rows[1] - rows[0]) < HELD_PER_ROW
