"""Caches per user: created whole or not at all, and by one process only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.harness.machine import cache

MAKE = """
import os, sys
from linkflap.harness.machine import cache

def make(target):
    with open(sys.argv[1], "a") as log:
        log.write(f"{os.getpid()}\\n")
    for number in range(200):
        (target / str(number)).write_text("x")

folder = cache.once("things/one", make, doing="making one")
print(len(list(folder.iterdir())))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))


def test_of_many_processes_one_makes_and_all_see_it_whole(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [maker.communicate(timeout=120)[0].strip() for maker in makers] == ["200"] * 4
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_failure_leaves_nothing_and_the_next_one_starts_afresh() -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("")
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError):
        cache.once("things/one", fail, doing="making one")
    assert [path.name for path in (cache.folder() / "things").iterdir() if path.is_dir()] == []
    folder = cache.once("things/one", lambda target: (target / "whole").touch(), doing="making one")
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_what_a_killed_maker_left_is_removed() -> None:
    left = cache.folder() / "things" / ".one.partial-dead"
    left.mkdir(parents=True)
    cache.once("things/one", lambda target: None, doing="making one")
    assert not left.exists()
