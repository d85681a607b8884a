"""The table, JUnit XML and the size of a report."""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import Element, parse

import numpy as np
import pytest

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Note
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.rundir import RunReader
from linkflap.report import document as documents
from linkflap.report import junit, page_data, table
from linkflap.report.page_data import MOST_TEXT, payload, script_safe
from linkflap.report.timeline import Mark, ReturnedOperations, Series, series
from linkflap.spark_verify.facts.eras import FOREVER, Era, LogGeneration
from linkflap.spark_verify.inspect import log_lanes
from linkflap.spark_verify.inspect.log_lanes import Drawn, LanePoints
from linkflap.spark_verify.read.captures import CapturedReplica
from tests.unit.recorded_run import DIED, DONE, Recorded
from tests.unit.recorded_verdict import document

# The table has what was examined and found, and hides nothing that was capped or allowed.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "a run", seconds=3.0).write().close()


def shown(document: dict[str, object], folder: Path) -> str:
    stream = io.StringIO()
    table.show(document, folder, stream)
    return stream.getvalue()


def test_table_of_a_valid_run(folder: Path) -> None:
    text = shown(document(folder), folder)
    assert "VALID  link-flap, mm2 on process, seed 4711" in text
    assert "lost-write       valid" in text
    assert "A/native 1,830, B/native 1,011, B/mirrored 1,790" in text
    assert "failover A->B forced: RPO 17 records, RTO 1.43 s" in text
    assert (
        "allowed: 12 duplicate, first at B A.orders-0 @ 640: at-least-once delivery repeats "
        "what" in text
    )
    assert f"linkflap verify '{folder}'" in text
    assert "run again linkflap run link-flap --runtime process --seed 4711" in text
    assert "\x1b" not in text


def test_invalid_names_the_offset_and_the_evidence(folder: Path) -> None:
    text = shown(document(folder, "invalid"), folder)
    assert "INVALID  link-flap" in text
    assert "lost-write  B A.orders-0 @ 1201  uid 1099511628417, acknowledged_on A" in text
    assert "2 acknowledged records are nowhere" in text


def test_anomalies_are_numbered_as_explain_counts_them(folder: Path) -> None:
    verdict = document(folder, "invalid")
    anomalies = documents.read(verdict).anomalies
    number = next(n for n, a in enumerate(anomalies, start=1) if a.kind == "lost-write")
    text = shown(verdict, folder)
    assert f"{number}. lost-write  B A.orders-0 @ 1201" in text
    assert f"linkflap explain '{folder}' 1" in text
    assert "linkflap explain" not in shown(document(folder, "valid") | {"anomalies": []}, folder)


def test_causes_stand_for_what_follows_from_them(folder: Path) -> None:
    follows = {
        "check": "lost-write",
        "kind": "lost-write",
        "count": 2,
        "said": "2 are lost",
        "anomaly": 3,
    }
    cause = {
        "sentence": "B acknowledged a record and did not append it.", "check": "ghost-ack",
        "kind": "ghost-ack", "anomaly": 1,
        "count": 2, "consequences": [follows],
    }  # fmt: skip
    text = shown(
        document(folder, "invalid") | {"cause": cause["sentence"], "causes": [cause]}, folder
    )
    assert "1. ghost-ack  B acknowledged a record and did not append it." in text
    assert "   follows: 3. 2 lost-write  2 are lost" in text
    assert text.split("INVALID")[1].splitlines()[1] == cause["sentence"]
    assert "uid 1099511628417" not in text


def test_anomalies_beyond_the_cap_are_counted(folder: Path) -> None:
    capped = document(folder, "invalid")
    checks = capped["checks"]
    assert isinstance(checks, list)
    checks[1]["anomalies"] = 5000
    checks[0]["allowed"] = 40
    text = shown(capped, folder)
    assert "and 4,998 more anomalies" in text
    assert "and 28 more allowed anomalies" in text
    assert documents.read(capped).left_out == 4998 + 28


def test_unknown_tells_why(folder: Path) -> None:
    text = shown(document(folder, "unknown") | {"reason": "the fault f1 did not bite"}, folder)
    assert "UNKNOWN" in text
    assert "the fault f1 did not bite" in text
    assert "no reads" in text


def test_no_write_after_the_failover(folder: Path) -> None:
    failover = {
        "link": "A->B",
        "kind": "forced",
        "promoted": 2,
        "rpo_records": 0,
        "rto_seconds": None,
    }
    assert "RPO 0 records, RTO no write succeeded afterwards" in shown(
        document(folder) | {"failovers": [failover]}, folder
    )


def test_a_failover_that_was_refused_at_first_says_with_what_and_for_how_long(folder: Path) -> None:
    failover = {
        "link": "A->B",
        "kind": "forced",
        "promoted": 2,
        "rpo_records": 0,
        "rto_seconds": 4.7,
        "refused": {"INVALID_CLUSTER_MIRROR_STATES (145)": 9},
        "accepted_after": 3.6,
    }
    assert (
        "RPO 0 records, RTO 4.70 s; refused at first: 9 x INVALID_CLUSTER_MIRROR_STATES (145), "
        "accepted after 3.60 s"
    ) in " ".join(shown(document(folder) | {"failovers": [failover]}, folder).split())


def test_the_least_document_and_no_folder(tmp_path: Path) -> None:
    text = shown({"verdict": "unknown"}, tmp_path / "gone")
    assert "UNKNOWN" in text
    assert "run again" not in text


def test_names_are_not_markup(folder: Path) -> None:
    odd = document(folder, "invalid")
    checks = odd["checks"]
    assert isinstance(checks, list)
    checks[1]["reason"] = "[red]odd[/nothing] :smile:"
    assert "[red]odd[/nothing] :smile:" in shown(odd, folder)


def test_narrow_terminals_lose_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    table.show(document(folder, "invalid"), folder, stream)
    lines = [
        line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    ]
    assert "lost-write: 2 acknowledged records are nowhere" in lines
    before_the_folder = lines[: next(n for n, line in enumerate(lines) if line.startswith("run "))]
    assert max(map(len, before_the_folder)) <= 80
    for text in ("A/native 1,830,", "B/native 1,011,", "B/mirrored 1,790", "uid 1099511628417"):
        assert any(text in line for line in lines)


@pytest.mark.parametrize("broken", [{}, {"verdict": "fine"}, {"verdict": "valid", "checks": 3}])
def test_malformed_verdict_document_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(InputError, match="the verdict document cannot be read"):
        documents.read(broken)


def era(
    cluster: str, start: int, end: int | None, partition: int = 0, **rest: Any
) -> dict[str, object]:
    row: dict[str, Any] = {
        "topic": "A.t",
        "partition": partition,
        "cluster": cluster,
        "origin": "native",
        "owner": cluster,
        "source": "",
    }
    return row | {"start": start, "end": end, "compared": {"records": 5}, "verdict": "valid"} | rest


def test_eras_are_one_line_per_cluster_and_era(folder: Path) -> None:
    from_b: dict[str, Any] = {"origin": "mirrored", "source": "B"}
    verdict = document(folder) | {
        "eras": [
            era("A", 3, None, truncated=True, compared={}, verdict="not due"),
            era("A", 0, 3, generation=1),
            era("A", 3, None, generation=1, **from_b, owner="B", anomalies=2, verdict="invalid"),
            era("A", 0, 4, partition=1, generation=1),
            era("C", 0, None, **from_b, owner="A", allowed=1),
        ]
    }
    lines = [" ".join(line.split()) for line in shown(verdict, folder).splitlines()]
    assert "A native valid 0-3 and 1 more records 10 0" in lines
    assert "A native, truncated not due 3- nothing 0" in lines
    assert "A from B invalid 3- records 5 2" in lines
    assert "C from B, written on A valid 0- records 5 0 +1 allowed" in lines
    assert lines.index("A native, truncated not due 3- nothing 0") < lines.index(
        "A from B invalid 3- records 5 2"
    )


def test_eras_of_several_sources_and_owners_are_lines_of_their_own(folder: Path) -> None:
    """B has topics of its own beside those that it took over from A, and C mirrors both, from
    either."""
    own: dict[str, Any] = {"topic": "B.t", "owner": "B"}
    from_b = own | {"origin": "mirrored", "source": "B"}
    verdict = document(folder) | {
        "eras": [
            era("B", 0, 4, origin="mirrored", owner="A", source="A", compared={"records": 4}),
            era("B", 4, None, compared={"records": 70}),
            era("C", 0, 4, origin="mirrored", owner="A", source="A", compared={"records": 4}),
            era("C", 4, None, origin="mirrored", owner="B", source="A", compared={"records": 70}),
            era("B", 0, None, **own, compared={"records": 800}),
            era("C", 0, None, **from_b, compared={"records": 800}, anomalies=1, verdict="invalid"),
        ]
    }
    lines = [" ".join(line.split()) for line in shown(verdict, folder).splitlines()]
    assert [line for line in lines if re.match(r"[BC] (native|from) ?", line)] == [
        "B from A valid 0-4 records 4 0",
        "B native valid 0- records 800 0",
        "B native valid 4- records 70 0",
        "C from A valid 0-4 records 4 0",
        "C from B invalid 0- records 800 1",
        "C from A, written on B valid 4- records 70 0",
    ]


def test_check_that_was_not_due_is_shown_as_not_due(folder: Path) -> None:
    verdict = document(folder)
    checks = verdict["checks"]
    assert isinstance(checks, list)
    checks[2] |= {"verdict": "not due"}
    assert re.search(r"pid-uniqueness +not due", shown(verdict, folder))


def test_clients_that_died_are_named_with_what_they_had_in_flight(folder: Path) -> None:
    by_fault = DIED | {
        "process": "clients-4",
        "by": "kill",
        "clients": ["readers-1"],
        "signal": "SIGKILL",
        "in_flight": [],
    }
    text = " ".join(shown(document(folder) | {"clients_died": [DIED, by_fault]}, folder).split())
    assert (
        "died: transactional-1, transactional-2 (clients-1, SIGABRT), in flight: transaction 7 "
        "(commit) of transactional-2" in text
    )
    assert (
        "died: readers-1 (clients-4, by fault kill, SIGKILL), in flight: nothing; started again"
        in text
    )
    assert "died:" not in shown(document(folder), folder)


# JUnit XML, parsed as a CI system would parse it.


def written(tmp_path: Path, *documents: dict[str, object]) -> Element:
    path = tmp_path / "new" / "junit.xml"
    junit.write(path, documents)
    root = parse(path).getroot()
    assert root is not None
    return root


def test_junit_of_a_failed_command_has_a_case_for_it(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    junit.write(path, [document(tmp_path)], failed="the command ended with status 3")
    root = parse(path).getroot()
    assert root is not None
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    (failure,) = root.iter("failure")
    assert failure.get("message") == "the command ended with status 3"


def test_junit_of_a_valid_run(tmp_path: Path) -> None:
    root = written(tmp_path, document(tmp_path))
    assert root.attrib == {"name": "linkflap", "tests": "3", "failures": "0", "errors": "0"}
    assert [case.get("name") for case in root.iter("testcase")] == [
        "order-equality",
        "lost-write",
        "pid-uniqueness",
    ]
    assert "allowed: duplicate B A.orders-0 @ 640: at-least-once" in (
        root.findtext(".//system-out") or ""
    )
    assert root.find(".//property[@name='seed']").attrib["value"] == "4711"  # type: ignore[union-attr]


def test_violations_are_failures(tmp_path: Path) -> None:
    root = written(tmp_path, document(tmp_path, "invalid"))
    assert (root.get("failures"), root.get("errors")) == ("1", "0")
    failure = root.find(".//testcase[@name='lost-write']/failure")
    assert failure is not None
    assert failure.get("message") == "2 anomalies: 2 acknowledged records are nowhere"
    assert "lost-write B A.orders-0 @ 1201" in (failure.text or "")
    assert "<script>" in (failure.text or "")


def test_unknown_is_an_error_and_never_passes(tmp_path: Path) -> None:
    root = written(tmp_path, document(tmp_path, "unknown"))
    assert (root.get("failures"), root.get("errors")) == ("0", "1")


def test_a_verdict_that_no_check_answers_for_is_a_case_of_its_own(tmp_path: Path) -> None:
    root = written(
        tmp_path, document(tmp_path) | {"verdict": "unknown", "reason": "the fault f1 did not bite"}
    )
    assert (root.get("tests"), root.get("errors")) == ("4", "1")
    error = root.find(".//testcase[@name='run']/error")
    assert error is not None
    assert error.get("message") == "the fault f1 did not bite"


def test_a_verdict_without_checks_is_not_an_empty_suite(tmp_path: Path) -> None:
    root = written(tmp_path, {"verdict": "unknown"})
    assert (root.get("tests"), root.get("errors")) == ("1", "1")


def test_several_runs_and_characters_that_xml_cannot_hold(tmp_path: Path) -> None:
    odd = document(tmp_path, "invalid")
    anomalies = odd["anomalies"]
    assert isinstance(anomalies, list)
    anomalies[0]["topic"] = "nul\x00 and \x1b[31m"
    root = written(tmp_path, odd, document(tmp_path))
    assert root.get("tests") == "6"
    assert len(root.findall("testsuite")) == 2
    assert "nul\ufffd and \ufffd[31m" in (root.findtext(".//failure") or "")


def test_a_check_that_was_not_due_is_skipped(tmp_path: Path) -> None:
    verdict = document(tmp_path)
    checks = verdict["checks"]
    assert isinstance(checks, list)
    checks[2] |= {"verdict": "not due", "reason": "nothing to examine"}
    root = written(tmp_path, verdict)
    (suite,) = root.findall("testsuite")
    assert (suite.get("skipped"), root.get("failures"), root.get("errors")) == ("1", "0", "0")
    skipped = root.find(".//testcase[@name='pid-uniqueness']/skipped")
    assert skipped is not None
    assert skipped.get("message") == "nothing to examine"


def test_clients_that_died_are_properties(tmp_path: Path) -> None:
    root = written(tmp_path, document(tmp_path) | {"clients_died": [DIED, DONE]})
    ended = [p.get("value") for p in root.iter("property") if p.get("name") == "client-ended"]
    assert ended == ["command-1 (command-1, exit status 0)"]
    died = [p.get("value") for p in root.iter("property") if p.get("name") == "client-died"]
    assert died == ["transactional-1, transactional-2 (clients-1, SIGABRT)"]


# The report of a run of a million records is small: 3 MB at most, whatever the run has many of.


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


def many_lanes(monkeypatch: pytest.MonkeyPatch, points: LanePoints) -> Sequence[log_lanes.Lane]:
    same = headers()
    logs = [log(cluster, partition, same) for partition in range(PARTITIONS) for cluster in "AB"]
    monkeypatch.setattr(log_lanes, "drawn_logs", lambda planned: iter(logs))
    return log_lanes.lanes(SimpleNamespace(promotions={}), points)  # type: ignore[arg-type]


def test_batches_that_are_drawn_are_bounded_over_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = {
        ("A.orders", partition): set(range(0, BATCHES * 10, 2_500))
        for partition in range(PARTITIONS)
    }
    times = {(1_790_000_000_000 + each * 3_000) * 1_000_000 for each in range(200)}
    found = many_lanes(monkeypatch, LanePoints(offsets=wrong, times=times))
    assert 0 < sum(len(lane["base"]) for lane in found) <= log_lanes.RAW
    # All of them are counted, and each partition has some.
    assert {sum(lane["bins"]["records"]) for lane in found if lane["bins"]} == {BATCHES * 10}
    assert all(lane["bins"] for lane in found)
    assert min(len(lane["base"]) for lane in found) > 0


def test_batches_near_an_anomaly_are_kept_before_those_near_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {(1_790_000_000_000 + each * 1_200) * 1_000_000 for each in range(500)}
    found = many_lanes(monkeypatch, LanePoints(offsets={("A.orders", 7): [50_000]}, times=times))
    there = [lane for lane in found if lane["partition"] == 7]
    assert [50_000 in lane["base"] for lane in there] == [True, True]
    assert sum(len(lane["base"]) for lane in found) < log_lanes.RAW


def test_gaps_name_where_batches_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
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


def every_commit() -> log_lanes.Commits:
    listed = [
        log_lanes.Commit(
            operation=(n % CLIENTS << 40) + n, cluster="A", topic="A.orders",
            partition=n % PARTITIONS, first=n * 11,
            returned=1_790_000_000_000_000_000 + n * 10**7, ending=ending, marker=n * 11 + 10,
            written=1_790_000_000_000 + n,
        )
        for ending in (log_lanes.NONE, log_lanes.ABORT, log_lanes.COMMIT,
        log_lanes.UNKNOWN) for n in range(log_lanes.MOST)
    ]  # fmt: skip
    return log_lanes.Commits(
        listed=listed, counted=dict.fromkeys((log_lanes.NONE, log_lanes.COMMIT), 500_000)
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
    assert len(drawn["operations"]["start"]) == page_data.MOST_OPERATIONS
    assert drawn["operations_left_out"] == OPERATIONS - page_data.MOST_OPERATIONS
    assert len(drawn["marks"]) == page_data.MOST_MARKS
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
        page_data.MOST_OPERATIONS / 2, abs=1
    )
