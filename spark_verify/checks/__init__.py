"""The checks, one file each, and their registry. `docs/checks.md` describes them; a test compares
it with this list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from linkflap.spark_verify.checks import (
    aborted_read,
    byte_equality,
    commit_aborted,
    duplicate,
    exactly_once,
    failover,
    ghost_ack,
    group_offsets,
    inconsistent_offset,
    internal_topics,
    last_stable_offset,
    leader_epochs,
    log_start,
    lost_write,
    marker_pairing,
    mirror_states,
    order_equality,
    poll_continuity,
    producer_id_uniqueness,
    program_copies,
    progress,
    provenance,
    read_committed_visibility,
    record_equality,
    replica_agreement,
    send_order,
    sequence_continuity,
    share_groups,
    standby_isolation,
    topic_sync,
    torn_transaction,
    truncation_accounting,
    uncommitted_read,
    unseen,
    write_cycles,
)
from linkflap.spark_verify.checks.base import Check

REGISTRY: Final[Mapping[str, Check]] = MappingProxyType(
    {
        check.name: check
        for check in (
            order_equality.CHECK,
            lost_write.CHECK,
            unseen.CHECK,
            duplicate.CHECK,
            send_order.CHECK,
            ghost_ack.CHECK,
            inconsistent_offset.CHECK,
            provenance.CHECK,
            commit_aborted.CHECK,
            torn_transaction.CHECK,
            write_cycles.CHECK,
            read_committed_visibility.CHECK,
            aborted_read.CHECK,
            uncommitted_read.CHECK,
            poll_continuity.CHECK,
            last_stable_offset.CHECK,
            log_start.CHECK,
            producer_id_uniqueness.CHECK,
            sequence_continuity.CHECK,
            marker_pairing.CHECK,
            replica_agreement.CHECK,
            leader_epochs.CHECK,
            byte_equality.CHECK,
            record_equality.CHECK,
            standby_isolation.CHECK,
            truncation_accounting.CHECK,
            group_offsets.CHECK,
            share_groups.CHECK,
            exactly_once.CHECK,
            program_copies.CHECK,
            progress.CHECK,
            internal_topics.CHECK,
            failover.CHECK,
            mirror_states.CHECK,
            topic_sync.CHECK,
        )
    }
)
