"""The data of the report's drawings: lanes of logs, operations, the failover certificate, and lines
of brokers' logs."""

from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pytest

from linkflap.harness.model.history import Operation, Phase
from linkflap.harness.report import evidence
from linkflap.harness.report.broker_logs import MOST_LINES, excerpts
from linkflap.harness.report.operations import ReturnedOperations, errors, latency
from linkflap.harness.report.payload import script_safe
from linkflap.harness.report.words import in_words
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.commit_aborted import kernel
from linkflap.spark_verify.inspect import commits
from linkflap.spark_verify.inspect.explain import explain_several
from linkflap.spark_verify.inspect.lanes import lanes_around
from tests.copied_logs import judged_again
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.run_views import views

SECOND = 1_000_000_000


Outcome = Literal["ok", "fail", "info"]


@pytest.fixture(scope="module")
def failback(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story(spec(1, shape="round-trip")).write(tmp_path_factory.mktemp("parts") / "run")


def operation(
    number: int,
    phase: Phase,
    time: float,
    outcome: Outcome = "info",
    client: str = "p-1",
    process: int = 1,
) -> Operation:
    return Operation(
        number=number, phase=phase, time=int(time * SECOND), client=client, process=process,
        cluster="A", kind="transaction",
        ending="commit", outcome=outcome,
    )  # fmt: skip


def test_latency_errors_and_operations_that_never_returned() -> None:
    done = ReturnedOperations()
    every: list[tuple[float, float, Outcome | None]] = [
        (0.0, 0.1, "ok"),
        (0.2, 0.5, "ok"),
        (1.0, 1.2, "fail"),
        (1.5, 0.0, None),
    ]
    for number, (start, end, outcome) in enumerate(every):
        done.operation(operation(number, "invoke", start))
        if outcome:
            done.operation(operation(number, "return", end, outcome))
    done.close(3 * SECOND)
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    assert latency(done, 0, edges)["p50"].tolist() == pytest.approx(
        [200.0, np.nan, np.nan], nan_ok=True
    )
    failed = errors(done, 0, edges)
    assert (failed["fail"].tolist(), failed["info"].tolist()) == ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    assert done.ends(1) == SECOND // 2
    assert done.ends(77) is None


def test_incarnations_of_a_client_are_numbered() -> None:
    done = ReturnedOperations()
    for process, client in ((4, "p-1"), (9, "q-1"), (6, "p-1")):
        done.operation(operation(process << 40, "invoke", 0.0, client=client, process=process))
    assert done.clients == {4: "p-1", 9: "q-1", 6: "p-1/2"}


@pytest.mark.parametrize(
    "text", ["</script>", "<!--", "]]>", "\u2028\u2029", "&lt;", '"\\', "\ud800x"]
)
def test_nothing_ends_the_script_element(text: str) -> None:
    if "\ud800" in text:
        text = text.encode("utf-8", "replace").decode()
    encoded = script_safe({"a": [text]})
    assert not set("<>&\u2028\u2029") & set(encoded)
    assert json.loads(encoded) == {"a": [text]}


@pytest.mark.parametrize("zone", [0, 2, -7])
def test_lines_around_a_moment_whatever_zone_they_were_printed_in(
    tmp_path: Path, zone: int
) -> None:
    started = 1_790_000_000
    log = tmp_path / "logs" / "B" / "1" / "server.log"
    log.parent.mkdir(parents=True)
    stamp = "[%Y-%m-%d %H:%M:%S,500]"
    begun = started + zone * 3600
    lines = [
        f"{datetime.fromtimestamp(begun + n, UTC).strftime(stamp)} INFO line {n} <b>"
        for n in range(60)
    ]
    log.write_text("\n".join(["no time", *lines]) + "\n")
    (tmp_path / "logs" / "empty.log").touch()
    (found,) = excerpts(tmp_path, started * SECOND, (started + 30) * SECOND)
    assert found.path == "logs/B/1/server.log"
    assert [line.split()[4] for line in found.lines] == ["28", "29", "30", "31"]
    assert len(found.lines) <= MOST_LINES
    assert found.line == 30
    assert log.read_text().splitlines()[found.line - 1] == found.lines[0]
    (silent,) = excerpts(tmp_path, started * SECOND, None)
    assert (silent.lines, silent.line) == ([], 0)


def test_drawing_changes_nothing_in_the_run_directory(failback: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in failback.rglob("*")}
    lanes_around(failback, ())
    assert {path: path.stat().st_mtime_ns for path in failback.rglob("*")} == before
    assert RunReader(failback).damage() == []


@pytest.mark.parametrize(
    "name",
    [
        "marker-lost-and-overrun",
        "marker-lost-in-its-epoch",
        "last-marker-lost",
        "commit-became-abort",
    ],
)
def test_commits_have_the_markers_that_the_check_finds(tmp_path: Path, name: str) -> None:
    made, _ = CATALOGUE[name].made(1)
    run = made.write(tmp_path / "run")
    wrong = {"commit-unmarked": commits.NONE, "commit-aborted": commits.ABORT}
    rows = [
        each
        for view in views(run)
        for each in kernel(view)
        if isinstance(each, Found) and each.kind in wrong
    ]
    assert rows
    found = commits.commits(run)
    ended = {
        (each.operation, each.cluster): each
        for each in found.listed
        if each.ending in wrong.values()
    }
    assert len(ended) == len(rows)
    for row in rows:
        each = ended[cast(int, row.evidence["operation"]), row.cluster]
        assert (each.ending, each.first) == (wrong[row.kind], row.evidence["first_offset"])
        assert each.marker == (row.offset if row.kind == "commit-aborted" else -1)
    assert (
        found.counted[commits.COMMIT]
        == sum(each.ending == commits.COMMIT for each in found.listed)
        > 0
    )


def test_many_commits_are_counted_and_some_are_listed(
    failback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = commits.commits(failback)
    monkeypatch.setattr(commits, "MOST", 2)
    some = commits.commits(failback)
    assert some.counted == every.counted
    assert len(some.listed) == 2 < len(every.listed)


def test_how_a_commit_ends_in_an_uncaptured_log_is_unknown(tmp_path: Path) -> None:
    run = story(spec(1, shape="failover")).write(tmp_path / "run")
    before = commits.commits(run).counted
    for path in run.glob("captures/*/A/*/A.orders-0"):
        shutil.rmtree(path)
    after = commits.commits(run).counted
    assert set(before) == {commits.COMMIT}
    assert after[commits.UNKNOWN] > 0
    assert after[commits.UNKNOWN] + after[commits.COMMIT] == before[commits.COMMIT]
    assert after[commits.NONE] == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"interruptions": 2}, "interruptions 2"),
        ({"before_ms": 5.9, "during_ms": [124.4, 119.5]}, "before_ms 5.9, during_ms 124.4, 119.5"),
        (
            [{"topic": "A.orders", "promoted": 20}, {"topic": "B"}],
            "topic A.orders, promoted 20; topic B",
        ),
        ([], "none"),
        ({}, "none"),
        ((True, None), "true, none"),
        (1_800_000_000_397_157_251, "2027-01-15 08:00:00.397 UTC"),
        (1 << 62, str(1 << 62)),
        ("at least 1", "at least 1"),
    ],
)
def test_events_are_described_in_words(value: object, words: str) -> None:
    assert in_words(value) == words


def test_of_a_long_history_the_logs_are_shown_and_the_command_is_named(tmp_path: Path) -> None:
    made, _ = CATALOGUE["mirrored-batch-lost"].made(1)
    run = made.write(tmp_path / "run")
    anomalies = judged_again(run).judged.anomalies
    (short,), (long,) = (
        explain_several(run, anomalies, [1], history=history) for history in (True, False)
    )
    assert long.sides == short.sides != ()
    shown = io.StringIO()
    evidence.write_explanation(long, shown)
    assert "batches of B/1" in shown.getvalue()
    assert "its operations and polls are shown by linkflap explain RUNDIR 1" in shown.getvalue()
    assert "no operation of the history touches it" not in shown.getvalue()
