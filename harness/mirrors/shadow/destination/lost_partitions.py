"""Partitions that the mirror has lost: a real broker leads them, so that they became writable."""

from __future__ import annotations

import logging

from linkflap.harness.mirrors.shadow.destination.picture import Led
from linkflap.harness.mirrors.shadow.log.mirrored_log import MirroredLog
from linkflap.harness.mirrors.shadow.settings import FIRST_BROKER_ID

log = logging.getLogger(__name__)


def is_lost(mirrored: MirroredLog, name: str, number: int, led: Led) -> bool:
    """Whether a real broker leads the partition before the failover. That happens when the shadow's
    session ends after it added partitions to a topic, and before it narrowed their ISRs."""
    notes, note = mirrored.journal.notes, mirrored.journal.partition(name, number)
    if (
        notes.phase not in ("mirroring", "settling", "ending")
        or note.home
        or not 0 <= led.leader < FIRST_BROKER_ID
    ):
        return (name, number) in mirrored.lost
    if (name, number) not in mirrored.lost:
        log.error(
            "%s-%d is led by broker %d and is not mirrored: the shadow was away when it was "
            "created; delete the topic on the destination to mirror it again",
            name,
            number,
            led.leader,
        )
        mirrored.lost.add((name, number))
        mirrored.partitions.pop((name, number), None)
        note.mirrored = note.promoted = 0
        mirrored.journal.save()
    return True
