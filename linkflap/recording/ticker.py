"""The ticker of a run: checks for dead processes, and for room on the disk."""

from __future__ import annotations

from linkflap.harness.model import interrupts
from linkflap.harness.model.clock import now
from linkflap.recording.unexpected_exits import UnexpectedExits
from linkflap.recording.world import RunWorld
from linkflap.report.progress import Counters, Progress

LAG_EVERY = 1_000_000_000


COUNT_EVERY = 500_000_000
"""Nanoseconds between two checks of the clients' progress: each asks every process of clients."""


class Ticker:
    """Looks who died and whether there is room to write on, and tells the display what clients have
    done and how far mirrors are behind; cheap enough for a wait."""

    def __init__(self, world: RunWorld, progress: Progress, exits: UnexpectedExits) -> None:
        self._world, self._progress, self._exits = world, progress, exits
        self._counted = self._asked = 0
        self._noted: set[tuple[str, int]] = set()

    def __call__(self) -> bool:
        """Always False, so that it can stand in a condition. Raises EnvironmentFailure when nothing
        can be written any more."""
        if interrupts.asked():
            raise KeyboardInterrupt  # the signal's own was lost in a callback of some library
        self._world.recorder.check()
        for exit_ in self._exits.look():
            self._progress.note(exit_)
        for died in self._world.clients.deaths():
            if (died.process, died.pid) not in self._noted:
                self._noted.add((died.process, died.pid))
                self._progress.note(died.sentence)
        if now() - self._counted >= COUNT_EVERY:
            self._counted = now()
            done = self._world.clients.progress()
            read = done.read_committed + done.read_uncommitted
            self._progress.counters(
                Counters(
                    acknowledged=done.acknowledged, aborted=done.aborted, open=done.open, read=read
                )
            )
        if now() - self._asked >= LAG_EVERY:
            self._asked = now()
            # A reversal adds a mirror from another thread, and a lag takes a while to ask for.
            for name, mirror in list(self._world.mirrors.items()):
                self._progress.lag(name, mirror.lag() if mirror.alive else None)
        return False
