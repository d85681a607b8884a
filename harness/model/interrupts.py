"""Ctrl-C, SIGTERM and SIGHUP: the first signal ends the command, and no later one interrupts its
cleanup.

    first     KeyboardInterrupt in the main thread; linkflap stops everything that it started
    second    a sentence on standard error: linkflap is stopping already
    third     the process ends at once; children die with it, the watchdog removes the rest
              (`harness.machine.cleanup`)

The command line owns its process and calls `obey`. Elsewhere (pytest) signals belong to the host
program, and linkflap uses only `held_off`: signals wait until it is left.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from linkflap.harness.model.errors import INTERRUPTED

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_came: list[int] = []


def obey() -> None:
    """Takes the signals over until this process ends. One that is ignored (nohup, a shell's `&`)
    stays ignored."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _arrived)


def asked() -> bool:
    """Whether a signal has requested the end of this process. An exception that a signal raises can
    be swallowed by a library's callback.
    """
    return bool(_came)


def _arrived(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    if len(_came) == 1:
        raise KeyboardInterrupt
    if len(_came) == 2:
        # os.write and not print: the signal may have interrupted a print, and buffered streams are
        # not re-entrant.
        os.write(2, b"linkflap: stopping already; a third signal ends it at once\n")
        return
    os._exit(INTERRUPTED)


@contextmanager
def held_off() -> Iterator[None]:
    """A block for cleanup: a signal that arrives in the block takes effect at its end."""
    # Only the main thread gets signals; and after the first signal, `_arrived` interrupts nothing.
    if threading.current_thread() is not threading.main_thread() or _came:
        yield
        return
    waiting: list[int] = []
    usual = {
        number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))
    }
    for number in usual:
        signal.signal(number, lambda came, frame: waiting.append(came))
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        for came in waiting[:1]:
            signal.raise_signal(came)
