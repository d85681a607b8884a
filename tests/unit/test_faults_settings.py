"""Options of faults: known names, the right types, and otherwise an error of one sentence."""

from __future__ import annotations

import pytest

from linkflap.chaos.catalogue import options
from linkflap.chaos.faults import FAULTS
from linkflap.chaos.faults.base import direction, number, settings
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import FaultSpec, Option

DEFAULTS: dict[str, Option] = {"latency": 100, "share": 0.5, "stalled": "responses|requests"}


def spec(**options: Option) -> FaultSpec:
    return FaultSpec(
        id="slow", fault="link-latency", target="A->B", at=0, duration=1, options=options
    )


def test_defaults_fill_what_is_not_given() -> None:
    values = settings(spec(latency=5), DEFAULTS)
    assert (number(values, "latency"), number(values, "share"), direction(values, "stalled")) == (
        5,
        0.5,
        "responses",
    )


def test_the_other_direction_can_be_chosen() -> None:
    assert direction(settings(spec(stalled="requests"), DEFAULTS), "stalled") == "requests"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"latncy": 5},
            (
                "fault 'slow' (link-latency) has no option 'latncy' (did you mean 'latency'?); it "
                "has latency, share, stalled"
            ),
        ),
        (
            {"latency": -1},
            "option latency of fault 'slow' (link-latency) is -1; it must be a number of 0 or more",
        ),
        (
            {"latency": True},
            (
                "option latency of fault 'slow' (link-latency) is True; it must be a number of 0 or"
                " more"
            ),
        ),
        (
            {"latency": "long"},
            (
                "option latency of fault 'slow' (link-latency) is 'long'; it must be a number of 0 "
                "or more"
            ),
        ),
        (
            {"stalled": "both"},
            (
                "option stalled of fault 'slow' (link-latency) is 'both'; it can be responses or "
                "requests"
            ),
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Option], said: str) -> None:
    with pytest.raises(InputError) as error:
        settings(spec(**options), DEFAULTS)
    assert str(error.value) == said


def test_every_option_says_what_it_is_and_every_number_its_unit() -> None:
    for name, fault in FAULTS.items():
        assert fault.abouts.keys() == fault.defaults.keys(), name
    assert options()["fault link-latency"]["latency"].about.startswith("ms ")
