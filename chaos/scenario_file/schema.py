"""The typed model of a scenario file; `docs/scenario.schema.json` is generated from it, so that
editors complete and check.

Every table refuses unknown names. The legal names of faults, mirrors, workloads, checks and
triggers come from the registries, so the schema has a new one at once. `render` writes a scenario
as a file; the reader makes the same scenario of it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import tomli_w
from msgspec import Meta

from linkflap.harness.machine.toml_file import UNIT
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import (
    COMMAND,
    LIBRDKAFKA,
    NO_MIRROR,
    PROGRESS_WITHIN,
    SCHEMA_VERSION,
    CapturedFrom,
    Option,
    Scenario,
    WorkloadSpec,
    least_of,
)
from linkflap.harness.model.topology import ClusterSpec
from linkflap.topologies.notation import arrows

Seconds = Annotated[float, Meta(ge=0, le=86_400, extra={UNIT: "seconds"})]
Between = Annotated[list[Seconds], Meta(min_length=2, max_length=2)]  # a tuple crashes msgspec 0.22
"""Two times, the earlier one first."""
Number = Annotated[int, Meta(ge=0, le=1 << 31)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""A name that may be part of a file name in the run directory, so it contains no path."""
When = Annotated[str, Meta(min_length=1, max_length=4000)]
"""What a fault waits for: ids of other faults, and triggers."""


class Table(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Any table of the file."""


Words = list[Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\0]*$")]]
Protocol = Literal["http", "postgresql"]


class ServiceTable(Table, frozen=True, kw_only=True):
    """A service that a cluster needs besides Kafka: a database, an object store. Its brokers reach
    it over a link of its own (`A->NAME`); `{NAME}` in the cluster's settings is the address there.
    It starts before the brokers and ends after them. `{host}` and `{port}` in `command` and `ready`
    are where it listens, as linkflap chose it, `{folder}` is an empty folder of the run."""

    command: Annotated[Words, Meta(min_length=1)]
    protocol: Protocol
    folder: str = ""
    ready: Words = []
    ready_within: Annotated[float, Meta(ge=1, le=3600, extra={UNIT: "seconds"})] = 60.0
    image: str = ""


class ClusterTable(Table, frozen=True, kw_only=True):
    """One cluster, or each one if it is called `{cluster}`: settings of its brokers, by Kafka's
    names, and the services that they need; of one that runs already, commands for its brokers, and
    a Toxiproxy."""

    config: dict[str, Option] = {}
    commands: dict[str, list[str]] = {}
    folder: str = ""
    toxiproxy: str = ""
    service: dict[Name, ServiceTable] = {}


class MirrorTable(Table, frozen=True, kw_only=True):
    """The mirror that runs on every link."""

    kind: Name = "shadow"
    options: dict[str, Option | dict[str, Option]] = {}


class TopicsTable(Table, frozen=True, kw_only=True):
    """The topics of the workloads: partitions, and topic configs by Kafka's names. Their logs are
    copied from brokers' disks, or read from brokers (`capture = "fetch"`)."""

    partitions: Annotated[int, Meta(ge=1, le=1000)] = 2
    replicas: Annotated[int, Meta(ge=1, le=9)] = 3
    capture: CapturedFrom = "disk"
    config: dict[str, Option] = {}


class WorkloadTable(Table, frozen=True, kw_only=True):
    """Some clients with one purpose, whose topics are first written on the cluster `home`; or a
    program of your own. The kind `default` stands for several workloads: its options are those of
    their producers, and `clients` multiplies their clients. Its home may be `{home}`: each cluster
    where topics begin.

    `library` is their client library, if it differs from the file's `clients`. `command` is a list
    of words, run without a shell in `folder` (from this file's); `reads` and `writes` are its
    topics. With `library = "java"` it finds a Java and the jars of Kafka's clients in its
    environment. `exactly_once`: the program promises one output for each input that its group has
    passed. `record = "wire"`: its requests and the brokers' answers are recorded by a proxy before
    the brokers; that is the default of a program that names topics, where it is possible, and
    "none" records nothing. `starts = "in:ID"`: the clients start once that fault is under way.
    `progress_within`: as for the file, for these clients.
    """

    home: Name
    kind: Name = ""
    clients: Annotated[int, Meta(ge=1, le=1000)] = 1
    library: Name | None = None
    options: dict[str, Option] = {}
    command: Words = []
    folder: str = ""
    reads: list[Name] = []
    writes: list[Name] = []
    exactly_once: bool = False
    record: Literal["", "wire", "none"] = ""
    starts: str = ""
    progress_within: Seconds | None = None


class FaultTable(Table, frozen=True, kw_only=True):
    """One fault, `at` seconds after the workload began (or after the faults that `when` names), for
    `duration` seconds. `at = [3.0, 5.0]`: the seed chooses a time between the two; `duration`
    likewise. With the target `{link}` every link has this fault. It is played `repeat` times, as
    faults of the ids `ID`, `ID-2`, `ID-3`, …, each after the one before."""

    id: FileName
    fault: Name
    target: Name
    at: Seconds | Between = 0.0
    duration: Seconds | Between = 0.0
    when: When = "always"
    repeat: Annotated[int, Meta(ge=1, le=100)] = 1
    options: dict[str, Option] = {}


class MinimumsTable(Table, frozen=True, kw_only=True):
    """The least that a run must have done for a meaningful verdict. The default of each key follows
    from the workloads.
    """

    committed: Number | None = None
    aborted: Number | None = None
    reads: Number | None = None
    afterwards: Number | None = None


class BudgetsTable(Table, frozen=True, kw_only=True):
    """The maximum cost of a failover, and of what the guarantee allows. A figure that is left out
    is measured, but not judged."""

    rpo_records: Number | None = None
    rto_seconds: Seconds | None = None
    allowed: dict[str, Annotated[int, Meta(extra_json_schema={"minimum": 0})]] = {}
    """The reader refuses negative numbers: msgspec's own error would not name the key."""


class ScenarioFile(Table, frozen=True, kw_only=True):
    """A scenario for `linkflap run FILE.toml`. `{source}` and `{destination}` in `about`, names of
    clusters, homes, options of workloads and targets are the clusters of the first link, `{links}`
    all links. Once all faults have ended, every client that has
    work makes progress within `progress_within` seconds (0: it promises nothing)."""

    schema: int
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")]
    topology: Annotated[str, Meta(min_length=1, max_length=1000)]
    workload: list[WorkloadTable] = []
    about: str = ""
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    duration: Annotated[float, Meta(ge=1, le=86_400, extra={UNIT: "seconds"})] = 10.0
    progress_within: Seconds = PROGRESS_WITHIN
    runtime: Name | None = None
    clients: Name = LIBRDKAFKA
    checks: list[Name] = []
    mirror: MirrorTable = MirrorTable()
    topics: TopicsTable = TopicsTable()
    cluster: dict[Name, ClusterTable] = {}
    fault: list[FaultTable] = []
    minimums: MinimumsTable = MinimumsTable()
    budgets: BudgetsTable = BudgetsTable()


KEYS: Final[Mapping[type[Table], tuple[str, Mapping[str, str]]]] = {
    ScenarioFile: (
        "before the first table",
        {
            "schema": "the version of the format: 1",
            "name": "the scenario's name, also in the name of the run directory",
            "topology": "clusters and links, as --topology takes them",
            "about": "one line about it, shown by --dry-run",
            "seed": "seed of payloads and of drawn times; left out: a new one for each run",
            "duration": "seconds that clients work, at least",
            "progress_within": (
                "seconds after the last fault within which every client must make progress; 0: "
                "no promise"
            ),
            "runtime": "what brokers run in, process or docker",
            "clients": "the client library of all workloads",
            "checks": "only these checks; left out: all",
        },
    ),
    MirrorTable: (
        "[mirror]",
        {
            "kind": "the mirror on every link",
            "options": "its options (linkflap list mirrors), and settings",
        },
    ),
    TopicsTable: (
        "[topics]",
        {
            "partitions": "of each topic of the workloads",
            "replicas": "replicas of each partition, at most one per broker",
            "capture": (
                "disk: logs are copied from brokers' disks; fetch: logs are read from every "
                "broker that serves them"
            ),
            "config": "topic configs, by Kafka's names",
        },
    ),
    ClusterTable: (
        "[cluster.A]",
        {
            "config": "settings of the brokers of A, by Kafka's names",
            "commands": "if A runs already: commands that kill, stop, start, pause and resume a "
            "broker, each as a list of words; {broker} is its id",
            "folder": "where these commands run, from the file's folder",
            "toxiproxy": "if A runs already: the API of a Toxiproxy of yours, for the paths into A",
            "service": "what its brokers need besides Kafka, by name (next table)",
        },
    ),
    ServiceTable: (
        "[cluster.A.service.NAME]",
        {
            "command": "the service, as a list of words, run without a shell; {host} and {port} "
            "are where it must listen, {folder} is an empty folder of the run",
            "protocol": "how linkflap asks whether it answers: http or postgresql",
            "folder": "where it runs, from the file's folder",
            "ready": "a command that exits with 0 once the service is ready, tried until then; "
            "left out: it is ready once it answers",
            "ready_within": "seconds for that",
            "image": "in the docker runtime: the image in which both commands run",
        },
    ),
    WorkloadTable: (
        "[[workload]]",
        {
            "home": "the cluster on which its topics are first written",
            "kind": "what its clients do (linkflap list workloads)",
            "clients": "how many",
            "library": "their client library, if not the file's",
            "options": "options of the kind, below",
            "command": "a program of your own, as a list of words, run without a shell",
            "folder": "where the program runs, from the file's folder",
            "reads": "topics that the program reads, without the home",
            "writes": "topics that the program writes, without the home",
            "exactly_once": "the program promises one output for each input of its group",
            "record": "wire: a proxy before the brokers records what the program writes and reads "
            "(the default where topics are named, unless a cluster asks for clients' "
            "certificates); or none",
            "starts": "in:ID: the clients start once this fault is under way",
            "progress_within": "as for the file, for these clients",
        },
    ),
    FaultTable: (
        "[[fault]]",
        {
            "id": "its name, for `when` of others and for the report",
            "fault": "its kind (linkflap list faults)",
            "target": "a link (A->B), a path of clients (*->A), a broker (A/1) or a cluster",
            "at": "seconds after the start, or after `when`; [3.0, 5.0]: the seed chooses",
            "duration": "seconds until it is healed; [3.0, 4.0]: the seed chooses",
            "when": "other faults and triggers that it waits for (linkflap list triggers)",
            "repeat": "times it is played: the next ones are ID-2, ID-3, …, each after the last",
            "options": "options of the kind (linkflap list options)",
        },
    ),
    MinimumsTable: (
        "[minimums]",
        {
            "committed": "transactions committed at least; less is unknown",
            "aborted": "transactions aborted at least; less is unknown",
            "reads": "records read at least; less is unknown",
            "afterwards": "records acknowledged after the last fault at least; less is unknown",
        },
    ),
    BudgetsTable: (
        "[budgets]",
        {
            "rpo_records": "records that a failover may lose at most; more is invalid",
            "rto_seconds": "seconds without writes that a failover may cost; more is invalid",
            "allowed": (
                "kind of anomaly = how many allowed ones a cluster may have; more is invalid"
            ),
        },
    ),
}
"""The meaning of each key of a table, for the schema, `linkflap list options` and the
documentation.
"""


def render(scenario: Scenario) -> str:
    """The file's text, without defaults."""
    theirs = {w.library for w in scenario.workloads if w.kind != COMMAND}
    common = theirs.pop() if len(theirs) == 1 else LIBRDKAFKA
    file = ScenarioFile(
        schema=SCHEMA_VERSION,
        name=scenario.name,
        topology=arrows(scenario.topology),
        workload=[_workload(w, common) for w in scenario.workloads],
        about=scenario.about,
        seed=scenario.seed,
        duration=scenario.duration,
        progress_within=scenario.progress_within,
        runtime=scenario.runtime,
        clients=common,
        checks=list(scenario.checks),
        mirror=MirrorTable()
        if scenario.mirror == NO_MIRROR
        else MirrorTable(kind=scenario.mirror.kind, options=dict(scenario.mirror.options)),
        topics=msgspec.convert(scenario.topics, TopicsTable, from_attributes=True),
        cluster={
            c.name: _cluster(c)
            for c in scenario.topology.clusters
            if c.config or c.commands or c.toxiproxy or c.services
        },
        fault=msgspec.convert(scenario.schedule, list[FaultTable], from_attributes=True),
        minimums=MinimumsTable(**_asked(scenario)),
        budgets=BudgetsTable(**_fields(scenario.budgets)),
    )
    tables: dict[str, Any] = msgspec.to_builtins(file)
    if scenario.mirror != NO_MIRROR:
        tables["mirror"] = {"kind": file.mirror.kind, **tables["mirror"]}
    return tomli_w.dumps({name: value for name, value in tables.items() if value != {}})


def _cluster(spec: ClusterSpec) -> ClusterTable:
    services = msgspec.convert(spec.services, dict[str, ServiceTable], from_attributes=True)
    table = msgspec.convert(spec, ClusterTable, from_attributes=True)
    return msgspec.structs.replace(table, service=services)


def _workload(spec: WorkloadSpec, common: str) -> WorkloadTable:
    """`common` is the client library of the file; one that differs from it is written."""
    table = msgspec.convert(spec, WorkloadTable, from_attributes=True)
    if spec.kind == COMMAND:
        table = msgspec.structs.replace(table, record=spec.record or "none")
    usual = LIBRDKAFKA if spec.kind == COMMAND else common
    return msgspec.structs.replace(table, library=None) if spec.library == usual else table


def save(scenario: Scenario, path: Path) -> None:
    """Writes a new file. Raises InputError if the file exists or cannot be written."""
    text = render(scenario)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            f"{path} exists, and --save overwrites nothing; name another file"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); name another file with --save"
        ) from None


def _asked(scenario: Scenario) -> dict[str, Any]:
    """The minimums that differ from those that follow from the workloads."""
    follow = _fields(least_of(scenario.workloads))
    return {
        name: least for name, least in _fields(scenario.minimums).items() if least != follow[name]
    }


def _fields(values: object) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(values).items() if value is not None}
