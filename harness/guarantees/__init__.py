"""The guarantees of each mirror that linkflap knows, one file each; no sockets, no processes.

`harness.mirrors` reads them when it starts mirrors. They also serve two kinds of input without a
guarantee in run.json: run directories of older versions, and logs that linkflap did not record
(`verify --logs`, `verify --bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from linkflap.harness.guarantees import allowed, cluster_mirroring, copied, mm2, shadow
from linkflap.harness.model.guarantee import Allowance, Guarantee
from linkflap.harness.model.scenario import MirrorSpec, Option

DECLARATIONS: Final[Mapping[str, Callable[[Mapping[str, Option]], Guarantee]]] = {
    "cluster-mirroring": cluster_mirroring.guarantee,
    "mm2": mm2.guarantee,
    "shadow": shadow.guarantee,
    "exact": copied.guarantee,
    "none": copied.no_mirror,
}

ALLOWED: Final[Mapping[str, tuple[Allowance, ...]]] = {
    "mm2 delivery=at-least-once": (mm2.REPEATS,),
    "mm2": mm2.ALLOWED,
    "shadow": shadow.ALLOWED,
    "cluster-mirroring": cluster_mirroring.ALLOWED,
    **{f"any, after {fault}": lines for fault, lines in allowed.LOSSES.items()},
    "any": allowed.BROKERS,
}
"""The anomalies that these declarations allow, by mirror and options, and those that lossy faults
allow: for the docs."""


def declared(spec: MirrorSpec) -> MirrorSpec:
    """The mirror with the guarantee of its kind. A guarantee that it already has is kept, and
    completed with fields that older versions did not write. Raises KeyError for an unknown kind."""
    given = spec.declared
    if given is None:
        return replace(spec, declared=DECLARATIONS[spec.kind](spec.options))
    if given.group_offsets_by is None and spec.kind in DECLARATIONS:
        by = DECLARATIONS[spec.kind](spec.options).group_offsets_by
        return replace(spec, declared=replace(given, group_offsets_by=by))
    return spec
