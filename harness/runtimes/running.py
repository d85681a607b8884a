"""What a runtime hands over when it has started something: a child process (`harness.machine.children`) or a container."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Running(Protocol):
    """Something that runs, or has ended since. All methods are safe to call again."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    def poll(self) -> int | None:
        """The exit status, or None while it runs."""

    def pause(self) -> None:
        """Returns when it stands still."""

    def resume(self) -> None: ...
    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def stop(self, *, within: float) -> None:
        """SIGTERM, also to a paused one; returns when it is gone. DeadlineExceeded after `within` seconds, and it runs on."""


Spawn = Callable[[], Running]
"""Starts a program on the files it has, what it prints going to a file that its maker chose. Raises SetupError."""
