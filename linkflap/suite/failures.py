"""Signatures of failures, by which runs are compared: the kinds of anomalies that were not allowed,
or the reasons for an unknown verdict."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from linkflap.spark_verify.checks import REGISTRY
from linkflap.suite.folder import RunResult

UNKNOWN: Final = "unknown:"
LONGEST: Final = 80
"""The most characters of a folder's name."""
_NAME: Final = re.compile(r"[^a-z0-9]+")
_NUMBER: Final = re.compile(r"\d[\d,.]*")


def _violated(checks: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The kinds of anomalies of the invalid checks, in the order of the registry of checks."""
    order = {name: number for number, name in enumerate(REGISTRY)}
    invalid = sorted(
        (c for c in checks if c["verdict"] == "invalid"),
        key=lambda c: order.get(c["name"], len(order)),
    )
    return [
        f"{c['name']}:{kind}" for c in invalid for kind in sorted(c["kinds"]) or ["not-explained"]
    ]


def kinds_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of failure of one verdict as `check:kind`, causes before consequences. A run
    without anomalies has the reasons for its unknown checks instead.

    A run with anomalies has no such reasons, because they may be consequences of the anomalies.
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
    """The first part of a reason, with numbers replaced by N: so that the same reason in two runs
    is the same text."""
    return _NUMBER.sub("N", reason.split(";")[0])[:120]


def same(kind: str, found: Sequence[str]) -> bool:
    """Whether `kind` is among the kinds of failure of a run."""
    return kind in found


def era_of(document: Mapping[str, Any], kind: str) -> str:
    """The era (native or mirrored) of the first anomaly of this kind that was not allowed. Empty if
    it belongs to no era of a log."""
    for anomaly in document.get("anomalies", ()):
        if f"{anomaly['check']}:{anomaly['kind']}" == kind and not anomaly["allowed"]:
            eras = document.get("eras", ())
            return next((str(era["origin"]) for era in eras if _in(anomaly, era)), "")
    return ""


def _in(anomaly: Mapping[str, Any], era: Mapping[str, Any]) -> bool:
    """An anomaly in a log that was truncated since has a capture (`spark_verify.verdict`)."""
    if era["truncated"] != ("capture" in anomaly["evidence"]):
        return False
    return all(anomaly[name] == era[name] for name in ("cluster", "topic", "partition")) and (
        era["start"] <= anomaly["offset"] and (era["end"] is None or anomaly["offset"] < era["end"])
    )


def alike(era: str, other: str) -> bool:
    """Whether two eras may be the same; an empty one is not known."""
    return not era or not other or era == other


def name_of(kind: str) -> str:
    """The name of the folder for a kind of failure. A long one ends with a digest."""
    name = _NAME.sub("-", kind.lower()).strip("-")
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"


def by_kind(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Groups failed runs by kind of failure, in the order of their numbers.

    A run joins the first group whose kind it has. If there is none, its first kind begins a new
    group. A run that joined the group of another kind is also listed under its own first kind,
    unless most runs of that group have this kind too: it may then be a consequence.
    """
    found: dict[str, list[RunResult]] = {}
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
