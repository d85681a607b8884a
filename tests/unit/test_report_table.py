"""The table has what was examined and found, and hides nothing that was capped or allowed."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from linkflap.harness.model.errors import InputError
from linkflap.report import document as documents
from linkflap.report import table
from tests.unit.recorded_run import DIED, Recorded
from tests.unit.recorded_verdict import document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "a run", seconds=3.0).write().close()


def shown(document: dict[str, object], folder: Path) -> str:
    stream = io.StringIO()
    table.show(document, folder, stream)
    return stream.getvalue()


def test_valid(folder: Path) -> None:
    text = shown(document(folder), folder)
    assert "VALID  link-flap, mm2 on process, seed 4711" in text
    assert "lost-write       valid" in text
    assert "A/native 1,830, B/native 1,011, B/mirrored 1,790" in text
    assert "failover A->B forced: RPO 17 records, RTO 1.43 s" in text
    assert (
        "allowed: 12 duplicate on B, first at B A.orders-0 @ 640: at-least-once delivery repeats "
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


def test_what_was_capped_is_counted(folder: Path) -> None:
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
def test_what_is_no_document(broken: dict[str, object]) -> None:
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
    verdict = document(folder) | {
        "eras": [
            era("A", 3, None, truncated=True, compared={}, verdict="not due"),
            era("A", 0, 3, generation=1),
            era(
                "A",
                3,
                None,
                generation=1,
                origin="mirrored",
                owner="B",
                source="B",
                anomalies=2,
                verdict="invalid",
            ),
            era("A", 0, 4, partition=1, generation=1),
            era("C", 0, None, origin="mirrored", owner="A", source="B", allowed=1),
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
    verdict = document(folder) | {
        "eras": [
            era("B", 0, 4, origin="mirrored", owner="A", source="A", compared={"records": 4}),
            era("B", 4, None, compared={"records": 70}),
            era("C", 0, 4, origin="mirrored", owner="A", source="A", compared={"records": 4}),
            era("C", 4, None, origin="mirrored", owner="B", source="A", compared={"records": 70}),
            era("B", 0, None, **own, compared={"records": 800}),
            era(
                "C",
                0,
                None,
                **own,
                origin="mirrored",
                source="B",
                compared={"records": 800},
                anomalies=1,
                verdict="invalid",
            ),
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


def test_what_was_not_due_says_so(folder: Path) -> None:
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
