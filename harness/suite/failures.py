"""What failed how: anomalies that nothing allows, and what could not be known, as plain texts that runs can be compared by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from linkflap.harness.suite.folder import Result
from linkflap.spark_verify.checks import REGISTRY

UNKNOWN: Final = "unknown:"
_NAME: Final = re.compile(r"[^a-z0-9]+")
_NUMBER: Final = re.compile(r"\d[\d,.]*")


def kinds_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of failure of one verdict, the leading one first: `check:kind` in the order of the checks, or what was unknown.

    Where there are anomalies, what was unknown beside them is left out: it may well be their consequence.
    """
    order = {name: number for number, name in enumerate(REGISTRY)}
    found = {
        (order.get(c["name"], len(order)), f"{c['name']}:{kind}")
        for c in document["checks"]
        if c["verdict"] == "invalid"
        for kind in _kinds(c, document["anomalies"])
    }
    if found:
        return tuple(name for _, name in sorted(found))
    unknown = [f"{UNKNOWN}{c['name']}:{_shape(c['reason'])}" for c in document["checks"] if c["verdict"] == "unknown"]
    return tuple(unknown) or ((f"{UNKNOWN}run:{_shape(str(document['reason']))}",) if document["verdict"] == "unknown" else ())


def _kinds(check: Mapping[str, Any], anomalies: Iterable[Mapping[str, Any]]) -> list[str]:
    own = sorted({str(a["kind"]) for a in anomalies if a["check"] == check["name"] and not a["allowed"]})
    return own or ["not-explained"]


def _shape(reason: str) -> str:
    """A reason without its numbers and names of files, so that two runs can have the same."""
    return _NUMBER.sub("N", reason.split(";")[0])[:120]


def same(kind: str, found: Sequence[str]) -> bool:
    """Whether a run failed in this way, beside whatever else."""
    return kind in found


def name_of(kind: str) -> str:
    """A kind of failure as the name of a folder."""
    return _NAME.sub("-", kind.lower()).strip("-")[:80]


def by_kind(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Failed runs by their leading kind, each kind's in order."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.kinds:
            found.setdefault(result.kinds[0], []).append(result)
    return found
