"""Reads a fault's options. Every name must be known, and every number legal in its unit; else one
sentence names the wrong one."""

from __future__ import annotations

from collections.abc import Mapping

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Direction
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.spelling import nearest


def settings(spec: FaultSpec, defaults: Mapping[str, Option]) -> dict[str, Option]:
    """The options of `spec` over `defaults`, with the same types. Raises InputError. A default that
    is text lists its choices; the first one is the default: `responses

    requests`.
    """
    if unknown := sorted(spec.options.keys() - defaults.keys()):
        known = ", ".join(sorted(defaults)) or "no options"
        raise InputError(
            f"fault {spec.id!r} ({spec.fault}) has no option "
            f"{unknown[0]!r}{nearest(unknown[0], defaults)}; it has {known}"
        )
    return {name: _read(spec, name, default) for name, default in defaults.items()}


def _read(spec: FaultSpec, name: str, default: Option) -> Option:
    given = spec.options.get(name)
    where = f"option {name} of fault {spec.id!r} ({spec.fault})"
    if isinstance(default, str):
        choices = default.split("|")
        if given is not None and given not in choices:
            raise InputError(f"{where} is {given!r}; it can be {' or '.join(choices)}")
        return choices[0] if given is None else given
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int | float) or given < 0:
        raise InputError(f"{where} is {given!r}; it must be a number of 0 or more")
    return given if isinstance(default, float) else int(given)


def number(values: Mapping[str, Option], name: str) -> float:
    """An option that is a number."""
    return float(values[name])


def direction(values: Mapping[str, Option], name: str) -> Direction:
    """An option that is one of the two directions of a link."""
    return "requests" if values[name] == "requests" else "responses"
