"""Cases: edge cases of KIPs and releases, one file each. One command plays a case on any release,
with a rate and a control.

The files are in the packages below this one (`kafka`, `mirror_maker`, `cluster_mirroring`,
`judged`, `guarantees`). Every module there that defines `CASE` or `CASES` is registered.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from linkflap.chaos.cases.case import Case
from linkflap.harness.model.errors import InputError

GROUPS: Final = ("kafka", "mirror_maker", "cluster_mirroring", "judged", "guarantees")
"""Packages with cases, in the order in which they are listed."""


@cache
def registry() -> Mapping[str, Case]:
    """Name -> case, in the order of the groups and of the files in each."""
    found: dict[str, Case] = {}
    for case in _all():
        if case.name in found:
            raise ValueError(f"two cases are called {case.name}")
        found[case.name] = case
    return MappingProxyType(found)


def _all() -> Iterator[Case]:
    for group in GROUPS:
        package = import_module(f"{__name__}.{group}")
        for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
            loaded = import_module(f"{package.__name__}.{module}")
            yield from getattr(loaded, "CASES", None) or [loaded.CASE]


def case_named(name: str) -> Case:
    """The case called `name`, whatever its capitals. InputError that names the nearest ones."""
    known = {each.lower(): each for each in registry()}
    if name.lower() in known:
        return registry()[known[name.lower()]]
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    hint = (
        f"the nearest are {', '.join(known[one] for one in near)}"
        if near
        else "linkflap case list shows all"
    )
    raise InputError(f"there is no case {name!r}; {hint}")


__all__ = ["GROUPS", "Case", "case_named", "registry"]
