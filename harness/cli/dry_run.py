"""`linkflap run --dry-run`: prints what a run would start, and when."""

from __future__ import annotations

import shlex

import click

from linkflap.harness.model.clients import LIBRDKAFKA
from linkflap.harness.model.scenario import Scenario, add_readers, unread


def show_schedule(chosen: Scenario, runtime: str, *, as_json: bool) -> int:
    import msgspec

    from linkflap.chaos.schedule import describe, spared
    from linkflap.harness.recording.run import check, commands
    from linkflap.topologies import draw

    check(chosen, runtime)
    if as_json:
        click.echo(msgspec.json.encode(chosen))
        return 0
    whose = ", ".join(dict.fromkeys(spec.library for spec in chosen.workloads if not spec.command))
    clients = f"; clients of {whose}" if whose not in ("", LIBRDKAFKA) else ""
    click.echo(
        f"{chosen.name}: {chosen.about}\nseed {chosen.seed}; runtime "
        f"{runtime}{clients}\n\n{draw(chosen.topology)}\n"
    )
    for id, line in describe(chosen.schedule).items():
        click.echo(f"  {id:10} {line}")
    click.echo(f"  {'then':10} {_promised(chosen)}")
    for link, passed in spared(chosen).items():
        traffic = "" if passed else ", and no client writes records that pass over it"
        click.echo(f"  {link}: this schedule has no fault on it{traffic}")
    if not chosen.acknowledged and not any(spec.command for spec in chosen.workloads):
        click.echo("  no workload writes records, so the verdict will be unknown")
    for cluster, home in unread(chosen).items():
        click.echo(
            f"  no reader reads {home}'s records on {cluster}, so what readers see there is not "
            f"judged: {add_readers(cluster, home)}"
        )
    if started := commands(chosen):
        click.echo("\ncommands of yours that it starts, each without a shell:")
        for what, words in started.items():
            click.echo(f"  {what:26} {shlex.join(words)}")
    return 0


def _promised(chosen: Scenario) -> str:
    """By when clients must go on after the last fault."""
    own = {
        spec.progress_within for spec in chosen.workloads if spec.progress_within is not None
    } - {chosen.progress_within}
    others = (
        f" (of some workloads {', '.join(f'{each:g}' for each in sorted(own))} s)" if own else ""
    )
    return (
        f"every client with work makes progress within {chosen.progress_within:g} s{others}"
        if chosen.progress_within or own
        else "no client promises to go on (progress_within = 0)"
    )
