"""All workloads of a run: crews of linkflap's own clients, and programs of the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads import COMMAND, check, command_options, jvms, topics_for
from linkflap.harness.workloads.command import Command
from linkflap.harness.workloads.crew import Addresses, ClientNames, Crew
from linkflap.harness.workloads.make_crew import make
from linkflap.harness.workloads.prefork import Prefork


def make_all(
    specs: Sequence[WorkloadSpec],
    *,
    addresses: Addresses,
    topics: Mapping[str, int],
    writer: RunWriter,
    seed: int,
) -> list[Crew]:
    """Workloads that are not started yet; `topics` is topic -> partitions of all homes. Raises
    InputError."""
    names, forks = ClientNames(), Prefork()
    return [
        Command(spec, names.next(COMMAND), addresses, writer)
        if spec.kind == COMMAND
        else make(
            spec,
            addresses=addresses,
            topics=topics_for(spec, specs, topics),
            writer=writer,
            seed=seed,
            names=names,
            forks=forks,
        )
        for spec in specs
    ]


def check_all(specs: Sequence[WorkloadSpec]) -> None:
    """Raises InputError for an unknown kind, option or program."""
    for spec in specs:
        if spec.kind == COMMAND:
            command_options.check(spec)
        else:
            check(spec)
            jvms.check(spec)
