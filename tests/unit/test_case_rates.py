"""How often a case was reproduced: its rate, with an interval of 95 % (Wilson)."""

from __future__ import annotations

import pytest

from linkflap.chaos.cases.rates import interval, words


@pytest.mark.parametrize(
    ("shown", "runs", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 30, 0.0, 0.1135),
        (30, 30, 0.8865, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilsons_interval(shown: int, runs: int, low: float, high: float) -> None:
    found = interval(shown, runs)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert found[0] <= (shown / runs if runs else 0.5) <= found[1]


def test_an_interval_of_more_than_there_were_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 3"):
        interval(4, 3)
    assert words(3, 3) == "3 of 3 (44 to 100 %)"
