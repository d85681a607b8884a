"""Commands of the user's that end, pause and start brokers of clusters that linkflap did not start.

What a command has started stays when it has ended: a broker outlives linkflap. While a broker is
down or paused the ledger has the command that undoes it, and this process' watchdog runs that after
its death (`harness.machine.ledger`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.texts import filled, names_in

UNDONE_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"kill": "start", "stop": "start", "pause": "resume"}
)
"""The verbs that a command can do to a broker, each with the verb that undoes it."""
VERBS: Final = (*UNDONE_BY, *dict.fromkeys(UNDONE_BY.values()))
NAMES: Final = ("{broker}", "{cluster}")
"""The names that are filled into a command's words."""
ENDS_WITHIN: Final = 120.0
"""Seconds in which a command must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCommand:
    """A command that does `verb` to one broker, run in `folder`. `{broker}` and `{cluster}` in its
    words mean the broker's id and its cluster's name."""

    cluster: str
    broker: int
    verb: str
    words: tuple[str, ...]
    folder: str

    def run(self, log: Path | None) -> None:
        """Returns when it has ended; its output goes to the end of `log`. Raises FaultError where
        it cannot be started, fails, or does not end in time."""
        names = {"broker": str(self.broker), "cluster": self.cluster}
        words = [filled(word, names) for word in self.words]
        what = (
            f"the command that is to {self.verb} broker {self.cluster}/{self.broker} ({words[0]})"
        )
        see = "" if log is None else f"; see {log}"
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A file, not a pipe: a broker that it starts keeps its output open.
            with Path(os.devnull if log is None else log).open("ab") as output:
                running = subprocess.Popen(
                    words,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # no signal of our terminal reaches the broker
                )
        except OSError as error:
            raise FaultError(f"{what} cannot be run: {error.strerror}") from error
        try:
            status = running.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            raise FaultError(f"{what} did not end within {ENDS_WITHIN:g} s{see}") from None
        finally:
            self._end(running)
        if status:
            raise FaultError(f"{what} ended with status {status}{see}")

    def _end(self, running: subprocess.Popen[bytes]) -> None:
        """Ends a command that still runs, with all that it has started; of one that starts a broker
        itself alone, because the broker may be among them."""
        if running.poll() is not None:
            return
        if self.verb in UNDONE_BY:
            os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
        running.wait()


def unknown_name(word: str) -> str | None:
    """The first name in braces that is not one of `NAMES`. `${NAME}` is a shell's."""
    return next((f"{{{name}}}" for name in names_in(word) if f"{{{name}}}" not in NAMES), None)
