"""The skeletons of each kind import, pass ruff, and fail only where their author has to write
something."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from linkflap.spark_verify.checks.base import Check, Examined
from tests import new
from tests.faithful.mutations.base import CATALOGUE
from tests.oracles.plain import plain
from tests.unit.checks.histories import Log, view

NAMES: Final = {
    "check": "stale-copy",
    "fault": "broker-blink",
    "mirror": "brand-new",
    "workload": "bursts",
    "scenario": "link-storm",
    "case": "KAFKA-99999",
}
"""A name of each kind that is not taken."""
SHORT: Final = dict.fromkeys(NAMES, "it")
"""A short name: the formatter would join a registry line that is wrapped without need."""
COPIED: Final = ("chaos", "docs", "harness", "linkflap", "spark_verify", "tests", "topologies")
COMPLAIN: Final = {
    "check": "unit/checks/test_check_stale_copy.py",
    "fault": "contract/test_faults.py",
    "mirror": "unit/test_brand_new.py",
    "workload": "unit/test_bursts.py",
    "scenario": "unit/test_topology_homes.py",
    "case": "unit/test_cases.py",
}
"""A test of each kind that fails until its skeleton is filled in: of the registry, or the
skeleton's own."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folders and registries that are written to."""
    for skeleton in new.KINDS.values():
        for path in (*skeleton.files, *(registry.file for registry in skeleton.registries)):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        for registry in skeleton.registries:
            shutil.copy(new.ROOT / registry.file, tmp_path / registry.file)
    return tmp_path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"skeleton_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_skeletons_of_a_check_are_one_that_finds_nothing_yet(root: Path) -> None:
    before = dict(CATALOGUE)
    check, histories, reference, mutation = (
        loaded(path) for path in new.write("check", "stale-copy", root)[:-1]
    )
    try:
        seen = view([Log("A").data(1, 2), Log("B").data(1, 2)])
        assert isinstance(check.CHECK, Check)
        assert [f.count for f in check.CHECK.kernel(seen) if isinstance(f, Examined)] == [2, 2]
        assert (histories.NAME, set(histories.REJECTS)) == (
            "stale-copy",
            {kind.name for kind in check.CHECK.anomalies},
        )
        assert reference.reference([plain(seen)]) == []
        assert set(CATALOGUE) - set(before) == {"stale-copy-broken"}
        assert mutation.stale_copy_broken.__doc__
    finally:
        CATALOGUE.pop("stale-copy-broken", None)


def test_every_kind_is_complained_about_in_a_copy_of_the_tree_until_it_is_filled_in(
    tmp_path: Path,
) -> None:
    assert NAMES.keys() == COMPLAIN.keys() == new.KINDS.keys()
    for folder in COPIED:
        shutil.copytree(
            new.ROOT / folder,
            tmp_path / folder,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(new.ROOT / "pyproject.toml", tmp_path)
    for kind, name in NAMES.items():
        new.write(kind, name, tmp_path)
    words = " or ".join(
        sorted({*NAMES.values(), *(new.named("new_name", name) for name in NAMES.values())})
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", words]
    ran = subprocess.run(
        [*command, *sorted(f"tests/{path}" for path in COMPLAIN.values())],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    failed = re.findall(r"^FAILED tests/(\S+?)::(.*)$", ran.stdout, re.MULTILINE)
    silent = {kind for kind, path in COMPLAIN.items() if path not in {where for where, _ in failed}}
    assert silent == set(), ran.stdout + ran.stderr
    assert "error" not in ran.stdout.splitlines()[-1], ran.stdout


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
@pytest.mark.parametrize("kind", new.KINDS)
def test_the_skeletons_have_the_style_of_the_rest(
    root: Path, kind: str, command: list[str]
) -> None:
    for path in (*new.write(kind, NAMES[kind], root), *new.write(kind, SHORT[kind], root)):
        stdin = ["--stdin-filename", str(path.relative_to(root)), "-"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *stdin],
            cwd=new.ROOT, input=path.read_text(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_name_that_cannot_be_is_refused(root: Path, kind: str) -> None:
    for name in ("1st", "two words", "", "-"):
        with pytest.raises(
            ValueError,
            match=f"cannot be the name of a {kind}; give one such as {new.KINDS[kind].example}",
        ):
            new.write(kind, name, root)


@pytest.mark.parametrize("kind", new.KINDS)
def test_nothing_is_written_over(root: Path, kind: str) -> None:
    new.write(kind, NAMES[kind], root)
    taken = r"\.(py|toml) exists already; give another name, or remove it"
    with pytest.raises(ValueError, match=taken):
        new.write(kind, NAMES[kind], root)
