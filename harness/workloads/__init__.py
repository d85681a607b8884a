"""Workloads by kind: the registry. A new kind is one file with a client and its options, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.model.errors import InputError
from harness.model.scenario import WorkloadSpec
from harness.model.topology import topic_name
from harness.rundir import RunWriter
from harness.workloads import idempotent, readers, relay, transactional, zombie
from harness.workloads.client import Client
from harness.workloads.context import Addresses, Context, Processes
from harness.workloads.crew import Crew, Producers, Readers, WorkloadProgress

__all__ = ["KINDS", "Crew", "Kind", "Processes", "WorkloadProgress", "check", "make", "topics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a kind of workload is made of. `client` is called with (context, name, cluster)."""

    client: Callable[[Context, str, str], Client]
    crew: type[Crew[Any]]
    options: frozenset[str]
    about: str


KINDS: Final[Mapping[str, Kind]] = {
    "transactional": Kind(
        client=transactional.TransactionalClient,
        crew=Producers,
        options=transactional.OPTIONS,
        about="transactions over several partitions that commit, abort, or stay open",
    ),
    "idempotent": Kind(
        client=idempotent.IdempotentClient,
        crew=Producers,
        options=idempotent.OPTIONS,
        about="idempotent producers, acknowledged record by record",
    ),
    "zombie": Kind(
        client=zombie.ZombieClient,
        crew=Producers,
        options=zombie.OPTIONS,
        about="a second producer takes the transactional id of a running one",
    ),
    "relay": Kind(
        client=relay.RelayClient,
        crew=Producers,
        options=relay.OPTIONS,
        about="consume, transform, produce: records of one topic become those of another, offsets in the transaction",
    ),
    "readers": Kind(
        client=readers.ReaderClient,
        crew=Readers,
        options=readers.OPTIONS,
        about="consumers in a group or with fixed partitions, in either isolation",
    ),
}


def check(spec: WorkloadSpec) -> Kind:
    """The kind of a spec; InputError when there is no such kind, or the number of clients is wrong."""
    if spec.kind not in KINDS:
        raise InputError(f"there is no workload {spec.kind!r}; there are {', '.join(KINDS)}")
    if spec.clients < 1:
        raise InputError(f"workload {spec.kind} cannot have {spec.clients} clients; give 1 or more")
    return KINDS[spec.kind]


def topics(specs: Sequence[WorkloadSpec]) -> dict[str, str]:
    """Topic -> home of all that these workloads write: one topic for each home, and one more for its relays."""
    homes = {topic_name(spec.home, "orders"): spec.home for spec in specs}
    return homes | {topic_name(spec.home, relay.OUTPUT): spec.home for spec in specs if spec.kind == "relay"}


def _used(spec: WorkloadSpec, kind: Kind, topic: str) -> bool:
    """Whether a workload has to do with a topic of its home: what relays write, nobody else does."""
    return spec.kind == "relay" or kind.crew is Readers or topic != topic_name(spec.home, relay.OUTPUT)


def make(
    spec: WorkloadSpec,
    *,
    addresses: Addresses,
    topics: Mapping[str, int],
    writer: RunWriter,
    seed: int,
    processes: Processes,
) -> Crew[Any]:
    """A workload that is not started yet.

    `addresses` is the Deployment (only bootstrap servers are taken from it); `topics` is topic -> partitions of all homes,
    of which those named `<home>.*` are used; `processes` is one object for the whole run. Raises InputError.
    """
    kind = check(spec)
    own = {topic: count for topic, count in topics.items() if topic.startswith(topic_name(spec.home, ""))}
    home = {topic: count for topic, count in own.items() if _used(spec, kind, topic)}
    context = Context(spec=spec, addresses=addresses, topics=home, writer=writer, seed=seed, processes=processes)
    context.check(kind.options)
    cluster = readers.reader_cluster(context) if kind.crew is Readers else spec.home
    clients = [kind.client(context, processes.client(spec.kind), cluster) for _ in range(spec.clients)]
    return kind.crew(spec, clients)
