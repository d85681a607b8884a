"""What a mirror does about producer ids, one strategy per generation of KIP-1279 (discussion
thread; RS12, VK4, VK8, VK9).

keep        untouched (KIP-1279 from March 2026 on, before its reset record): the destination hands
            the same ids out again
negate      -(pid + 2) (February 2026): brokers take negative ids for none and track no transaction
            of them
complement  Long.MAX - pid - 1 (proposed in the thread): stays positive; a second hop gives the
            first id back, as negate's does
region      sign bit, 32 bits of the source's cluster id, 31 bits of pid (proposed): negative, and
            ids above 2^31 fold
jump        untouched, and the destination's own allocation is kept past them (`jump`)
reset       untouched, and at failover a MIRROR_PID_RESET is appended, which stock brokers do not
            act on
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from linkflap.harness.mirrors.shadow.log.batches import ProducerIds
from linkflap.harness.mirrors.shadow.settings import Options

_LONGEST: Final = (1 << 63) - 1
MARGIN: Final = 1000
"""How far past the mirrored ids those of the destination begin at least: one block of an allocation
(ProducerIdsBlock)."""


def negate(producer_id: int) -> int:
    return -(producer_id + 2)


def complement(producer_id: int) -> int:
    return _LONGEST - producer_id - 1


def region(cluster_id: str) -> Callable[[int], int]:
    """The mapping for ids of that cluster."""
    region = zlib.crc32(cluster_id.encode()) << 31

    def mapped(producer_id: int) -> int:
        return region + (producer_id & 0x7FFFFFFF) - (1 << 63)

    return mapped


def mapping(options: Options, source_cluster_id: str) -> ProducerIds | None:
    """How ids are changed on the way; None when they are not."""
    changed: dict[str, ProducerIds] = {
        "negate": negate,
        "complement": complement,
        "region": region(source_cluster_id),
    }
    return changed.get(options.producer_ids)
