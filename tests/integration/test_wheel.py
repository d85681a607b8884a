"""linkflap from its wheel, in its own Python, outside of the checkout: a user's code has types and
works, and the example projects find their planted bugs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from linkflap.harness.machine import cache
from linkflap.harness.model.topology import DEFAULT_KAFKA
from tests import foreign_project
from tests.command_line import ledger_of_its_own, ran
from tests.unit.test_api import SNIPPET

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def outside(beside: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what leads to this checkout."""
    ours = ("PYTHONPATH", "MYPYPATH", "PYTEST_ADDOPTS")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | dict(beside or {})


@pytest.mark.nightly
def test_code_of_a_user_passes_mypy_strict_with_the_wheel(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SNIPPET)
    (tmp_path / "wrong.py").write_text(SNIPPET + 'verdict = judged.checks["lost-write"].examined\n')
    python = str(elsewhere / "python" / "bin" / "python")
    options = f"--strict --python-executable {python} --cache-dir {tmp_path / 'cache'}"
    mypy = [python, "-m", "mypy", *options.split()]
    kept = outside()
    for name, status in (("mine", 0), ("wrong", 1)):
        done = ran([*mypy, f"{name}.py"], within=900, env=kept, cwd=tmp_path)
        assert done.returncode == status, done.stdout + done.stderr
        assert ("incompatible type" in done.stdout.lower()) == bool(status), done.stdout


def test_an_installed_linkflap_has_its_version_its_docs_and_its_scenarios(
    elsewhere: Path, tmp_path: Path
) -> None:
    version = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]
    changes = (EXAMPLES.parents[1] / "CHANGELOG.md").read_text()
    assert f"\n## {version['version']}" in changes
    kept = outside()
    for words, says in (
        (["--version"], f"version {version['version']}"),
        (["docs"], "checks  "),
        (["docs", "docs/own-mirror.md#the-manifest"], "# "),
        (["docs", "examples/connect/README"], "# "),
        (["run", "link-flap", "--dry-run"], "failover-forced on A->B"),
    ):
        done = ran(
            [str(elsewhere / "python" / "bin" / "python"), "-m", "linkflap", *words],
            within=300,
            env=kept,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        assert says in done.stdout, done.stdout


@pytest.mark.nightly
def test_every_test_on_the_page_passes_in_a_project_with_folders_of_our_names(
    elsewhere: Path, tmp_path: Path
) -> None:
    foreign_project.make(tmp_path / "foreign", *foreign_project.BLOCKS)
    shutil.copytree(
        EXAMPLES,
        tmp_path / "foreign" / "docs" / "examples",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    kept = outside(ledger_of_its_own(tmp_path / "ledger"))
    python = str(elsewhere / "python" / "bin" / "python")
    words = [python, "-m", "pytest", "-p", "no:cacheprovider", "-v", "tests"]
    done = ran(words, within=3000, env=kept, cwd=tmp_path / "foreign")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") >= len(foreign_project.BLOCKS) + 1, done.stdout


# The example projects, as somebody else has them: outside of the checkout, with linkflap
# installed from its wheel.
#
# Beside them is a project whose folders have the names of ours (`tests.foreign_project`). Its
# tests run in the same process, so that every test of the examples runs where `import harness`,
# `import chaos` and `import docker` give that project's.


PROJECTS = sorted(folder.parent.name for folder in EXAMPLES.glob("*/tests"))
NIGHTLY = ("connect", "regions")
"""Projects whose tests run at night alone: of linkflap they call what the others call."""


def passes(elsewhere: Path, folder: Path, *words: str) -> str:
    """Runs tests of projects in one process, so that they share one Spark; what pytest printed of
    each."""
    foreign_project.make(
        folder / "foreign",
        *(block for block in foreign_project.BLOCKS if "linkflap_world" in block),
    )
    for name in PROJECTS:
        shutil.copytree(
            EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    kept = outside(ledger_of_its_own(folder / "ledger"))
    python = str(elsewhere / "python" / "bin" / "python")
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--durations=0", "foreign"]
    done = ran([*command, *words], within=3000, env=kept, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.xdist_group("examples")
def test_the_examples_find_their_planted_bugs(elsewhere: Path, tmp_path: Path) -> None:
    often = [name for name in PROJECTS if name not in NIGHTLY]
    printed = passes(elsewhere, tmp_path, "-m", "not long", *often)
    assert all(
        path.name in printed for name in often for path in EXAMPLES.glob(f"{name}/tests/test_*.py")
    ), printed
    assert "test_orders_survive_a_cut PASSED" in printed, printed


@pytest.mark.spark
@pytest.mark.xdist_group("examples")
@pytest.mark.nightly
@pytest.mark.parametrize("name", PROJECTS)
def test_all_tests_of_an_example(elsewhere: Path, tmp_path: Path, name: str) -> None:
    passes(elsewhere, tmp_path, name)


# The workflow files of docs/ci.md, run step by step as their services would run them, without the
# network: the steps that install packages are left out.


GITHUBS_OWN = frozenset(
    f"actions/{name}"
    for name in (
        ["checkout@v4", "setup-python@v5", "cache@v4", "upload-artifact@v4", "download-artifact@v4"]
    )
)
"""Steps that only GitHub can run: they are left out. Every other one runs, or the test fails."""


def _github(job: str, shard: int) -> list[str]:
    file = yaml.safe_load((EXAMPLES / "ci/.github/workflows/linkflap.yml").read_text())
    steps = file["jobs"][job]["steps"]
    runs = [step["run"] for step in steps if step.get("uses") not in GITHUBS_OWN]
    here = [run.replace("${{ matrix.shard }}", str(shard)) for run in runs]
    assert not [run for run in here if "${{" in run]
    return here


def _gitlab(job: str, shard: int) -> list[str]:
    del shard  # in the environment
    file = yaml.safe_load((EXAMPLES / "ci/.gitlab-ci.yml").read_text())
    return [*file[file[job]["extends"]]["before_script"], *file[job]["script"]]


def _plays(
    elsewhere: Path, folder: Path, steps: Sequence[str], **given: str
) -> subprocess.CompletedProcess[str]:
    """Runs steps in a repository that has the example's files."""
    shutil.copytree(EXAMPLES / "ci", folder, dirs_exist_ok=True)
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    python = elsewhere / "python" / "bin" / "python"
    (commands / "linkflap").write_text(f'#!/bin/sh\nexec {python} -m linkflap "$@"\n')
    (commands / "linkflap").chmod(0o755)
    kept = outside(ledger_of_its_own(folder / "ledger"))
    kept |= {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "KAFKA": DEFAULT_KAFKA,
        "SEED": "7",
        "LINKFLAP_OFFLINE": "1",
        "LINKFLAP_CACHE": str(cache.folder()),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "CI_NODE_TOTAL": "4",
        **given,
    }
    script = "\n".join(step for step in steps if not step.startswith("pip "))
    return ran(["bash", "-e", "-o", "pipefail", "-c", script], within=3000, env=kept, cwd=folder)


def test_the_commands_of_the_workflow_files_are_accepted(elsewhere: Path, tmp_path: Path) -> None:
    """Both services run nearly the same ones: each is played once."""
    steps = dict.fromkeys(
        step
        for service in (_github, _gitlab)
        for job in ("smoke", "night")
        for step in service(job, 1)
    )
    without_runs = [step.replace("--seed", "--dry-run --seed") for step in steps]
    dry = [step for step in without_runs if not step.startswith("cat ")]
    done = _plays(elsewhere, tmp_path, dry, CI_NODE_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert "link-cut on A->B" in done.stdout


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("service", [_github, _gitlab])
def test_the_workflow_files_do_what_they_say(
    elsewhere: Path, tmp_path: Path, service: Callable[[str, int], list[str]]
) -> None:
    few = {"SMOKE": "--runs 2 --for 5m", "NIGHT": "--runs 5 --for 5m"}
    done = _plays(elsewhere, tmp_path / "smoke", service("smoke", 1), **few)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "smoke" / "junit.xml").is_file()
    for shard in range(1, 5):
        here = {**few, "CI_NODE_INDEX": str(shard)}
        done = _plays(elsewhere, tmp_path / "night", service("night", shard), **here)
        assert done.returncode in (0, 1, 2), done.stderr
    done = _plays(elsewhere, tmp_path / "night", service("merge", 1), **few)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "# linkflap suite nightly" in (tmp_path / "night" / "suite" / "summary.md").read_text()
    assert (tmp_path / "night" / "junit.xml").is_file()
