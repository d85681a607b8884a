"""Workloads: one file for each kind, with its client and its options; and their registry.

Every process of clients imports this package, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import COMMAND, WorkloadSpec, full_names, group_of
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import ANY_NAME, topic_name
from linkflap.harness.workloads import producers, readers, relay, share_group
from linkflap.harness.workloads.client import (
    VIA,
    Client,
    ClientFiles,
    Context,
    Numbers,
    Options,
    value_of,
)
from linkflap.harness.workloads.library import ClientLibrary, Librdkafka


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """A kind of workload. `client` is called with (context, name, cluster); `reads`: its clients
    only read."""

    client: Callable[[Context, str, str], Client]
    reads: bool
    options: Options
    about: str


KINDS: Final[Mapping[str, WorkloadKind]] = {
    "transactional": WorkloadKind(
        client=producers.TransactionalClient,
        reads=False,
        options=producers.TRANSACTIONAL_OPTIONS,
        about="transactions over several partitions that commit, abort, or stay open",
    ),
    "idempotent": WorkloadKind(
        client=producers.IdempotentClient,
        reads=False,
        options=producers.IDEMPOTENT_OPTIONS,
        about="idempotent producers, acknowledged record by record",
    ),
    "zombie": WorkloadKind(
        client=producers.ZombieClient,
        reads=False,
        options=producers.ZOMBIE_OPTIONS,
        about="a second producer takes the transactional id of a running one",
    ),
    "relay": WorkloadKind(
        client=relay.RelayClient,
        reads=False,
        options=relay.OPTIONS,
        about=(
            "consume, transform, produce: records of one topic become those of another, offsets in "
            "the transaction"
        ),
    ),
    "readers": WorkloadKind(
        client=readers.ReaderClient,
        reads=True,
        options=readers.READER_OPTIONS,
        about="consumers in a group or with fixed partitions, in either isolation",
    ),
    share_group.KIND: WorkloadKind(
        client=share_group.ShareClient,
        reads=True,
        options=share_group.OPTIONS,
        about=(
            "members of a share group (KIP-932; Java's clients), which acknowledge record by record"
        ),
    ),
}


COMMAND_OPTIONS: Final[Options] = {
    "via": replace(VIA, choices=("direct", "proxy")),
    "move": OptionAbout(
        default="restart",
        choices=("restart", "signal"),
        about="in a failover it is started again, or gets SIGUSR1 and reads its addresses again",
    ),
    "group": OptionAbout(default="", about="the consumer group whose offsets are judged"),
    "share_group": OptionAbout(
        default="", about="the share group whose deliveries are judged; needs record = wire"
    ),
    "once": OptionAbout(
        default=False,
        about="it is not started again when it ends or in a failover; the run ends with it",
    ),
}


def check(spec: WorkloadSpec) -> WorkloadKind:
    """The kind of a spec; InputError for an unknown kind, a wrong number of clients, or a wrong
    option."""
    if spec.kind not in KINDS:
        raise InputError(
            f"there is no workload {spec.kind!r}{nearest(spec.kind, KINDS)}; known: "
            f"{', '.join(KINDS)}"
        )
    if spec.clients < 1:
        raise InputError(f"workload {spec.kind} cannot have {spec.clients} clients; give 1 or more")
    kind = KINDS[spec.kind]
    for name in spec.options:
        value_of(spec, name, kind.options)
    return kind


def topics(specs: Sequence[WorkloadSpec]) -> dict[str, str]:
    """Topic -> home, for all topics that these workloads use: one topic per home, and one more for
    its relays. Readers beside a program have the program's."""
    programs = {spec.home for spec in specs if spec.writes}
    homes = {
        topic_name(spec.home, "orders"): spec.home
        for spec in specs
        if spec.kind != COMMAND and not (KINDS[spec.kind].reads and spec.home in programs)
    }
    homes |= {
        topic: spec.home
        for spec in specs
        for topic in full_names(spec, (*spec.reads, *spec.writes))
        if topic != ANY_NAME
    }
    return homes | {
        topic_name(spec.home, relay.OUTPUT): spec.home for spec in specs if spec.kind == "relay"
    }


def topics_for(
    spec: WorkloadSpec, specs: Sequence[WorkloadSpec], topics: Mapping[str, int]
) -> dict[str, int]:
    """The topics that a workload may use: linkflap's clients only read what a program writes."""
    theirs = {topic for other in specs for topic in full_names(other, other.writes)}
    return {
        topic: count
        for topic, count in topics.items()
        if topic not in theirs or (spec.kind in KINDS and KINDS[spec.kind].reads)
    }


def check_topics(specs: Sequence[WorkloadSpec]) -> None:
    """Raises InputError for a workload that writes, and whose only topic a program writes."""
    named = dict.fromkeys(topics(specs), 1)
    for spec in specs:
        if spec.kind != COMMAND and not _at_home(topics_for(spec, specs, named), spec):
            raise InputError(
                f"workload {spec.kind} writes {topic_name(spec.home, 'orders')}, which the program "
                f"of home {spec.home} writes; name another topic in its writes, or leave the "
                "workload out"
            )


def _at_home(topics: Mapping[str, int], spec: WorkloadSpec) -> dict[str, int]:
    """The topics that a workload reads, or that are of its home."""
    return {
        topic: count
        for topic, count in topics.items()
        if topic in spec.reads or topic.startswith(topic_name(spec.home, ""))
    }


def groups(specs: Sequence[WorkloadSpec]) -> list[str]:
    """The consumer groups of these workloads. Their committed offsets are sampled."""
    sampled = ("readers", "relay", COMMAND)
    return sorted({group_of(spec) for spec in specs if spec.kind in sampled} - {""})


def _used(spec: WorkloadSpec, kind: WorkloadKind, topic: str) -> bool:
    """Whether a workload uses a topic of its home: topics that relays write have no other
    writers."""
    return spec.kind == "relay" or kind.reads or topic != topic_name(spec.home, relay.OUTPUT)


def context(
    spec: WorkloadSpec,
    *,
    clusters: Mapping[str, str],
    links: Mapping[str, str],
    topics: Mapping[str, int],
    writer: ClientFiles,
    seed: int,
    numbers: Numbers,
    library: ClientLibrary | None = None,
    deaths: int = 0,
) -> Context:
    """The context that the clients of a workload share. Of `topics` (topic -> partitions, of all
    homes) they use those named `<home>.*`. Raises InputError for a wrong option, or a home without
    topics."""
    kind = check(spec)
    own = _at_home(topics, spec)
    home = {topic: count for topic, count in own.items() if _used(spec, kind, topic)}
    if not home:
        raise InputError(
            f"workload {spec.kind} has no topics of home {spec.home}; create {spec.home}.* first"
        )
    return Context(
        spec=spec,
        options=kind.options,
        clusters=clusters,
        links=links,
        topics=home,
        writer=writer,
        seed=seed,
        numbers=numbers,
        library=library or Librdkafka(),
        deaths=deaths,
    )


def first_cluster(context: Context) -> str:
    """The cluster on which the clients of a workload begin."""
    return readers.reader_cluster(context) if KINDS[context.spec.kind].reads else context.spec.home
