"""Parses the options of a mirror on the command line (`--set name=value`)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option


def option_value(text: str) -> tuple[str, Option]:
    """Parses `name=value`; numbers and true/false get their type. Raises InputError if there is no
    `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(
            f"--set {text!r} is not of the form name=value, for example --set producer_ids=keep"
        )
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value


def mirror_options(texts: Sequence[str]) -> dict[str, Option]:
    """All `--set` options. Raises InputError if a name is given twice."""
    given: dict[str, Option] = {}
    for name, value in map(option_value, texts):
        if name in given:
            raise InputError(
                f"--set {name} is given twice, as {given[name]} and as {value}; give it once"
            )
        given[name] = value
    return given
