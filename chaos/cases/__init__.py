"""Cases: edge cases of KIPs and releases. One command plays a case on any release, with a rate and
a control.

What a case claims is a text file in `claims`. Its steps are a function in a module of
the groups (`kafka`, `mirror_maker`, `cluster_mirroring`, `judged`, `guarantees`,
`diskless`).
"""

from __future__ import annotations

import difflib
import fnmatch
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from linkflap.chaos.cases.case import Case, registered
from linkflap.harness.model.errors import InputError

GROUPS: Final = ("kafka", "mirror_maker", "cluster_mirroring", "judged", "guarantees", "diskless")
"""Packages and modules with cases, in the order in which they are listed."""


@cache
def registry() -> Mapping[str, Case]:
    """Name -> case, in the order of the groups, and of the modules and functions in each."""
    modules: list[str] = []
    for group in GROUPS:
        package = import_module(f"{__name__}.{group}")
        inside = pkgutil.iter_modules(getattr(package, "__path__", []))
        modules += [package.__name__, *(f"{package.__name__}.{found.name}" for found in inside)]
    for module in modules:
        import_module(module)
    found = registered().items()
    return MappingProxyType(dict(sorted(found, key=lambda item: modules.index(item[1].module))))


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


def cases_named(pattern: str) -> list[Case]:
    """The cases whose names match a shell pattern (`KIP-1163-*`), or the one of that name. Raises
    InputError where there is none."""
    known = registry()
    found = [known[name] for name in known if fnmatch.fnmatch(name.lower(), pattern.lower())]
    return found or [case_named(pattern)]


__all__ = ["GROUPS", "Case", "case_named", "cases_named", "registry"]
