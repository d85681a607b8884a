"""The deaths of one process of clients and its successors: which of them a fault caused, and when
to stop restarting."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.workloads.death import ITSELF, Death, examined
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.protocol import Fall, Falling

DEATHS_IN_A_ROW: Final = 5
"""So many deaths of one process soon after its start, nothing done in between, and it is not
started again."""
SOON: Final = int(5e9)
"""Nanoseconds. Who lives longer and has done nothing has perhaps a cluster that does not answer."""


class Deaths:
    """Counts them, and keeps the order by which a fault has the process killed. Whoever has it
    locks around its methods."""

    def __init__(self, name: str, *, root: Path, log: Path) -> None:
        self.count = self.in_vain = 0
        self.order: Fall | None = None
        self.falling: Falling | None = None
        """The last report of a process before it was killed as ordered."""
        self._name, self._root, self._log = name, root, log
        self._killer = ""
        self._never_returned: set[int] = set()

    @property
    def hopeless(self) -> bool:
        """Whether it is not to be started again."""
        return self.in_vain >= DEATHS_IN_A_ROW

    def ordered(self, order: Fall | None, *, by: str) -> None:
        """A fault has it killed, or takes that back."""
        self.order, self._killer, self.falling = order, by, None

    def examined(self, members: Sequence[Member], *, pid: int, status: int, began: int) -> Death:
        """Examines a process that began at a time and has just ended."""
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
