"""What older versions of linkflap stored is read with today's names of anomaly kinds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos.cases import results
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.verdict import Anomaly, Document, Verdict
from linkflap.harness.rundir import RunReader, with_current_kinds
from linkflap.harness.rundir.renamed import RENAMED
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect.explain import explain
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.plan import Plan
from tests.unit.test_guarantees import written

KINDS: Final = {kind.name.encode() for check in REGISTRY.values() for kind in check.anomalies}


def aged(path: Path) -> None:
    """The file as an older linkflap wrote it."""
    content = path.read_bytes()
    for old, new in RENAMED.items():
        content = content.replace(new, old)
    assert content != path.read_bytes()
    path.write_bytes(content)


def test_every_new_name_is_a_kind_and_no_old_one_is() -> None:
    assert set(RENAMED.values()) <= KINDS
    assert not set(RENAMED) & KINDS


def test_keys_values_and_signatures_are_renamed_and_longer_names_are_not() -> None:
    old = {
        "kind": "tail-not-cut",
        "kinds": {"cut-not-made": 2},
        "failed": ["x:skipped-by-cut"],
        "at": "not-skipped-by-cut-2",
    }
    assert json.loads(with_current_kinds(json.dumps(old).encode())) == {
        "kind": "tail-not-truncated",
        "kinds": {"truncation-not-made": 2},
        "failed": ["x:skipped-by-truncation"],
        "at": "not-skipped-by-cut-2",
    }


def test_an_allowance_of_an_older_run_is_that_of_the_kind_today(tmp_path: Path) -> None:
    run = written(tmp_path / "run", MirrorSpec(kind="shadow"))
    spec = RunReader(run).run.scenario.mirror
    run = written(tmp_path / "declared", spec)
    aged(run / "run.json")
    assert RunReader(run).run.scenario.mirror.guarantee.allowed == spec.guarantee.allowed
    assert "skipped-by-truncation" in {line.kind for line in spec.guarantee.allowed}


def test_results_of_an_older_suite_are_of_the_kinds_of_today(tmp_path: Path) -> None:
    folder = SuiteFolder.create(
        tmp_path / "suite", Plan(name="smoke", seed=7, seconds=60, runs=1, jobs=1)
    )
    folder.append(
        RunResult(number=0, verdict="invalid", kinds=("truncation-accounting:tail-not-truncated",))
    )
    aged(folder.root / "results.jsonl")
    assert SuiteFolder.open(folder.root).results == folder.results


def test_stored_results_of_cases_have_the_kinds_of_today(tmp_path: Path) -> None:
    stored = tmp_path / "RS4-truncate-once.jsonl"
    shutil.copy(results.STORED / stored.name, stored)
    before = results.load(tmp_path)
    text = stored.read_text().replace('"facts":{', '"facts":{"kind":"cut-not-made",', 1)
    stored.write_text(text)
    assert results.load(tmp_path)[0].facts == {"kind": "truncation-not-made", **before[0].facts}


def test_an_anomaly_of_an_older_verdict_is_explained_as_the_kind_of_today(tmp_path: Path) -> None:
    run = written(tmp_path / "run", MirrorSpec(kind="shadow"))
    found = Anomaly(
        check="poll-continuity",
        kind="skipped-by-truncation",
        cluster="A",
        topic="t",
        partition=0,
        offset=1,
    )
    document = Document(verdict=Verdict.INVALID, run=str(run), anomalies=(found,))
    (run / "verdict.json").write_bytes(msgspec.json.encode(document))
    today = explain(run, "1")
    aged(run / "verdict.json")
    assert explain(run, "1") == today
    assert "log was truncated below" in today.meaning
