"""What reads run directories survives changes at random: some in every test run, a million by
night (`tests.fuzzing`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import fuzz, stories


def test_changed_directories_are_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    outcome = fuzz(stories(tmp_path, seeds=(8, 44)), seed=1, numbers=range(200))
    assert not outcome.failures
    assert outcome.counts["alone"] == 180


@pytest.mark.nightly
def test_a_million_changed_directories_are_read(tmp_path: Path) -> None:
    assert not fuzz(stories(tmp_path), seed=2, numbers=range(1_000_000)).failures


@pytest.mark.nightly
def test_thousands_of_changed_directories_are_judged(tmp_path: Path) -> None:
    outcome = fuzz(stories(tmp_path), seed=3, numbers=range(3000), judging=True)
    assert not outcome.failures
