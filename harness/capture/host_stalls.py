"""Detects host stalls: an oversleep beyond a broker's session timeout means that this machine
starved everyone."""

from __future__ import annotations

import threading
import time
from typing import Final

from linkflap.harness.model.events import HostStall
from linkflap.harness.model.protocols import Recorder
from linkflap.harness.model.wait import until

SESSION_TIMEOUT: Final = 3.0
_JOIN_WITHIN: Final = 30.0


class StallWatch:
    """Sleeps a quarter of a second at a time, and records it when the machine did not wake it for a
    session timeout."""

    def __init__(
        self, recorder: Recorder, *, threshold: float = SESSION_TIMEOUT, interval: float = 0.25
    ) -> None:
        self._recorder, self._threshold, self._interval = recorder, threshold, interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(self._interval):
            after = time.monotonic()
            self.noticed(after - before - self._interval)
            before = after

    def noticed(self, oversleep: float) -> None:
        """Records an oversleep of so many seconds when it is beyond the threshold."""
        if oversleep >= self._threshold:
            self._recorder.write(HostStall(seconds=round(oversleep, 3)))

    def stop(self) -> None:
        """Returns when the thread is gone; safe to call twice, and before start."""
        self._stopping.set()
        if self._thread.ident is not None:
            until(
                lambda: not self._thread.is_alive(),
                within=_JOIN_WITHIN,
                what="the stall watch to stop",
            )
