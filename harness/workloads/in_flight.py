"""An operation of a producer that was invoked and has not returned: its records and their
acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkflap.harness.model.history import Ending, OperationKind
from linkflap.harness.workloads.acks import Acks


@dataclass(slots=True, kw_only=True)
class InvokedOperation:
    """An operation that was invoked and has not returned."""

    number: int
    kind: OperationKind
    ending: Ending
    groups: Sequence[Acks] = ()
    identity: tuple[int, int] = (-1, -1)
    ended_at: int = 0
    returned: bool = False
    group: str = ""

    @property
    def acked(self) -> int:
        return sum(group.acked for group in self.groups)

    @property
    def complete(self) -> bool:
        """Whether every record was acknowledged."""
        return all(group.complete for group in self.groups)

    @property
    def failed(self) -> int:
        """Records whose delivery was reported as failed."""
        return sum(group.failed for group in self.groups)

    @property
    def error(self) -> str:
        """The first delivery error, if any."""
        return next((group.error for group in self.groups if group.error), "")
