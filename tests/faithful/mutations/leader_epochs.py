"""Leader epochs that fall, or that nobody assigned."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    PAIR,
    ROUND_TRIP,
    NothingToChange,
    change_mark,
    mapped,
    marks,
    mutation,
    promotion,
    put,
)


@mutation(FORCED, must="leader-epochs/leader-epoch-regression leader-epochs/epoch-not-raised")
def epoch_of_a_batch_fell(made: Made, rng: Random) -> None:
    """B's last batch has the leader epoch of the mirrored batches."""
    log = made.log("B")
    made.change("B", 0, put(log[-1], leader_epoch=log[0].leader_epoch))


@mutation(FORCED, must="leader-epochs/epoch-not-raised")
def epoch_not_raised_by_the_promotion(made: Made, rng: Random) -> None:
    """The batches of B's clients have the leader epoch of the mirrored batches."""
    epoch = made.log("B")[0].leader_epoch
    made.change("B", 0, lambda log: [replace(e, leader_epoch=epoch) for e in log])


@mutation(PAIR, must="leader-epochs/epoch-behind")
def leader_behind_its_batches(made: Made, rng: Random) -> None:
    """The last sample of A has a leader epoch below that of batches under its high watermark."""
    made.change("A", 0, lambda log: [replace(e, leader_epoch=e.leader_epoch + 3) for e in log])


@mutation(PAIR, must="leader-epochs/sampled-epoch-regression")
def epoch_that_nobody_assigned(made: Made, rng: Random) -> None:
    """One sample of A has leader epoch 1000; the samples before and after it do not."""
    sampled = marks(made, "A")
    if len(sampled) < 3:
        raise NothingToChange("nothing later contradicts the last sample")
    change_mark(made, sampled[len(sampled) // 2], leader_epoch=1000)


@mutation(
    mapped(FORCED, leader_epochs="keep"),
    must="leader-epochs/epoch-behind",
    may="truncation-accounting/epoch-mismatch",
)
def destination_behind_its_source(made: Made, rng: Random) -> None:
    """B's leader reported an epoch below the source's, with a mirror that keeps leader epochs
    (KIP-1279: DLE >= SLE)."""
    for cluster in "AB":
        made.change(
            cluster, 0, lambda log: [replace(e, leader_epoch=e.leader_epoch + 1) for e in log]
        )
    for mark in marks(made, "A"):
        change_mark(made, mark, leader_epoch=mark.leader_epoch + 1)


@mutation(ROUND_TRIP, must="leader-epochs/epoch-reuse", may="truncation-accounting/epoch-mismatch")
def epoch_used_again(made: Made, rng: Random) -> None:
    """After the truncation of A's tail, A has other batches at these offsets in the leader epoch of
    the tail."""
    parted = promotion(made, "B")
    epoch = made.log("A", moment="1-reverse")[-1].leader_epoch
    home = promotion(made, "A")
    made.change(
        "A",
        0,
        lambda log: [
            replace(e, leader_epoch=epoch) if parted <= e.offset < home else e for e in log
        ],
    )
