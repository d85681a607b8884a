"""What the report draws, as numbers: lanes of logs, operations, the failover certificate, and lines
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
from linkflap.harness.model.verdict import Anomaly, Failover, PromotedPartition
from linkflap.harness.report import evidence
from linkflap.harness.report.broker_logs import MOST_LINES, excerpts
from linkflap.harness.report.operations import Done, errors, latency
from linkflap.harness.report.payload import script_safe
from linkflap.harness.report.words import in_words
from linkflap.harness.rundir import RunReader
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.commit_aborted import kernel
from linkflap.spark_verify.inspect import commits
from linkflap.spark_verify.inspect import lanes as drawn
from linkflap.spark_verify.inspect.explain import explain_several
from linkflap.spark_verify.inspect.lanes import Points, lanes, lanes_around
from linkflap.spark_verify.read.assemble import views
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.certificate import certificate
from tests.copied_logs import judged_again
from tests.events import event
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.kafka_log import batches_in, field_of

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def failback(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story(spec(1, shape="round-trip")).write(tmp_path_factory.mktemp("lanes") / "run")


def test_a_lane_has_every_batch_of_its_log(failback: Path) -> None:
    for lane in lanes_around(failback, ()):
        moment = "*" if lane["truncated"] is None else "1-*"
        logs = sorted(
            failback.glob(
                f"captures/{moment}/{lane['cluster']}/{lane['broker']}/{lane['topic']}-{lane['partition']}"
            )
        )
        log = logs[-1] if lane["truncated"] is None else logs[0]
        bases = [
            field_of(batch, "base_offset")
            for path in sorted(log.glob("*.log"))
            for _, batch in batches_in(path)
        ]
        assert lane["base"] == bases
        assert lane["batches"] == len(bases)
        assert lane["bins"] is None


def test_what_was_truncated_is_a_lane_of_its_own(failback: Path) -> None:
    found = [
        (lane["cluster"], lane["generation"], lane["truncated"])
        for lane in lanes_around(failback, ())
        if lane["partition"] == 0
    ]
    assert ("A", 1, None) in found
    assert [
        generation for cluster, generation, at in found if cluster == "A" and at is not None
    ] == [0]
    assert ("B", 0, None) in found


def test_of_many_batches_those_worth_a_look_stay(
    failback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {
        (lane["topic"], lane["partition"], lane["cluster"], lane["generation"]): lane
        for lane in lanes_around(failback, ())
    }
    monkeypatch.setattr(drawn, "RAW", sum(lane["batches"] for lane in every.values()) // 2)
    monkeypatch.setattr(drawn, "AROUND", (2,))
    topic, partition, _, _ = next(iter(every))
    for lane in lanes(plan(failback), Points(offsets={(topic, partition): [5]})):
        whole = every[lane["topic"], lane["partition"], lane["cluster"], lane["generation"]]
        bins = lane["bins"]
        assert bins is not None
        assert sum(bins["records"]) == sum(whole["count"])
        assert sum(bins["markers"]) == sum(kind > 1 for kind in whole["kind"])
        assert set(lane["base"]) < set(whole["base"])
        if (lane["topic"], lane["partition"]) == (topic, partition):
            assert any(
                base <= 5 < base + count
                for base, count in zip(lane["base"], lane["count"], strict=True)
            )


def test_an_empty_log_is_an_empty_lane(failback: Path, tmp_path: Path) -> None:
    made = story(spec(1, shape="failover"))
    run = made.write(tmp_path / "run")
    for path in run.glob("captures/*/A/*/A.orders-0/*.log"):
        path.write_bytes(b"")
    empty = [
        lane
        for lane in lanes_around(run, ())
        if (lane["cluster"], lane["topic"], lane["partition"]) == ("A", "A.orders", 0)
    ]
    assert [(lane["base"], lane["batches"]) for lane in empty] == [([], 0)]


Outcome = Literal["ok", "fail", "info"]


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


def test_latency_errors_and_what_never_returned() -> None:
    done = Done()
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
    done = Done()
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


def test_the_certificate_of_a_failover() -> None:
    parts = tuple(
        PromotedPartition(topic="A.t", partition=n, promotion_offset=10 + n, producer_ids=3)
        for n in (1, 0)
    )
    failover = Failover(
        link="A->B", kind="forced", promoted=2, rpo_records=4, fault_time=50, partitions=parts
    )
    journal = [
        {
            "topic": "A.t",
            "partition": 0,
            "mirrored": 9,
            "promoted": 10,
            "appended": [[9, "ABORT of producer 2, epoch 1"]],
            "truncated": [[12, 9]],
        }
    ]
    events = [
        event("mirror-stopped", "A->B", at=60, partitions=journal),
        event("failover", "A->B", at=70, kind="forced", fault_time=50, open_transactions=2),
        event("mirror-stopped", "A->B", at=90, partitions=[]),
    ]
    anomalies = [
        Anomaly(
            check="g",
            kind="group-replay",
            cluster="B",
            topic="A.t",
            partition=0,
            evidence={"records": 7},
            allowed=True,
        ),
        Anomaly(
            check="g",
            kind="group-skip",
            cluster="B",
            topic="A.t",
            partition=1,
            evidence={"records": 2},
        ),
        Anomaly(
            check="g",
            kind="group-skip",
            cluster="A",
            topic="A.t",
            partition=1,
            evidence={"records": 99},
        ),
        *(
            Anomaly(
                check="t",
                kind="torn-by-failover",
                cluster="B",
                evidence={"link": "A->B", "operation": 5},
            )
            for _ in range(2)
        ),
    ]
    (row,) = certificate([failover], anomalies, events)
    assert (
        row.open_transactions,
        row.aborted_transactions,
        row.torn_transactions,
        row.rpo_records,
    ) == (2, 1, 1, 4)
    assert [
        (p.partition, p.aborted, p.truncated, p.group_skip, p.group_replay) for p in row.partitions
    ] == [
        (0, 1, 3, 0, 7),
        (1, None, None, 2, 0),
    ]


def test_of_a_mirror_that_keeps_no_journal_nothing_is_said() -> None:
    part = PromotedPartition(topic="A.t", partition=0, promotion_offset=1)
    (row,) = certificate([Failover(link="A->B", partitions=(part,))], (), ())
    assert (row.aborted_transactions, row.open_transactions, row.partitions[0].truncated) == (
        None,
        None,
        None,
    )


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


def test_of_a_log_that_was_not_captured_it_is_unknown_how_a_commit_ends(tmp_path: Path) -> None:
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
def test_what_events_hold_is_in_words(value: object, words: str) -> None:
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
    evidence.tell_why(long, shown)
    assert "batches of B/1" in shown.getvalue()
    assert "its operations and polls are shown by linkflap explain RUNDIR 1" in shown.getvalue()
    assert "no operation of the history touches it" not in shown.getvalue()
