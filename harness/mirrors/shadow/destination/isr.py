"""Changes the ISRs of partitions that the shadow leads, many at once.

AlterPartition needs a partition epoch (KIP-497), and no API that a shadow can use returns it. So it
is guessed: the error is INVALID_UPDATE_VERSION for a guess that is too low, and NOT_CONTROLLER for
that partition when it is too high. The right guess makes the change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import MetadataSnapshot
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
_MOST_GUESSES: Final = 64


async def change(
    membership: Membership, here: MetadataSnapshot, wanted: Mapping[Partition, Sequence[int]]
) -> None:
    """Requests these ISRs until each was accepted or refused; the caller checks the result. Raises
    Unanswered."""
    bounds = {partition: (0, -1) for partition in wanted}
    guesses = {
        partition: partition.partition_epoch
        for partition in wanted
        if partition.topic in here.topics
    }
    for _ in range(_MOST_GUESSES):
        if not guesses:
            return
        tps = {(p.topic, p.number): p for p in guesses}
        known = {tp: (here.topics[tp[0]].id, p.leader_epoch, guesses[p]) for tp, p in tps.items()}
        answers = await membership.alter({tp: wanted[p] for tp, p in tps.items()}, known)
        for tp, answer in answers.items():
            partition = tps[tp]
            following = _next(answer, guesses[partition], *bounds[partition])
            if following is None:
                _settle(partition, answer, guesses.pop(partition))
            else:
                guesses[partition], *limits = following
                bounds[partition] = limits[0], limits[1]


def _next(answer: Message, guess: int, low: int, high: int) -> tuple[int, int, int] | None:
    """The next guess and its bounds (`high` -1: none yet). None when the answer does not concern
    the partition epoch."""
    if answer.error_code == Error.invalid_update_version:
        low = guess + 1
    elif answer.error_code == Error.not_controller:
        high = guess
    else:
        return None
    return (max(2 * guess, low) if high < 0 else (low + high) // 2), low, high


def _settle(partition: Partition, answer: Message, guess: int) -> None:
    if answer.error_code == Error.none:
        partition.partition_epoch = int(answer.partition_epoch)
    elif answer.error_code == Error.new_leader_elected:
        log.info("%s is handed over", partition.name)
    else:
        log.info("%s: ISR not changed: %s", partition.name, answer.error_code.name)
        partition.partition_epoch = guess
