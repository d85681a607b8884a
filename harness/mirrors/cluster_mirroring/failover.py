"""The failover of a cluster mirror: when an accepted stop has taken effect, and what is recorded if
it never does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.cluster_mirroring import from_bytes
from linkflap.harness.mirrors.cluster_mirroring.answers import Refused, Row, summary
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.protocols import Cluster, FailoverKind
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until

STOPPING: Final = "STOPPING"
NEVER_MIRRORED: Final = "NEVER_MIRRORED"
"""The error of a failback whose mirror was started and never mirrored: nobody can fail over along
it."""
NO_EFFECT: Final = "ACCEPTED_WITHOUT_EFFECT"
"""A stop that was accepted, of partitions that are neither STOPPED nor STOPPING when it should long
be over."""


def await_stopped(
    link: str,
    destination: Cluster,
    wanted: Collection[TopicPartition],
    *,
    resets: Mapping[TopicPartition, int],
    rows: Callable[[], Sequence[Row]],
    within: float,
) -> None:
    """By the bytes a reset more than before (`resets`), in every partition; and writable then,
    which is a moment later.

    `rows`: what describe says. Raises DeadlineExceeded.
    """
    left = list(wanted)

    def writable() -> bool:
        return all(row.state == "STOPPED" for row in rows() if (row.topic, row.partition) in wanted)

    def reset() -> bool:
        nonlocal left
        found = from_bytes.every(destination, left)
        left = [
            tp
            for tp in left
            if tp not in found or from_bytes.resets(found[tp]) <= resets.get(tp, 0)
        ]
        return not left

    def states() -> str:
        return summary(rows())

    def state() -> str:
        return f"{', '.join(f'{topic}-{number}' for topic, number in left[:4])} without; {states()}"

    until(reset, within=within, every=0.1, what=f"the resets of {link}", state=state)
    until(
        writable, within=within, every=0.1, what=f"partitions of {link} to be STOPPED", state=states
    )


def not_promoted(
    link: str, kind: FailoverKind, error: Refused, *, seconds: float, states: str
) -> tuple[FailoverRefused, FaultError]:
    """A failover that was refused for as long as it was asked, or accepted and not carried out: its
    event and its error."""
    event = FailoverRefused(
        link=link,
        mode=kind,
        error=error.name,
        code=error.code,
        message=error.message,
        states=states,
        seconds=seconds,
    )
    what = (
        f"the failover of {link} was refused for {seconds:.0f} s with {error.name} ({error.code})"
    )
    return event, FaultError(f"{what}: {error.message} ({states})")
