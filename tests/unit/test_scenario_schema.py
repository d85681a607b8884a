"""The published schema of scenario files, and stored files of this version."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from linkflap.chaos.scenario_file import json_schema, read, save
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness import mirrors, workloads
from linkflap.harness.model.scenario import SCHEMA_VERSION
from linkflap.harness.rundir import FORMAT, RunReader

ROOT = Path(__file__).parents[2]


SCHEMA = ROOT / "docs" / "scenario.schema.json"


def test_the_published_schema_is_current_and_knows_what_the_registries_know() -> None:
    assert SCHEMA.read_text() == json_schema(), (
        "run: python docs/make_schema.py > docs/scenario.schema.json"
    )
    tables = json.loads(json_schema())["$defs"]
    assert tables["WorkloadTable"]["properties"]["kind"]["enum"] == sorted(
        (*workloads.KINDS, workloads.COMMAND)
    )
    assert tables["MirrorTable"]["properties"]["kind"]["enum"] == sorted(mirrors.MIRRORS)


EXAMPLES = sorted(
    path
    for folder in ("docs/examples", "chaos/cases/scenarios", "tests/data")
    for path in (ROOT / folder).rglob("*.toml")
    if "topology" in tomllib.loads(path.read_text())  # the others are manifests of mirrors
)


@pytest.fixture(scope="module")
def published() -> Any:
    """The published schema, in a third-party validator."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_kept_file_is_right_by_the_published_schema_and_can_be_read(
    path: Path, published: Any
) -> None:
    assert [error.message for error in published.iter_errors(tomllib.loads(path.read_text()))] == []
    if "@KAFKA" not in path.read_text():  # a case, which names its release, has its own tests
        assert read(path, seed=1).schedule


def test_the_published_schema_takes_what_save_writes_and_refuses_what_read_refuses(
    published: Any, tmp_path: Path
) -> None:
    for name in SCENARIOS:
        save(scenario(name, ScenarioRequest(seed=7)), tmp_path / f"{name}.toml")
        content = tomllib.loads((tmp_path / f"{name}.toml").read_text())
        assert [error.message for error in published.iter_errors(content)] == []
    content["fault"] = [{"id": "one", "fault": "link-cutt", "target": "A->B"}]
    assert not published.is_valid(content)


def test_a_file_and_a_run_of_this_schema_version_that_were_kept_are_read() -> None:
    """Later versions must read them too: they were written once, and are not regenerated."""
    kept = ROOT / "tests" / "data" / "schema-1"
    assert [f.id for f in read(kept / "scenario.toml", seed=0).schedule] == [
        "away",
        "reverse",
        "home",
    ]
    run = RunReader(kept).run
    assert (run.format, run.scenario.name, run.scenario.seed, run.environment) == (
        1,
        "baseline",
        7,
        {},
    )
    assert run.scenario.mirror.guarantee.offsets_kept
    assert SCHEMA_VERSION == FORMAT
