"""The page: complete, self-contained, escaped, and truthful about damaged or empty runs.

Lanes of logs in a report: batches, truncations, and what is omitted when there are many.

The data of the report's drawings: lanes of logs, operations, the failover certificate, and lines
of brokers' logs.

Rates, levels and lag of a report equal those of the rows.

The certificate of a failover, in a report.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pytest

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Note
from linkflap.harness.model.history import Operation, Phase
from linkflap.harness.model.verdict import Anomaly, Failover, PromotedPartition
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.report import evidence, html
from linkflap.report.html import MOST_LINES, excerpts
from linkflap.report.page_data import MOST_EVENTS, script_safe
from linkflap.report.timeline import ReturnedOperations, errors, in_words, latency, series
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.commit_aborted import kernel
from linkflap.spark_verify.inspect import log_lanes
from linkflap.spark_verify.inspect import log_lanes as drawn
from linkflap.spark_verify.inspect.explain import explain_several
from linkflap.spark_verify.inspect.log_lanes import LanePoints, lanes, lanes_around
from linkflap.spark_verify.read.plan import plan
from linkflap.spark_verify.verdict.certificate import certificate
from tests.copied_logs import judged_again
from tests.events import event
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.kafka_log import batches_in, field_of
from tests.run_copy import views
from tests.traced import peak
from tests.unit.recorded_run import DIED, DONE, Recorded, run
from tests.unit.recorded_verdict import document

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Balanced tags, texts, and everything that the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [
            v
            for name, v in attrs
            if name in ("src", "href") and v and not v.startswith(("#", "data:,", "logs/"))
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "run").write().close()


def page(folder: Path, verdict: str = "valid", **more: object) -> Page:
    return Page(html.page(folder, document(folder, verdict) | more))


def test_report_of_an_invalid_run_shows_each_section(folder: Path) -> None:
    shown = page(folder, "invalid")
    for text in (
        "invalid link-flap the link flaps and slows",
        "anomalies 2, and 12 that the mirror's guarantee allows",
        "mm2 (delivery at-least-once)",
        "linkflap run link-flap --runtime process --seed 4711",
        "linkflap 0.1.0, kafka 4.3.1, toxiproxy 2.12.0",
        "failover A->B (forced) at 12.50 s, B promoted at 13.00 s",
        (
            "lost-write invalid A/native 1,830 B/native 1,011 B/mirrored 1,790 2 0 2 acknowledged "
            "records are nowhere"
        ),
        "A->B forced cost RPO 17 records, RTO 1.43 s promoted 2 partitions",
        (
            "latency f2 A->B 5.50 s 8.60 s yes round trip, ms: 252.1 expected >= 200 no toxic left,"
            " every broker answers"
        ),
        "failover f4 A->B 12.00 s for good yes",
        "B A.orders-0 @ 1201",
        "B A.orders-0 nowhere",
        "allowed: at-least-once delivery repeats what was not committed when the link was cut",
        "A 3 brokers Kafka 4.3.1 -> B B 1 broker Kafka 4.3.1",
    ):
        assert text in shown.text
    assert "What cannot be trusted" not in shown.text


def test_self_contained_and_escaped(folder: Path) -> None:
    shown = page(folder, "invalid")
    assert shown.fetched == []
    assert shown.tags.count("script") == 2, "one with data, one of our own"
    assert "<script>alert(1)</script>" in shown.text


def test_capped_anomalies_are_counted(folder: Path) -> None:
    capped = document(folder, "invalid")
    checks = capped["checks"]
    assert isinstance(checks, list)
    checks[1] |= {"anomalies": 5000, "kinds": {"lost-write": 5000}}
    shown = Page(html.page(folder, capped)).text
    assert "lost-write 5,000" in shown
    assert "4,998 more of this kind were found" in shown
    assert "4,998 more anomalies were counted than the document holds" in shown


def test_written_into_the_run_directory(folder: Path) -> None:
    path = html.write(
        folder,
        document(folder),
        html.About(meanings={"duplicate": "THE MEANING"}),
    )
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    assert "THE MEANING" in text


def test_damage_is_named(folder: Path) -> None:
    (folder / "polls" / "reader-1.jsonl").unlink()
    with (folder / "operations" / "producer-1.jsonl").open("ab") as file:
        file.write(b'{"number":12,"pha')
    (folder / "captures" / "end" / "bounds.json").write_text("[{")
    shown = page(folder, "unknown")
    assert "What cannot be trusted" in shown.text
    assert "polls/reader-1.jsonl missing: it was there when the run ended" in shown.text
    assert re.search(r"operations/producer-1.jsonl line \d+ is torn", shown.text)
    assert "captures/end/bounds.json" in shown.text


@pytest.mark.parametrize("kept", [10, 200, 4000])
def test_any_torn_file_still_gives_a_page(folder: Path, kept: int) -> None:
    for path in folder.rglob("*.json*"):
        if path.name != "run.json":
            path.write_bytes(path.read_bytes()[:-kept])
    assert "What cannot be trusted" in page(folder, "unknown").text


def test_killed_before_anything_happened(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    killed = (tmp_path / "run" / "run.json").read_bytes()
    writer.close("finished")
    (tmp_path / "run" / "manifest.json").unlink()
    (tmp_path / "run" / "run.json").write_bytes(killed)
    shown = Page(
        html.page(tmp_path / "run", {"verdict": "unknown", "reason": "nothing was examined"})
    )
    for text in (
        "The run did not finish: its status is running",
        "nothing was examined",
        "Nothing was recorded that could be drawn",
        "No check was made",
        "No fault was played",
        "the run never ended: its harness was killed, or it still runs",
    ):
        assert text in shown.text


def test_moments_that_no_calendar_has_are_numbers(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(re.sub(r'"started": \d+', '"started": 1' + 30 * "0", path.read_text()))
    assert "1e+30 ns after 1970" in page(folder, "unknown").text


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run directory"):
        html.page(tmp_path, {"verdict": "valid"})


def test_the_same_run_gives_the_same_page(folder: Path) -> None:
    assert html.page(folder, document(folder)) == html.page(folder, document(folder))


def test_a_fault_that_never_ended_and_one_that_did_not_bite(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A->B", id="f1", fault="latency", restores=True))
    writer.write(
        event(
            "fault-bite",
            "A->B",
            id="f1",
            bit=False,
            observable="round trip",
            measured=1,
            expected=200,
        )
    )
    writer.write(event("fault-start", "A/1", id="f2", fault="pause $x$ & <b>", restores=True))
    writer.close("interrupted")
    shown = page(tmp_path / "run", "unknown")
    assert "latency f1 A->B 0.00 s no end recorded no round trip: 1 expected 200" in shown.text
    assert "not measured" in shown.text
    assert "pause $x$ & <b> f2 A/1" in shown.text


def test_client_processes_that_ended_have_a_table_of_their_own(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", seconds=1.0).write().close()
    text = Page(html.page(folder, document(folder) | {"clients_died": [DIED, DONE]})).text
    assert "Client processes that ended" in text
    assert "command-1 command-1 A, 2026-09-21 14:13:23 UTC exit status 0" in text
    assert "died" not in text
    assert "transactional-1, transactional-2 clients-1 A, 2026-09-21 14:13:23 UTC SIGABRT" in text
    assert "transaction 7 (commit) of transactional-2" in text
    assert 'Assertion "BUG: Invalid transaction state' in text
    assert "Client processes that ended" not in Page(html.page(folder, document(folder))).text


def test_requests_that_no_check_needs_are_listed_by_api_and_version(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", seconds=1.0).write().close()
    counts = {"B": {"<b> v3": 1, "Heartbeat v4": 1200}}
    text = Page(html.page(folder, document(folder) | {"forwarded_unread": counts})).text
    assert "1,201 requests of programs to B were forwarded unread" in text
    assert "Heartbeat v4 1,200 <b> v3 1" in text
    assert "forwarded unread" not in Page(html.page(folder, document(folder))).text


def test_events_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    def left_out(name: str, notes: int) -> int:
        recorded = Recorded(tmp_path / name, seconds=1.0).write()
        for number in range(notes):
            recorded.writer.write(Note(about="A", name="mark", data={"number": number}))
        folder = recorded.close()
        (found,) = re.findall(r'"events_left_out":(\d+)', html.page(folder, document(folder)))
        return int(found)

    assert left_out("few", 1) == 0
    assert left_out("more", MOST_EVENTS + 5) - left_out("many", MOST_EVENTS) == 5


def test_an_unknown_run_shows_one_reason_and_folds_the_others(folder: Path) -> None:
    """The reasons of all checks at once would fill the first screen."""
    written = document(folder, "unknown")
    checks = written["checks"]
    assert isinstance(checks, list)
    first, second = checks[1]["name"], checks[2]["name"]
    checks[1] |= {
        "reason": "operations/p1.jsonl: has 5 bytes, had 9 when the run ended; and 6 more"
    }
    checks[2] |= {"verdict": "unknown", "reason": "the log of A is torn"}
    written["reason"] = "; ".join(f"{each['name']}: {each['reason']}" for each in checks[1:3])
    text = html.page(folder, written)
    (cause,) = re.findall(r'<p class="cause">(.*?)</p>', text)
    assert cause == f"{first}: operations/p1.jsonl: has 5 bytes, had 9 when the run ended"
    shown = Page(text).text
    assert "2 checks are unknown: all reasons" in shown
    assert f"{second}: the log of A is torn" in shown


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


def test_a_truncated_tail_has_its_own_lane(failback: Path) -> None:
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


def test_batches_near_an_offset_are_kept_and_the_others_counted(
    failback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {
        (lane["topic"], lane["partition"], lane["cluster"], lane["generation"]): lane
        for lane in lanes_around(failback, ())
    }
    monkeypatch.setattr(drawn, "RAW", sum(lane["batches"] for lane in every.values()) // 2)
    monkeypatch.setattr(drawn, "AROUND", (2,))
    topic, partition, _, _ = next(iter(every))
    for lane in lanes(plan(failback), LanePoints(offsets={(topic, partition): [5]})):
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


SECOND = 1_000_000_000


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
def test_no_text_ends_the_script_element(text: str) -> None:
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
    wrong = {"commit-unmarked": log_lanes.NONE, "commit-aborted": log_lanes.ABORT}
    rows = [
        each
        for view in views(run)
        for each in kernel(view)
        if isinstance(each, Found) and each.kind in wrong
    ]
    assert rows
    found = log_lanes.commits(run)
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
        found.counted[log_lanes.COMMIT]
        == sum(each.ending == log_lanes.COMMIT for each in found.listed)
        > 0
    )


def test_many_commits_are_counted_and_some_are_listed(
    failback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = log_lanes.commits(failback)
    monkeypatch.setattr(log_lanes, "MOST", 2)
    some = log_lanes.commits(failback)
    assert some.counted == every.counted
    assert len(some.listed) == 2 < len(every.listed)


def test_how_a_commit_ends_in_an_uncaptured_log_is_unknown(tmp_path: Path) -> None:
    run = story(spec(1, shape="failover")).write(tmp_path / "run")
    before = log_lanes.commits(run).counted
    for path in run.glob("captures/*/A/*/A.orders-0"):
        shutil.rmtree(path)
    after = log_lanes.commits(run).counted
    assert set(before) == {log_lanes.COMMIT}
    assert after[log_lanes.UNKNOWN] > 0
    assert after[log_lanes.UNKNOWN] + after[log_lanes.COMMIT] == before[log_lanes.COMMIT]
    assert after[log_lanes.NONE] == 0


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


def test_explanation_of_a_long_history_shows_logs_and_names_the_command(tmp_path: Path) -> None:
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


HELD_PER_ROW = 120
"""Bytes: measured 23; objects took 547."""


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

    def of_group(kind: str, records: int, *, cluster: str = "B", partition: int = 1) -> Anomaly:
        return Anomaly(
            check="g", kind=kind, cluster=cluster, topic="A.t", partition=partition,
            evidence={"records": records}, allowed=kind == "group-replay",
        )  # fmt: skip

    torn = Anomaly(
        check="t", kind="torn-by-failover", cluster="B",
        evidence={"link": "A->B", "operation": 5},
    )  # fmt: skip
    anomalies = [
        of_group("group-replay", 7, partition=0),
        of_group("group-skip", 2),
        of_group("group-skip", 99, cluster="A"),
        torn,
        torn,
    ]
    (row,) = certificate([failover], anomalies, events)
    assert (row.open_transactions, row.aborted_transactions) == (2, 1)
    assert (row.torn_transactions, row.rpo_records) == (1, 4)
    assert [
        (p.partition, p.aborted, p.truncated, p.group_skip, p.group_replay) for p in row.partitions
    ] == [
        (0, 1, 3, 0, 7),
        (1, None, None, 2, 0),
    ]


def test_refusals_before_an_accepted_failover_belong_to_that_failover() -> None:
    def end(seconds: float, refused: dict[str, int]) -> dict[str, object]:
        return {
            "verb": "stop",
            "accepted": True,
            "tries": 1 + sum(refused.values()),
            "refused": refused,
            "seconds": seconds,
        }

    events = [
        event("mirror-stopped", "A->B", at=60, stopped=end(3.6, {"NOT_YET (145)": 9})),
        event("failover", "A->B", at=70, kind="forced", fault_time=50, open_transactions=0),
        event("mirror-stopped", "A->B", at=90, stopped=end(0.1, {})),
        event("failover", "A->B", at=95, kind="planned", fault_time=80, open_transactions=0),
    ]
    first, later = certificate(
        [Failover(link="A->B", fault_time=50), Failover(link="A->B", fault_time=80)], (), events
    )
    assert first.refusals == "refused at first: 9 x NOT_YET (145), accepted after 3.60 s"
    assert (later.refused, later.accepted_after, later.refusals) == ({}, 0.1, "")


def test_a_mirror_without_a_journal_has_unknown_transactions_and_truncations() -> None:
    part = PromotedPartition(topic="A.t", partition=0, promotion_offset=1)
    (row,) = certificate([Failover(link="A->B", partitions=(part,))], (), ())
    assert (row.aborted_transactions, row.open_transactions, row.partitions[0].truncated) == (
        None,
        None,
        None,
    )
