"""The errors of linkflap, and the exit code of each.

A violation of a guarantee is a value (`harness.model.verdict.Anomaly`), never an exception.

    LinkflapError
    ├── InputError        254  a scenario, topology, option or path the user gave is wrong
    ├── EnvironmentFailure 255  this machine or a process on it failed before there was a verdict
    │   ├── SetupError         something could not be fetched, built, leased or started
    │   └── DeadlineExceeded   a condition was not met in time; has the last state seen
    └── FaultError        255  a fault could not be applied, or could not be healed

Every message is one sentence that says what is wrong and how to fix it.
"""

from __future__ import annotations

VALID, INVALID, UNKNOWN = 0, 1, 2
INTERRUPTED = 130
WRONG_INPUT = 254
FAILED = 255


class LinkflapError(Exception):
    """Base of all errors that linkflap raises on purpose."""

    exit_code = FAILED


class InputError(LinkflapError):
    """The user's input is wrong; nothing was started."""

    exit_code = WRONG_INPUT


class EnvironmentFailure(LinkflapError):
    """The machine, or a process on it, failed before there was a verdict."""


class SetupError(EnvironmentFailure):
    """Something that the run needs could not be fetched, built, leased or started."""


class DeadlineExceeded(EnvironmentFailure):
    """A condition did not come true in time."""


class FaultError(LinkflapError):
    """A fault could not be applied or healed."""
