"""Readers of run directories, copied logs and suites survive changes at random: some in every test
run, a million by night (`tests.fuzzing`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import fuzz, log_directories, shapes, shards, stories


def test_changed_directories_are_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    outcome = fuzz(stories(tmp_path, seeds=(8, 44)), seed=1, numbers=range(0, 1000, 5))
    assert not outcome.failures
    assert outcome.counts["alone"] == 180


def test_changed_suites_are_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    outcome = fuzz(shards(tmp_path), seed=1, numbers=range(16), what="suites")
    assert not outcome.failures
    assert outcome.counts["merged"] > 4


def test_changed_copies_of_logs_are_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    outcome = fuzz(log_directories(tmp_path), seed=1, numbers=range(20), what="copied")
    assert not outcome.failures
    assert outcome.counts["read"] > 6


def test_rows_and_batches_of_extreme_values_are_read(tmp_path: Path) -> None:
    outcome = shapes(stories(tmp_path, seeds=(8, 44)), seed=1, count=40)
    assert not outcome.failures
    assert sum(outcome.counts.values()) == 40


@pytest.mark.nightly
def test_a_million_changed_directories_are_read(tmp_path: Path) -> None:
    assert not fuzz(stories(tmp_path), seed=2, numbers=range(1_000_000)).failures


@pytest.mark.nightly
def test_thousands_of_changed_directories_are_judged(tmp_path: Path) -> None:
    outcome = fuzz(stories(tmp_path), seed=3, numbers=range(3000), what="judging")
    assert not outcome.failures


@pytest.mark.nightly
def test_thousands_of_suites_copies_and_extreme_values_are_read(tmp_path: Path) -> None:
    for outcome in (
        fuzz(shards(tmp_path), seed=4, numbers=range(10_000), what="suites"),
        fuzz(log_directories(tmp_path), seed=4, numbers=range(10_000), what="copied"),
    ):
        assert not outcome.failures
    assert not shapes(stories(tmp_path / "runs"), seed=4, count=10_000).failures
