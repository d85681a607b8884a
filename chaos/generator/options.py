"""Draws values for options from the registries: choices are drawn evenly, numbers around their
defaults."""

from __future__ import annotations

import random
from collections.abc import Mapping

from linkflap.chaos.faults import FAULTS
from linkflap.harness.mirrors import MIRRORS
from linkflap.harness.model.scenario import Option

GIVEN = 0.4
"""The share of options that get a value; the others keep their defaults."""


def of_fault(name: str, rng: random.Random) -> dict[str, Option]:
    """Options of a fault that differ from their defaults. A default of 0 (switched off) is always
    kept."""
    return {
        option: value
        for option, default in FAULTS[name].defaults.items()
        if rng.random() < GIVEN
        and (value := _around(default, rng)) != default
        and value is not None
    }


def _around(default: Option, rng: random.Random) -> Option | None:
    if isinstance(default, str):
        return rng.choice(default.split("|"))
    if isinstance(default, bool) or not default:
        return None
    value = default * rng.uniform(0.5, 2.0)
    return round(value, 2) if isinstance(default, float) else max(1, round(value))


def of_mirror(kind: str, rng: random.Random) -> Mapping[str, Option]:
    """Options of a mirror, with values for which its guarantee holds (`Kind.sound`)."""
    return {
        option: rng.choice(values)
        for option, values in MIRRORS[kind].sound.items()
        if rng.random() < GIVEN
    }
