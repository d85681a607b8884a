"""Strategies for mirrored producer ids, as KIP-1279's drafts have them (discussion thread; RS12,
VK4, VK8, VK9).

keep: unchanged (KIP-1279 from March 2026 on, before its reset record). The destination allocates
the same ids again.

negate: -(pid + 2) (February 2026). Brokers treat negative ids as no producer id, and track no
transactions for them.

complement: Long.MAX - pid - 1 (proposed in the thread). Stays positive. A second hop restores the
original id, as with negate.

region: sign bit, 32 bits of the source's cluster id, 31 bits of pid (proposed). Negative, and ids
that differ by a multiple of 2^31 collide.

jump: unchanged; the destination's own allocation is moved past them (`producer_id_advance`).

reset: unchanged; the failover appends a MIRROR_PID_RESET, which unmodified brokers ignore.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from linkflap.harness.mirrors.shadow.batches import ProducerIds
from linkflap.harness.mirrors.shadow.settings import ShadowOptions

_LONGEST: Final = (1 << 63) - 1
MARGIN: Final = 1000
"""Distance from the mirrored ids to the destination's own, at least: the size of one allocated
block (ProducerIdsBlock)."""


def negate(producer_id: int) -> int:
    return -(producer_id + 2)


def complement(producer_id: int) -> int:
    return _LONGEST - producer_id - 1


def region(cluster_id: str) -> Callable[[int], int]:
    """The mapping for producer ids of this cluster."""
    region = zlib.crc32(cluster_id.encode()) << 31

    def mapped(producer_id: int) -> int:
        return region + (producer_id & 0x7FFFFFFF) - (1 << 63)

    return mapped


def mapping(options: ShadowOptions, source_cluster_id: str) -> ProducerIds | None:
    """The mapping of producer ids; None when they are unchanged."""
    changed: dict[str, ProducerIds] = {
        "negate": negate,
        "complement": complement,
        "region": region(source_cluster_id),
    }
    return changed.get(options.producer_ids)
