"""The assumed guarantee of logs that linkflap did not record (`verify --logs`, `verify
--bootstrap`): the mirror keeps offsets.

No anomaly is allowed, because no record of faults exists. Leader epochs may be the source's or the
destination's, unless an option says that the mirror keeps the source's: both generations of
KIP-1279 exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkflap.harness.model.guarantee import MAPPED, Guarantee
from linkflap.harness.model.scenario import Option

PRESETS: Final[Mapping[str, Mapping[str, Option]]] = {
    "exact": {},
    "cluster-mirroring": {"leader_epochs": "keep"},
    "shadow": {"leader_epochs": "any"},
}
"""Mirrors by name, for who has their logs alone: `exact` is any that keeps offsets and bytes;
`cluster-mirroring` is KIP-1279, which keeps leader epochs too; `shadow` has the destination's own
epochs, unless it is said that it keeps them."""


def no_mirror(_options: Mapping[str, Option]) -> Guarantee:
    """Logs that are looked at by themselves."""
    return Guarantee(equality="order", offsets_kept=False, producer_ids="kept")


def guarantee(options: Mapping[str, Option]) -> Guarantee:
    """Bytes at the same offsets, modulo what `producer_ids` says that the mirror made of producer
    ids."""
    given = str(options.get("producer_ids", "keep"))
    return Guarantee(
        equality="bytes",
        offsets_kept=True,
        producer_ids=given if given in MAPPED else "kept",
        leader_epochs_kept=options.get("leader_epochs") == "keep",
        group_offsets="exact",
        reversible=True,
    )
