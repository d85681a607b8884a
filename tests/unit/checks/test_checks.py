"""Every check obeys its protocol: each kind of anomaly has a smallest rejected history, and nothing
crashes on odd input."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from linkflap.harness.guarantees import ALLOWED
from linkflap.spark_verify.checks import REGISTRY, inconsistent_offset
from linkflap.spark_verify.checks.base import RUN_CHECKS, Examined, Found, PartialFinding, Unjudged
from linkflap.spark_verify.checks.finding_rows import FindingRow
from linkflap.spark_verify.checks.log_model import logs
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles import random_runs
from tests.oracles.agreement import findings
from tests.unit.checks.histories import Log, commit, poll, promoted, samples, view
from tests.unit.checks.verdicts import anomalies, assert_accepted, assert_rejected, examined

MODULES = {
    name: importlib.import_module(f"tests.unit.checks.test_check_{name.replace('-', '_')}")
    for name in REGISTRY
}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_kind_of_anomaly_has_a_smallest_history_that_is_rejected(name: str) -> None:
    rejected = getattr(MODULES[name], "REJECTS", {})
    assert set(rejected) == {kind.name for kind in REGISTRY[name].anomalies}


TABLES = {name: module for name, module in MODULES.items() if not hasattr(module, "test_accepts")}
"""Checks whose tables of smallest histories are of the common form: ACCEPTED has histories, and
how much is examined in each; REJECTS has one history for each kind."""


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, module in TABLES.items() for case in module.ACCEPTED]
)
def test_accepts(name: str, case: str) -> None:
    seen, counted = TABLES[name].ACCEPTED[case]
    assert_accepted(name, seen, counted=counted)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, module in TABLES.items() for kind in module.REJECTS]
)
def test_rejects(name: str, kind: str) -> None:
    assert_rejected(name, kind, TABLES[name].REJECTS[kind])


@pytest.mark.parametrize("name", [name for name, check in REGISTRY.items() if check.anomalies])
def test_every_check_has_a_history_that_it_accepts(name: str) -> None:
    assert MODULES[name].ACCEPTED


@pytest.mark.parametrize("name", REGISTRY)
def test_no_check_imports_another(name: str) -> None:
    """Code that several checks share is in checks/log_model."""
    others = {other.replace("-", "_") for other in REGISTRY if other != name}
    text = Path(REGISTRY[name].kernel.__code__.co_filename).read_text()
    assert not {
        other
        for other in others
        if re.search(rf"spark_verify\.checks(\.| import .*\b){other}\b", text)
    }


@pytest.mark.parametrize("name", REGISTRY)
def test_a_kind_that_is_found_was_declared(name: str) -> None:
    declared = {kind.name for kind in REGISTRY[name].anomalies}
    for module in MODULES.values():
        for example in getattr(module, "REJECTS", {}).values():
            assert {kind for kind, _, _ in anomalies(name, example.view)} <= declared


def odd_views() -> Iterator[tuple[str, PartitionView]]:
    nothing = view([])
    yield "nothing at all", nothing
    yield "empty logs", view([Log("A"), Log("B")], watermarks={"A": samples(), "B": samples()})
    yield "a promotion of nothing", view([Log("A"), Log("B")], promotions=[promoted(0)])
    yield (
        "acknowledged and read, no logs",
        view([], sends=[commit(1, acked=0)], reads=[poll((0, 1))], promotions=[promoted(5)]),
    )
    yield (
        "empty logs, acknowledged and read",
        view([Log("A"), Log("B")], sends=[commit(1, acked=0)], reads=[poll((0, 1), cluster="B")]),
    )
    yield (
        "only markers",
        view(
            [Log("A").marker("commit", pid=7), Log("B").marker("abort", pid=7)],
            watermarks={"A": samples((1, 1))},
        ),
    )
    yield "nothing of ours", view([Log("A").data(-1, -1), Log("B").data(-1)])
    yield (
        "an unknown cluster",
        view(
            [Log("X").data(1)],
            sends=[commit(1, acked=0, cluster="Y")],
            reads=[poll((0, 1), cluster="Z")],
        ),
    )
    yield "a batch without records", view([Log("A").data(), Log("B")])


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize(
    ("what", "seen"), list(odd_views()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_odd_input_never_raises(name: str, what: str, seen: PartitionView) -> None:
    findings = list(REGISTRY[name].kernel(seen))
    assert all(isinstance(f, Found | Examined | PartialFinding | Unjudged) for f in findings)


@pytest.mark.parametrize("name", REGISTRY)
def test_an_empty_history_examines_nothing(name: str) -> None:
    seen = view([])
    assert examined(name, seen) == {}
    assert anomalies(name, seen) == []


def test_names_are_kebab_case_and_once() -> None:
    names = [*REGISTRY, *RUN_CHECKS]
    assert len(set(names)) == len(names)
    kinds = [kind.name for check in REGISTRY.values() for kind in check.anomalies]
    for word in (*names, *kinds):
        assert word == word.lower().replace("_", "-").replace(" ", "-")


@pytest.mark.parametrize("name", REGISTRY)
def test_a_check_that_reads_a_history_says_what_one_from_the_wire_proves(name: str) -> None:
    assert REGISTRY[name].wire or not REGISTRY[name].inputs & {"sends", "reads"}


ERAS = (
    "linkflap.spark_verify.facts.eras",
    "linkflap.spark_verify.checks.log_model.generations",
    "linkflap.spark_verify.checks.log_model.mirrored_ranges",
    "linkflap.spark_verify.checks.log_model.outcomes",
)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_check_that_looks_at_eras_needs_all_events(name: str) -> None:
    """Eras follow from promotions and reversals. If events are torn, findings may be in the wrong
    era, and prove nothing."""
    check = REGISTRY[name]
    module = ast.parse(Path(inspect.getfile(check.kernel)).read_text())
    names = {node.module for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
    if names & {*ERAS} and not hasattr(MODULES[name], "NEEDS_NO_EVENTS"):
        assert "promotions" in check.inputs & check.complete
    assert "promotions" not in check.inputs - check.complete


ROOT = Path(__file__).resolve().parents[3]
CHECKS = ROOT / "spark_verify" / "checks"
PARTS = "spark_verify/checks/log_model"
OTHER_MEANINGS = {
    "stalled": "an option of faults",
    "failover": "a kind of event",
    "exactly-once": "a delivery that a mirror promises",
    "producer-id-collision": "a scenario",
    "stranger": "a certificate authority that no client trusts",
}
"""Names of checks and anomaly kinds that mean something else too."""
NAMED_BESIDE = {
    "harness/guarantees": "what a mirror allows is named by kind",
    "harness/log": "damage of a log, of which a check makes anomalies that are called the same",
    "harness/rundir/files.py": "older names of kinds, and what they are called now",
}
"""Where anomaly kinds are named outside `checks/`, and why."""
KINDS = {kind.name for check in REGISTRY.values() for kind in check.anomalies}
"""The names that an allowance may use; some kinds have their check's name."""


def constants(tree: ast.AST) -> Iterator[str]:
    """The string constants of a module, without those of `follows`: a consequence names the
    anomalies that may cause it."""
    causes = [k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "follows"]
    said = {id(node) for cause in causes for node in ast.walk(cause)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            yield node.value.decode("latin1") if isinstance(node.value, bytes) else str(node.value)


def modules_outside_checks() -> Iterator[Path]:
    for top in ("harness", "chaos", "topologies", "spark_verify", "linkflap"):
        yield from (p for p in (ROOT / top).rglob("*.py") if p.parent != CHECKS)


def test_a_check_is_one_file_and_no_other_has_its_name_or_its_kinds() -> None:
    """A check's declaration has all that the judge, the Spark job, `linkflap forensics` and the
    report need. A check may name another that it is related to."""
    knows = []
    for path in modules_outside_checks():
        name = str(path.relative_to(ROOT))
        words = set(constants(ast.parse(path.read_text()))) - OTHER_MEANINGS.keys()
        names = {*REGISTRY} if name.startswith(PARTS) else {*REGISTRY, *KINDS}
        names -= KINDS if name.startswith(tuple(NAMED_BESIDE)) else set()
        knows += [f"{name}: {word}" for word in sorted(words & names)]
    assert knows == []


def test_no_code_depends_on_how_names_of_kinds_begin() -> None:
    begins = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in modules_outside_checks()
        if path.is_relative_to(ROOT / "spark_verify")
        for text in constants(ast.parse(path.read_text()))
        if len(text) > 1 and text.endswith("-") and any(kind.startswith(text) for kind in KINDS)
    ]
    assert begins == []


PAGE = Path(__file__).parents[3] / "docs" / "checks.md"


def test_the_page_has_every_check_kind_and_allowance() -> None:
    page = PAGE.read_text()
    for check in REGISTRY.values():
        assert f"## {check.name}\n" in page
        for kind in check.anomalies:
            assert f"| {kind.name} | {kind.meaning} | {kind.smallest} |" in page
    assert all(f"**{name}**" in page for name in RUN_CHECKS)
    assert all(line.citation in page for lines in ALLOWED.values() for line in lines)


SEEDS = range(24, 46)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [random_runs.seen(seed)[0] for seed in SEEDS]

    def found() -> list[list[tuple[str, list[FindingRow]]]]:
        return [
            [(name, findings(check, seen)) for name, check in REGISTRY.items()] for seen in runs
        ]

    whole = found()
    assert (
        sum(
            row.kind == inconsistent_offset.KIND
            for rows in whole
            for _, mine in rows
            for row in mine
        )
        >= 2
    )
    for size in (1, 3):
        monkeypatch.setattr(inconsistent_offset, "AT_ONCE", size)
        monkeypatch.setattr(logs, "_AT_ONCE", size)
        assert found() == whole


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_counted_in_the_order_given(seed: int) -> None:
    random = Random(seed)
    keys = [random.randrange(1, 8) for _ in range(random.randrange(12))]
    first, number = logs.copies(np.array(keys, np.int64))
    assert first.tolist() == [keys.index(key) for key in keys]
    assert number.tolist() == [keys[:index].count(key) for index, key in enumerate(keys)]


@pytest.mark.parametrize("keys", [[], [3, 3, 5, 9], [5, 3, 9, 3]])
def test_keys_are_found_where_they_are_first(keys: list[int]) -> None:
    wanted = [9, 3, 4, 3, 10, 0]
    indexes = [keys.index(key) if key in keys else -1 for key in wanted]
    assert logs.locate(np.array(keys, np.int64), np.array(wanted, np.int64)).tolist() == indexes
    assert logs.among(np.array(wanted, np.int64), np.array(keys, np.int64)).tolist() == [
        key in keys for key in wanted
    ]
