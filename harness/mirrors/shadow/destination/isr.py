"""Changes ISRs of partitions that the shadow leads, many at once.

A partition's epoch is in no API that a shadow may ask (KIP-497): it is guessed. Too low is
INVALID_UPDATE_VERSION, too high NOT_CONTROLLER of that partition; the guess that fits is the change
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.destination.picture import Picture
from linkflap.harness.mirrors.shadow.log.partition import Partition
from linkflap.harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
_MOST_GUESSES: Final = 64


async def change(
    membership: Membership, here: Picture, wanted: Mapping[Partition, Sequence[int]]
) -> None:
    """Asks for these ISRs until each was taken or refused: what came of it is for the caller to
    look at. Raises Unanswered."""
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
    """The next guess and its bounds (`high` -1: none yet), or None when the answer was about
    something else."""
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
