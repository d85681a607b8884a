"""How runs failed, as texts by which they can be compared: kinds of anomalies that nothing allows,
and reasons of unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from linkflap.harness.suite.folder import Result
from linkflap.spark_verify.checks import REGISTRY

UNKNOWN: Final = "unknown:"
_NAME: Final = re.compile(r"[^a-z0-9]+")
_NUMBER: Final = re.compile(r"\d[\d,.]*")


def _violated(checks: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The kinds of anomalies of checks that are invalid, in the order of the registry."""
    order = {name: number for number, name in enumerate(REGISTRY)}
    invalid = sorted(
        (c for c in checks if c["verdict"] == "invalid"),
        key=lambda c: order.get(c["name"], len(order)),
    )
    return [
        f"{c['name']}:{kind}" for c in invalid for kind in sorted(c["kinds"]) or ["not-explained"]
    ]


def kinds_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of failure of one verdict as `check:kind`, causes before consequences; or what was
    unknown.

    Where there are anomalies, what was unknown beside them is left out: it may well be their
    consequence.
    """
    if found := _violated(document["checks"]):
        causes = [f"{cause['check']}:{cause['kind']}" for cause in document["causes"]]
        return tuple(dict.fromkeys(name for name in (*causes, *found) if name in found))
    unknown = [
        f"{UNKNOWN}{c['name']}:{_shape(c['reason'])}"
        for c in document["checks"]
        if c["verdict"] == "unknown"
    ]
    return tuple(unknown) or (
        (f"{UNKNOWN}run:{_shape(str(document['reason']))}",)
        if document["verdict"] == "unknown"
        else ()
    )


def _shape(reason: str) -> str:
    """A reason without its numbers and names of files, so that two runs can have the same."""
    return _NUMBER.sub("N", reason.split(";")[0])[:120]


def same(kind: str, found: Sequence[str]) -> bool:
    """Whether a run failed in this way, among others."""
    return kind in found


def name_of(kind: str) -> str:
    """A kind of failure as the name of a folder."""
    return _NAME.sub("-", kind.lower()).strip("-")[:80]


def by_kind(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Failed runs by kind, in order: by their first kind, or by one of their others that is the
    first of another run.

    In the latter case by their first kind too, unless most runs of the other have it as well: then
    it may well be a consequence.
    """
    found: dict[str, list[Result]] = {}
    failed = [result for result in results if result.kinds]
    for result in sorted(failed, key=lambda result: result.number):
        known = next((kind for kind in result.kinds if kind in found), result.kinds[0])
        found.setdefault(known, []).append(result)
    for kind, runs in list(found.items()):
        for first in dict.fromkeys(run.kinds[0] for run in runs if run.kinds[0] != kind):
            if sum(first in run.kinds for run in runs) <= len(runs) / 2:
                own = [run for run in runs if run.kinds[0] == first]
                found[first] = sorted([*found.get(first, ()), *own], key=lambda run: run.number)
    return found
