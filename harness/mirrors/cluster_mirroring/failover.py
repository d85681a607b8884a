"""The failover of a cluster mirror: when an accepted stop has taken effect, and the record of one
that never did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.cluster_mirroring import from_bytes
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused, summary
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.protocols import Cluster, FailoverKind
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until

STOPPING: Final = "STOPPING"
NEVER_MIRRORED: Final = "NEVER_MIRRORED"
"""The error of a failback whose mirror was started but never mirrored, so that no failover over it
is possible."""
NO_EFFECT: Final = "ACCEPTED_WITHOUT_EFFECT"
"""A stop that was accepted, although partitions are neither STOPPED nor STOPPING after the
deadline."""


def await_stopped(
    link: str,
    destination: Cluster,
    wanted: Collection[TopicPartition],
    *,
    resets: Mapping[TopicPartition, int],
    rows: Callable[[], Sequence[DescribeRow]],
    within: float,
) -> None:
    """Waits until every partition's log has one reset record more than before (`resets`), and then
    until describe reports STOPPED, when it becomes writable.

    `rows` returns describe's answer. Raises DeadlineExceeded.
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
    link: str, kind: FailoverKind, error: VerbRefused, *, seconds: float, states: str
) -> tuple[FailoverRefused, FaultError]:
    """The event and the error of a failover that was refused until the deadline, or accepted
    without effect."""
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
