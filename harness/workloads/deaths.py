"""The deaths of one process of clients and its successors: which of them a fault caused, and when
to stop restarting."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.workloads.death import ITSELF, Death, examined
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.protocol import KillAt, KilledAt

DEATHS_IN_A_ROW: Final = 5
"""After this many deaths of a process soon after its start, without progress, it is not
restarted."""
SOON: Final = int(5e9)
"""In nanoseconds. A process that lived longer without progress may just have a cluster that does
not answer."""


class Deaths:
    """Counts the deaths, and keeps a fault's order to kill the process. Not thread-safe: its owner
    locks."""

    def __init__(self, name: str, *, root: Path, log: Path) -> None:
        self.count = self.in_vain = 0
        self.order: KillAt | None = None
        self.falling: KilledAt | None = None
        """The last report of a process before it was killed by such an order."""
        self._name, self._root, self._log = name, root, log
        self._killer = ""
        self._never_returned: set[int] = set()

    @property
    def never_restarted(self) -> bool:
        """Whether it is no longer restarted."""
        return self.in_vain >= DEATHS_IN_A_ROW

    def ordered(self, order: KillAt | None, *, by: str) -> None:
        """A fault orders its death, or cancels the order."""
        self.order, self._killer, self.falling = order, by, None

    def examined(self, members: Sequence[Member], *, pid: int, status: int, began: int) -> Death:
        """Examines the process that began at this time and has just ended."""
        killed = status == -signal.SIGKILL and self.falling is not None
        death = examined(
            self._name,
            members,
            root=self._root,
            log=self._log,
            pid=pid,
            status=status,
            by=self._killer if killed else ITSELF,
            falling=self.falling,
            began=began,
            known=self._never_returned,
        )
        self.in_vain = 0 if not death.idle else self.in_vain + (death.time - began < SOON)
        self.count += 1
        self.falling = None
        if killed:
            self.order, self._killer = None, ""
        return death
