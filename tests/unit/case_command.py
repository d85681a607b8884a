"""The command linkflap case, invoked as a user would."""

from __future__ import annotations

from pathlib import Path

import click.testing
from click.testing import CliRunner

from linkflap.cli.case import case
from linkflap.cli.commands import _exit_of

ROOT = Path(__file__).parents[2]


def invoked(*words: str) -> click.testing.Result:
    return CliRunner().invoke(case, list(words), standalone_mode=False)


def ended(*words: str) -> tuple[int, str]:
    """The exit code and the error of a command that is refused."""
    error = invoked(*words).exception
    assert error is not None
    return _exit_of(error)
