"""Checks the arguments of a run before anything starts. Each error is one sentence that names the
wrong argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import Topology

LARGEST_SEED: Final = 2**32 - 1
LONGEST: Final = 86_400
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "scenario": ((str, Path, Scenario), "the name of a scenario, a scenario file or a Scenario"),
    "topology": ((str, Topology), "a text like A->B or a Topology"),
    "mirror": ((str,), "the name of a mirror"),
    "clients": ((str,), "librdkafka, java or java@3.9.2"),
    "runtime": ((str,), "process or docker"),
    "mirror_options": ((Mapping,), "a mapping of names to values"),
}


def check(**given: object) -> None:
    """Raises InputError for an argument of a run that has a wrong type or is out of range. None
    means that it was not given."""
    for name, value in given.items():
        if value is None:
            continue
        if name in _KINDS:
            kinds, wanted = _KINDS[name]
            if not isinstance(value, kinds):
                raise InputError(f"{name} is {value!r}; it must be {wanted}")
    _check_seed(given.get("seed"))
    _check_duration(given.get("duration"))
    options = given.get("mirror_options")
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if not isinstance(value, str | int | float | bool):
            raise InputError(
                f"option {name} is {value!r}; it must be a text, a number, True or False"
            )


def _check_seed(seed: object) -> None:
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is {seed!r}; it must be a whole number from 0 to {LARGEST_SEED}")


def _check_duration(duration: object) -> None:
    if duration is None:
        return
    number = not isinstance(duration, bool) and isinstance(duration, int | float)
    if not number or math.isnan(duration) or not 1 <= duration <= LONGEST:  # type: ignore[arg-type, operator]
        raise InputError(
            f"duration is {duration!r}; it must be a number of seconds from 1 to {LONGEST}"
        )
