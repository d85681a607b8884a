"""A mirror's report of its end in the histories of truncation-accounting."""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.spark_verify.facts.partition_facts import MirrorStop
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import promoted, view
from tests.unit.checks.logs import SECOND, Log


def stop(
    mirrored: int,
    at: int,
    *appended: tuple[int, str],
    truncated: Sequence[tuple[int, int]] = (),
    epochs: Sequence[tuple[int, int]] = (),
) -> MirrorStop:
    return MirrorStop(
        link="A->B", cluster="B", time=500 * SECOND, mirrored=mirrored, promoted=at,
        truncated=truncated, appended=appended,
        epochs=epochs,
    )  # fmt: skip


def in_epochs(*epochs: tuple[int, int]) -> PartitionView:
    """B has mirrored 1 2 in epoch 0 and 3 in epoch 2, and reports these epochs; what follows is its
    own."""
    b = Log("B").data(1).data(2).data(3, leader_epoch=2).data(9, leader_epoch=7)
    return view(
        [Log("A").data(1).data(2).data(3), b], mirror_kind="shadow", promotions=[promoted(3)],
        stops=[stop(3, 3, epochs=epochs)]
    )  # fmt: skip


def shortened(
    *truncated: tuple[int, int],
    mirrored: int = 3,
    promoted_at: int = 1,
    log: Log | None = None,
    appended: Sequence[tuple[int, str]] = (),
    reset: bool = False,
) -> PartitionView:
    """B had 1 2 3 of A, was truncated to `promoted_at`, perhaps reset there, and continues in
    leader epoch 1."""
    log = log or Log("B").data(1).data(8, leader_epoch=1).data(9, leader_epoch=1)
    return view(
        [Log("A").data(1).data(2).data(3), log], mirror_kind="shadow",
        promotions=[promoted(promoted_at)],
        stops=[stop(mirrored, promoted_at + reset, *appended, *[(promoted_at, "reset")] * reset,
            truncated=truncated)],
    )  # fmt: skip


def ended(reported: MirrorStop, *, offset: int = 1) -> PartitionView:
    """A has an open transaction, B its ABORT at offset 1."""
    a = Log("A").txn(1, pid=7, end=None)
    b = Log("B").txn(1, pid=7, end="abort")
    return view([a, b], mirror_kind="shadow", promotions=[promoted(offset)], stops=[reported])


SAID = (1, "ABORT of producer 7, epoch 0")
