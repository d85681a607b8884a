"""Creates all workloads of a run: crews of linkflap's own clients, distributed among processes of a
few each, and programs of the user's. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from linkflap.harness.model.scenario import Library, WorkloadSpec, libraries
from linkflap.harness.model.security import OPEN, Principal, entered_by, security_of
from linkflap.harness.rundir import RunWriter
from linkflap.harness.workloads import (
    COMMAND,
    KINDS,
    check,
    command,
    context,
    first_cluster,
    jvms,
    share_group,
    topics_for,
)
from linkflap.harness.workloads.client import Numbers
from linkflap.harness.workloads.command import Command
from linkflap.harness.workloads.crew import (
    Addresses,
    ClientNames,
    Crew,
    Producers,
    Readers,
    ShareGroup,
)
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.protocol import Host, Hosted
from linkflap.harness.workloads.worker import Worker

PER_PROCESS: Final = 3
"""Clients of one process. A process costs about 20 MB; when it dies, only these clients lose their
work in flight."""


def _shared_out(
    hosted: Sequence[Hosted], every: Sequence[Library]
) -> Iterator[tuple[Library, Sequence[Hosted]]]:
    """The clients of each process. All clients of a process have one library; several libraries
    take turns, client by client."""
    for number, library in enumerate(every):
        own = hosted[number :: len(every)]
        for first in range(0, len(own), PER_PROCESS):
            yield library, own[first : first + PER_PROCESS]


def make(
    spec: WorkloadSpec,
    *,
    addresses: Addresses,
    topics: Mapping[str, int],
    writer: RunWriter,
    seed: int,
    names: ClientNames,
    forks: Prefork,
) -> Crew:
    """A workload, not started. `addresses` is the Deployment, of which only bootstrap servers are
    used. `topics` is topic -> partitions of all homes; the workload uses those named `<home>.*`.
    `names` and `forks` are shared by the whole run. Raises InputError."""
    clusters = {name: str(cluster.bootstrap) for name, cluster in addresses.clusters.items()}
    links = {name: str(link.bootstrap) for name, link in addresses.links.items()}
    root = writer.root.resolve()  # processes of clients work in a folder of their own
    numbers = root / "logs" / "clients" / "numbers"
    shared = context(
        spec,
        clusters=clusters,
        links=links,
        topics=topics,
        writer=writer,
        seed=seed,
        numbers=Numbers(numbers),
    )
    cluster = first_cluster(shared)
    principal: Principal = "reader" if KINDS[spec.kind].reads else "client"
    entries = {
        name: security_of(entered_by(cluster.bootstrap, principal))
        for name, cluster in addresses.clusters.items()
    }
    hosted = [Hosted(name=names.next(spec.kind), cluster=cluster) for _ in range(spec.clients)]
    host = Host(
        spec=spec,
        topics=topics,
        seed=seed,
        clusters=clusters,
        links=links,
        root=str(root),
        numbers=str(numbers),
        clients=(),
        entries={name: entry for name, entry in entries.items() if entry != OPEN},
    )
    workers = []
    for library, some in _shared_out(hosted, libraries(spec.library)):
        name = names.next("clients")
        vm = jvms.jvm(library, root / "logs" / "clients" / f"{name}-jvm.log")
        workers.append(
            Worker(name, msgspec.structs.replace(host, clients=tuple(some), jvm=vm), writer, forks)
        )
    if spec.kind == share_group.KIND:
        return ShareGroup(spec, workers, shared)
    if KINDS[spec.kind].reads:
        return Readers(spec, workers, shared)
    return Producers(spec, workers, shared.topics)


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
            command.check(spec)
        else:
            check(spec)
            jvms.check(spec)
