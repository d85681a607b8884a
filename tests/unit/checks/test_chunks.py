"""Kernels that process a partition in chunks return the same as for the whole partition."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from linkflap.spark_verify.checks import REGISTRY, inconsistent_offset
from linkflap.spark_verify.checks.parts import logs
from linkflap.spark_verify.spark.finding_rows import FindingRow
from tests.oracles.agreement import findings
from tests.oracles.changes import change
from tests.oracles.happenings import world
from tests.oracles.views import views

SEEDS = range(16)


def found(seed: int) -> list[tuple[str, list[FindingRow]]]:
    """All findings of all checks in a small random history with changes."""
    made = world(Random(seed))
    change(made, 6)
    seen = views(made)
    return [(name, findings(check, seen)) for name, check in REGISTRY.items()]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [found(seed) for seed in SEEDS]
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
        assert [found(seed) for seed in SEEDS] == whole


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
