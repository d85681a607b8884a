"""What Kafka's log cleaner leaves of a batch that it rewrites (cleanup.policy=compact; `MemoryRecords.filterTo`).

A cleaner takes records away, and with them bytes, count and CRC. It also writes a delete horizon into batches that hold
tombstones or markers (KIP-534, attributes bit 6), which takes the place of the base timestamp: every broker chooses its own, so
that one marker has 78 bytes on one replica and 80 on another. Where a batch begins and ends, its leader epoch, its producer and
its kind stay. So below the cleaner's checkpoint two batches at one offset are the same one as long as those agree.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "control", "transactional")
"""Columns of `spark_verify.view.Batches` that no cleaner changes; the base offset is what batches are compared at."""
