"""`linkflap clean`: removes what dead harnesses left behind, or reports what is still there and how
to fix it."""

from __future__ import annotations

import click

from linkflap.harness.machine import cleanup, engine_leftovers
from linkflap.harness.model.errors import FAILED


def show() -> int:
    """Removes everything that a ledger lists, then leftovers that no ledger lists. Returns the exit
    code."""
    known, unclaimed = cleanup.clean(), engine_leftovers.unclaimed()
    removed = [*known.removed, *unclaimed.removed]
    # both searches may find the same thing
    left = list(dict.fromkeys((*known.left, *unclaimed.left)))
    for thing in removed:
        click.echo(f"removed {thing}", err=True)
    for sentence in left:
        click.echo(f"linkflap: {sentence}", err=True)
    if removed or not left:
        click.echo(
            f"{len(removed)} left-over things removed" if removed else "nothing was left behind",
            err=True,
        )
    return FAILED if left else 0
