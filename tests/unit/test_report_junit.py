"""JUnit XML, parsed as a CI system would parse it."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, parse

from linkflap.report import junit
from tests.unit.recorded_run import DIED
from tests.unit.recorded_verdict import document


def written(tmp_path: Path, *documents: dict[str, object]) -> Element:
    path = tmp_path / "new" / "junit.xml"
    junit.write(path, documents)
    root = parse(path).getroot()
    assert root is not None
    return root


def test_valid(tmp_path: Path) -> None:
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
    root = written(tmp_path, document(tmp_path) | {"clients_died": [DIED]})
    died = [p.get("value") for p in root.iter("property") if p.get("name") == "client-died"]
    assert died == ["transactional-1, transactional-2 (clients-1, SIGABRT)"]
