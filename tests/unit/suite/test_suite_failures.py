"""Kinds of failure, and which runs failed alike."""

from __future__ import annotations

from linkflap.suite.failures import by_kind, kinds_of, name_of
from linkflap.suite.folder import RunResult


def document(
    *checks: tuple[str, str, dict[str, int], str],
    causes: list[dict[str, str]] | tuple[()] = (),
    verdict: str = "invalid",
) -> dict[str, object]:
    rows = [
        {"name": name, "verdict": said, "kinds": kinds, "reason": reason}
        for name, said, kinds, reason in checks
    ]
    return {
        "verdict": verdict,
        "reason": "12 of 30 things",
        "checks": rows,
        "causes": [dict(c) for c in causes],
    }


def test_root_anomalies_come_first() -> None:
    checks = [
        ("lost-write", "invalid", {"lost-write": 3}, ""),
        ("byte-equality", "invalid", {"byte-hole": 1}, ""),
    ]
    causes = [{"check": "byte-equality", "kind": "byte-hole"}]
    assert kinds_of(document(*checks, causes=causes)) == (
        "byte-equality:byte-hole",
        "lost-write:lost-write",
    )
    assert kinds_of(document(*reversed(checks))) == (
        "lost-write:lost-write",
        "byte-equality:byte-hole",
    )


def test_unknown_checks_beside_an_anomaly_are_left_out() -> None:
    checks = [("lost-write", "invalid", {"lost-write": 3}, ""), ("unseen", "unknown", {}, "why")]
    assert kinds_of(document(*checks)) == ("lost-write:lost-write",)


def test_unknowns_are_alike_but_for_their_numbers() -> None:
    one = document(("unseen", "unknown", {}, "17 of 20 readers; and more"), verdict="unknown")
    other = document(("unseen", "unknown", {}, "3 of 1,020 readers"), verdict="unknown")
    assert kinds_of(one) == kinds_of(other) == ("unknown:unseen:N of N readers",)
    assert kinds_of(document(verdict="unknown")) == ("unknown:run:N of N things",)
    assert kinds_of(document(verdict="valid")) == ()


def test_runs_with_a_kind_that_led_another_are_that_kinds() -> None:
    a = RunResult(number=1, verdict="invalid", kinds=("x:one", "y:two"))
    b = RunResult(number=2, verdict="invalid", kinds=("z:three", "x:one"))
    c = RunResult(number=3, verdict="invalid", kinds=("z:three",))
    assert {kind: [r.number for r in runs] for kind, runs in by_kind([c, b, a]).items()} == {
        "x:one": [1, 2],
        "z:three": [2, 3],
    }
    assert by_kind([RunResult(number=4, verdict="valid")]) == {}


def test_a_kind_that_most_runs_of_another_have_is_its_consequence_and_a_rarer_one_is_not() -> None:
    kinds = {4: ("refused",), 8: ("hangs", "refused"), 9: ("lie", "hangs", "refused")}
    runs = [RunResult(number=n, verdict="invalid", kinds=each) for n, each in kinds.items()]
    assert {kind: [r.number for r in each] for kind, each in by_kind(runs).items()} == {
        "refused": [4, 8, 9],
        "lie": [9],
    }


def test_kinds_are_names_of_folders() -> None:
    assert (
        name_of("unknown:unseen:N of N readers, of A->B") == "unknown-unseen-n-of-n-readers-of-a-b"
    )
