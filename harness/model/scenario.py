"""A scenario: topology + mirror + workload + schedule + checks, as plain values that are kept in
the run directory.

Parses a workload's choice of client library: `librdkafka`, `java`, `java@3.9.2`, or several that
take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import FaultName, Target
from linkflap.harness.model.guarantee import Guarantee, Seconds
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import ANY_NAME, Topology, topic_name

LIBRDKAFKA: Final = "librdkafka"
JAVA: Final = "java"
OWN_PRODUCER: Final = "own-producer"
"""The kind of `linkflap.Producer`, which a caller uses in its own process."""
COMMAND: Final = "command"
"""The kind of a user's own program (`harness.workloads.command`): not a client of linkflap, and
without a history."""
LIBRARIES: Final = {
    LIBRDKAFKA: "librdkafka's producer and consumer, through confluent-kafka (the default)",
    JAVA: (
        "Kafka's own producer and consumer, of the clusters' newest release; java@3.9.2: of that "
        "release"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One client library. `release` is empty for librdkafka, and for Java's where it follows the
    clusters."""

    name: str
    release: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.release}" if self.release else self.name


def libraries(text: str) -> tuple[Library, ...]:
    """Parses a user's text. Raises InputError."""
    return tuple(_library(word.strip()) for word in text.split(","))


def _library(word: str) -> Library:
    name, at, release = word.partition("@")
    if name not in LIBRARIES:
        near = nearest(name, LIBRARIES)
        raise InputError(
            f"there are no clients {word!r}{near}; known: {', '.join(LIBRARIES)}, and java@3.9.2"
            " for a release"
        )
    if at and (name == LIBRDKAFKA or not release):
        raise InputError(
            f"clients {word!r} name no release; write librdkafka without one, and Java's as "
            "java@3.9.2"
        )
    return Library(name=name, release=release)


SCHEMA_VERSION: Final = 1
"""The format that is written: of scenario files, run.json and events. Older formats can be read."""
Option = str | int | float | bool
IN: Final = "in:"
"""The prefix of a workload's `starts`, before the id of a fault."""
Record = Literal["", "wire"]
"""The legal values of a program's `record`."""
PROGRESS_WITHIN: Final = 60.0
"""Longer than a consumer's session timeout (45 s) and a transaction's timeout (60 s, Kafka's
default): the successor of a dead client can continue only after both.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """The mirror of every link. Options are the mirror's own (for mm2: delivery, isolation), as
    they were given.

    `resolved` are all options, defaults included, and `declared` is the mirror's promise with them.
    A recorded scenario has both; a requested one has neither.
    """

    kind: str
    options: Mapping[str, Option] = field(default_factory=dict)
    resolved: Mapping[str, Option] = field(default_factory=dict)
    declared: Guarantee | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The mirror's guarantee. Raises LookupError where it has not been declared yet."""
        if self.declared is None:
            raise LookupError(f"mirror {self.kind} has not declared its guarantee")
        return self.declared


NO_MIRROR: Final = MirrorSpec(kind="none")
"""Nothing is copied over any link, or there is no link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """One group of clients: their `kind` (registered in harness.workloads), their number, and the
    cluster whose topics they use. `library` is their client library (`libraries`).

    For a program of the user's (kind command): its `command`, run in `folder`, and the topics of
    the home that it reads and writes; with ANY_NAME among them these are full names, and it uses
    any others beside them. `exactly_once`: it promises one output for each input that
    its group (option `group`) has passed. `record`: where the history of what it writes is recorded
    (empty: nowhere). `starts`: `in:ID`, once that fault is under way (empty: with the run).
    `progress_within`: as in `Scenario`, for these clients (None: the scenario's).
    """

    kind: str
    home: str
    clients: int = 1
    library: str = LIBRDKAFKA
    options: Mapping[str, Option] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    folder: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    exactly_once: bool = False
    record: Record = ""
    starts: str = ""
    progress_within: Seconds | None = None


def full_names(spec: WorkloadSpec, topics: Iterable[str]) -> tuple[str, ...]:
    """The names that topics of a workload have in Kafka: they begin with its home, unless it uses
    topics of any name."""
    if ANY_NAME in (*spec.reads, *spec.writes):
        return tuple(topics)
    return tuple(topic_name(spec.home, topic) for topic in topics)


def program_at(home: str) -> WorkloadSpec:
    """A program of the user's that uses a cluster's topics; nothing else is known of it."""
    return WorkloadSpec(kind=COMMAND, home=home)


def with_library(workloads: Sequence[WorkloadSpec], library: str) -> tuple[WorkloadSpec, ...]:
    """The same workloads with the clients of another library; programs of the user's have their
    own."""
    return tuple(spec if spec.command else replace(spec, library=library) for spec in workloads)


def clients(workloads: Sequence[WorkloadSpec]) -> Iterator[tuple[str, WorkloadSpec]]:
    """The name of every client of a run, and its workload: numbered by kind from 1, in the order of
    the workloads."""
    numbers: Counter[str] = Counter()
    for workload in workloads:
        for _ in range(workload.clients):
            numbers[workload.kind] += 1
            yield f"{workload.kind}-{numbers[workload.kind]}", workload


OWN_GROUPS: Final = "linkflap."
"""The prefix of linkflap's own consumer groups."""


def group_of(spec: WorkloadSpec) -> str:
    """The group of a workload's consumers, empty for those without one: readers with fixed
    partitions, producers, and programs that name none."""
    named = spec.options.get("group")
    match spec.kind:
        case "readers" if spec.options.get("assign", False) is not True:
            isolation = spec.options.get("isolation", "read_committed")
            return str(named or f"linkflap.{spec.home}.{isolation}")
        case "relay":
            return str(named or "linkflap.relay")
        case "share-group":
            return str(named or f"linkflap.{spec.home}.share")
        case "command":
            return str(named or "")
    return ""


def transactional_id_of(client: str) -> str:
    """The transactional id of one of linkflap's clients. The prefix keeps it apart from other
    applications on the cluster: with a common id, each would fence the other.
    """
    return f"{OWN_GROUPS}{client}"


IN_SYNC: Final = "min.insync.replicas"
CapturedFrom = Literal["disk", "fetch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """How the workloads' topics are created on their home clusters: each has these partitions,
    replicas (as many as its cluster has brokers, if that is less) and topic configs, by Kafka's
    names. Mirrors keep the configs, each as far as it promises.

    `capture`: their logs are copied from brokers' disks, or read by Fetch from every broker that
    serves them. Topics without a log on any disk are read by Fetch in either case.
    """

    partitions: int = 2
    replicas: int = 3
    capture: CapturedFrom = "disk"
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One planned fault. `target` is a link (`A->B`), a proxied client path (`*->A`), a broker
    (`A/1`), a cluster or a mirror.

    It starts once `at` seconds of workload have passed and the condition `when` (chaos.triggers)
    holds. With `after:<id>` in `when` it follows another fault, and `at` counts from that one's
    end.
    """

    id: str
    fault: str
    target: str
    at: float
    duration: float
    when: str = "always"
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def name(self) -> FaultName:
        """The name of the fault, parsed."""
        return FaultName(self.fault)

    @property
    def on(self) -> Target:
        """The target of the fault."""
        return Target.parse(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimums:
    """The minimum work of a run for a meaningful verdict (as etcd's minimum QPS). With less, the
    verdict is unknown.
    """

    committed: int = 1
    aborted: int = 1
    reads: int = 1
    afterwards: int = 2000
    """Records acknowledged after the last fault has ended. The run continues until then, so that a
    slow machine has them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The maximum cost of a failover: records lost (RPO), seconds without writes (RTO). If None,
    the cost is measured and not judged.

    `allowed`: kind of anomaly -> how many that the guarantee allows may be on one cluster.
    """

    rpo_records: int | None = None
    rto_seconds: Seconds | None = None
    allowed: Mapping[str, int] = field(default_factory=dict)

    @property
    def of_failovers(self) -> bool:
        """Whether a budget is set that concerns only failovers."""
        return (self.rpo_records, self.rto_seconds) != (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that defines a run. A pure function of the scenario's name, its options and the
    seed.

    Once all faults have ended, every client that has work makes progress within `progress_within`
    seconds, else it has stalled (0: it promises nothing).
    """

    name: str
    about: str
    seed: int
    topology: Topology
    mirror: MirrorSpec
    workloads: tuple[WorkloadSpec, ...]
    schedule: tuple[FaultSpec, ...]
    checks: tuple[str, ...] = ()
    minimums: Minimums = Minimums()
    budgets: Budgets = Budgets()
    topics: TopicSpec = TopicSpec()
    duration: Seconds = 10.0
    progress_within: Seconds = PROGRESS_WITHIN
    runtime: str | None = None
    """The runtime, if the scenario names one."""

    @property
    def has_readers(self) -> bool:
        """Whether any workload only reads, as consumers do: a share group promises less."""
        return any(w.kind == "readers" for w in self.workloads)

    @property
    def reading_committed(self) -> Scenario:
        """The same without the workloads whose consumers read uncommitted: relays read committed,
        and the isolation of a program of the user's is not known."""
        left = (w for w in self.workloads if w.options.get("isolation") != "read_uncommitted")
        return replace(self, workloads=tuple(left))

    @property
    def acknowledged(self) -> bool:
        """Whether any workload writes and its acknowledgements are recorded: of programs of the
        user's they are only on the wire."""
        return any(_writes(w, self.workloads) for w in self.workloads) or bool(self.recorded_topics)

    @property
    def recorded_topics(self) -> frozenset[str]:
        """The topics of programs whose writes are recorded on the wire."""
        return frozenset(
            topic for w in self.workloads if w.record for topic in full_names(w, w.writes)
        )

    @property
    def fetched_topics(self) -> frozenset[str]:
        """The topics of programs whose reads are recorded on the wire: they may read what they
        write, too."""
        return frozenset(
            topic
            for w in self.workloads
            if w.record
            for topic in full_names(w, (*w.reads, *w.writes))
        )

    @property
    def recorded_groups(self) -> frozenset[str]:
        """The groups of these programs, unless another program is in them that is not recorded."""
        return self._recorded("group")

    @property
    def recorded_share_groups(self) -> frozenset[str]:
        """The same for share groups."""
        return self._recorded("share_group")

    def _recorded(self, option: str) -> frozenset[str]:
        programs = [(w, str(w.options.get(option, ""))) for w in self.workloads if w.command]
        beside = {group for w, group in programs if not w.record}
        return frozenset(group for w, group in programs if w.record) - {"", *beside}


def groups_of_program(group: str, share_group: str) -> dict[str, Option]:
    """Options of a program: the groups that are judged, where they are given."""
    given = {"group": group, "share_group": share_group}
    return {name: value for name, value in given.items() if value}


def through_recorders(workload: WorkloadSpec) -> bool:
    """Whether its clients connect through the recorders of the clusters: to be recorded on the
    wire, or for faults that know the protocol."""
    return bool(workload.record) or workload.options.get("via") == "wire"


PRODUCERS: Final = ("transactional", "idempotent", "zombie")
READERS: Final = ("readers", "share-group", "relay")
WITH_TRANSACTIONS: Final = ("transactional", "zombie", "relay")


def _written(home: str, workloads: Sequence[WorkloadSpec]) -> bool:
    """Whether a producer or a program of the user's writes at a home; a relay needs one."""
    return any(w.home == home and (w.kind in PRODUCERS or w.writes) for w in workloads)


def _writes(workload: WorkloadSpec, workloads: Sequence[WorkloadSpec]) -> bool:
    return workload.kind in PRODUCERS or (
        workload.kind == "relay" and _written(workload.home, workloads)
    )


def _share(workload: WorkloadSpec, name: str, default: float) -> float:
    value = workload.options.get(name, default)
    return value if isinstance(value, int | float) else default


_OFTEN: Final = 0.05
"""The share of aborts from which on every run is expected to have one: a short run may have no
rarer operations."""


def least_of(workloads: Sequence[WorkloadSpec]) -> Minimums:
    """The minimums that follow from these workloads: at least one of each kind of work that they
    do.
    """
    aborts = {"transactional": 0.1, "relay": 0.05}
    ends = [w for w in workloads if w.kind in (*aborts, "zombie") and _writes(w, workloads)]
    shares = [
        (_share(w, "abort_share", aborts.get(w.kind, 0.0)), _share(w, "open_share", 0.0))
        for w in ends
    ]
    reads = any(w.kind in READERS and _written(w.home, workloads) for w in workloads)
    return Minimums(
        committed=int(any(abort + left_open < 1 for abort, left_open in shares)),
        aborted=int(any(abort >= _OFTEN for abort, _ in shares)),
        reads=int(reads),
        afterwards=Minimums().afterwards if any(_writes(w, workloads) for w in workloads) else 0,
    )


def unread(scenario: Scenario) -> dict[str, str]:
    """Cluster -> a home whose records are on that cluster and are read there by no workload."""
    homes = dict.fromkeys(
        w.home for w in scenario.workloads if _written(w.home, scenario.workloads)
    )
    found: dict[str, str] = {}
    for home in homes:
        there = {
            link.destination: home
            for link in scenario.topology.links
            if home in scenario.topology.homes_over(link)
        }
        reached = _read(home, scenario)
        found |= {c: home for c in (home, *there) if c not in reached and c not in found}
    return found


def clusters_of(workload: WorkloadSpec, scenario: Scenario) -> set[str]:
    """The clusters on which a workload's clients are: where they begin, and where they follow at a
    failover."""
    options = workload.options
    found = {str(options.get("cluster", workload.home))}
    if not options.get("follow", not options.get("assign", False)):
        return found
    over = [fault.on.link for fault in scenario.schedule if fault.name.fails_over]
    for _ in over:
        found |= {link.destination for link in over if link and link.source in found}
    return found


def _read(home: str, scenario: Scenario) -> set[str]:
    """The clusters on which some workload reads a home's records."""
    every = [
        w
        for w in scenario.workloads
        if w.home == home and (w.kind in ("readers", "relay") or (w.record and w.reads))
    ]
    return {cluster for workload in every for cluster in clusters_of(workload, scenario)}


def add_readers(cluster: str, home: str, scenario: Scenario) -> str:
    """How a user adds readers of a home's records on a cluster: the end of a sentence. `linkflap
    exec` makes its own readers, of topics that are named."""
    if scenario.topology.any_names:
        recorded = any(w.record for w in scenario.workloads)
        return (
            f"{'' if recorded else 'leave --record none out, and '}name the topics that the command"
            " writes: --topic orders"
        )
    return (
        f'add a [[workload]] with kind = "readers" and home = "{home}"'
        if cluster == home
        else f'add a [[workload]] with kind = "readers" and home = "{home}", with the options '
        f'cluster = "{cluster}" and assign = true'
    )
