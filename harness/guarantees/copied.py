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
"""Mirrors by name, for users who only have logs. `exact` is any that keeps offsets and bytes.
`cluster-mirroring` is KIP-1279, which keeps leader epochs too. `shadow` has the destination's own
epochs, unless an option says that it keeps them."""


def no_mirror(_options: Mapping[str, Option]) -> Guarantee:
    """Logs without a mirror."""
    return Guarantee(equality="order", offsets_kept=False, producer_ids="kept")


def guarantee(options: Mapping[str, Option]) -> Guarantee:
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
