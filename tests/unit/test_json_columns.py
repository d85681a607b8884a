"""Columns of numbers as text: they are read back unchanged, and numbers that rise by one cost
almost nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.spark_verify.spark.finding_rows import packed, unpacked

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def crossed(data: dict[str, object]) -> dict[str, object]:
    return unpacked(json.loads(json.dumps(packed(data))))


@given(st.lists(st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, -1, 0, HIGHEST]))))
def test_a_column_comes_back(numbers: list[int]) -> None:
    column = crossed({"of": np.array(numbers, np.int64)})["of"]
    assert isinstance(column, np.ndarray)
    assert column.dtype == np.int64
    assert column.tolist() == numbers


def test_other_values_are_unchanged() -> None:
    data: dict[str, object] = {
        "list": [1, 2],
        "object": {"int64": "x", "more": 1},
        "word": "int64",
        "nothing": None,
        "numbers": {},
    }
    assert crossed(data) == data


def test_a_value_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        packed({"of": np.array([0.5])})


def test_the_size_of_columns() -> None:
    """10,000 numbers: of a log with markers, of four producers in turn, and of no order at all."""
    n = np.arange(10_000)
    offsets, uids = n // 10 * 11 + n % 10, (n // 10 % 4 << 40) + n // 40 * 10 + n % 10
    anything = np.random.default_rng(1).integers(LOWEST, HIGHEST, len(n))

    def each(column: np.ndarray) -> float:
        return len(json.dumps(packed({"of": column}))) / len(column)

    assert each(offsets) < 0.2
    assert each(uids) < 0.3
    assert each(anything) < 11
