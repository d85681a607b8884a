"""The skeletons of a check are a check: they import, examine, and fail only where their author is to write something."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from linkflap.spark_verify.checks.base import Check, Examined
from tests import new_check
from tests.faithful.mutations.base import CATALOGUE
from tests.oracles.plain import plain
from tests.unit.checks.histories import Log, view


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in (*new_check.FILES, new_check.REGISTRY):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / new_check.REGISTRY).write_text((new_check.ROOT / new_check.REGISTRY).read_text())
    return tmp_path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"skeleton_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_skeletons_are_a_check_that_finds_nothing_yet(root: Path) -> None:
    before = dict(CATALOGUE)
    check, histories, reference, mutation = (loaded(path) for path in new_check.write("stale-copy", root)[:-1])
    try:
        seen = view([Log("A").data(1, 2), Log("B").data(1, 2)])
        assert isinstance(check.CHECK, Check)
        assert [f.count for f in check.CHECK.kernel(seen) if isinstance(f, Examined)] == [2, 2]
        assert (histories.NAME, set(histories.REJECTS)) == ("stale-copy", {kind.name for kind in check.CHECK.anomalies})
        assert reference.reference([plain(seen)]) == []
        assert set(CATALOGUE) - set(before) == {"stale-copy-broken"}
        assert mutation.stale_copy_broken.__doc__
    finally:
        CATALOGUE.pop("stale-copy-broken", None)


def test_the_registry_has_the_check_at_its_end(root: Path) -> None:
    new_check.write("stale-copy", root)
    text = (root / new_check.REGISTRY).read_text()
    names = [line.strip().rstrip(",") for line in text.partition("import (\n")[2].partition(")\n")[0].splitlines()]
    assert names == sorted(names)
    assert "stale_copy" in names
    assert [line.strip() for line in text.splitlines() if ".CHECK," in line][-1] == "stale_copy.CHECK,"


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_the_skeletons_have_the_style_of_the_rest(root: Path, command: list[str]) -> None:
    for path in new_check.write("stale-copy", root):
        named = ["--stdin-filename", str(path.relative_to(root)), "-"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *named],
            cwd=new_check.ROOT, input=path.read_text(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Stale", "stale_copy", "stale copy", ""])
def test_a_name_that_cannot_be_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a check"):
        new_check.write(name, root)


def test_nothing_is_written_over(root: Path) -> None:
    new_check.write("stale-copy", root)
    with pytest.raises(ValueError, match=r"stale_copy\.py is there already"):
        new_check.write("stale-copy", root)
