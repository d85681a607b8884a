"""The guarantees of each mirror that linkflap knows, one file each; no sockets, no processes.

`harness.mirrors` reads them when it starts mirrors. They also serve two kinds of input without a
guarantee in run.json: run directories of older versions, and logs that linkflap did not record
(`verify --logs`, `verify --bootstrap`). The mirror of such logs is assumed to keep offsets. No
anomaly is allowed there, because no record of faults exists. Leader epochs may be the source's or
the destination's, unless an option says that the mirror keeps the source's: both generations of
KIP-1279 exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from linkflap.harness.guarantees import allowed, cluster_mirroring, mm2, shadow
from linkflap.harness.model.guarantee import MAPPED, Allowance, Guarantee
from linkflap.harness.model.scenario import MirrorSpec, Option

PRESETS: Final[Mapping[str, Mapping[str, Option]]] = {
    "exact": {},
    "cluster-mirroring": {"leader_epochs": "keep"},
    "shadow": {"leader_epochs": "any"},
}
"""Mirrors by name, for users who only have logs. `exact` is any that keeps offsets and bytes.
`cluster-mirroring` is KIP-1279, which keeps leader epochs too. `shadow` has the destination's own
epochs, unless an option says that it keeps them."""


def _without_mirror(_options: Mapping[str, Option]) -> Guarantee:
    """Logs without a mirror."""
    return Guarantee(equality="order", offsets_kept=False, producer_ids="kept")


def of_copied_logs(options: Mapping[str, Option]) -> Guarantee:
    """Equal bytes at equal offsets, except for producer ids that the mirror changed as
    `producer_ids` says."""
    given = str(options.get("producer_ids", "keep"))
    return Guarantee(
        equality="bytes",
        offsets_kept=True,
        producer_ids=given if given in MAPPED else "kept",
        leader_epochs_kept=options.get("leader_epochs") == "keep",
        group_offsets="exact",
        reversible=True,
    )


DECLARATIONS: Final[Mapping[str, Callable[[Mapping[str, Option]], Guarantee]]] = {
    "cluster-mirroring": cluster_mirroring.guarantee,
    "mm2": mm2.guarantee,
    "shadow": shadow.guarantee,
    "exact": of_copied_logs,
    "none": _without_mirror,
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
