"""Reads a scenario file.

Every error is one sentence with the file, the line, what is wrong, and what was expected. Settings
of brokers and topics have Kafka's names: some are refused, the others are passed on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import schedule
from linkflap.chaos.default_workloads import (
    DEFAULT_READERS,
    default_workloads,
    default_workloads_at_every_home,
)
from linkflap.chaos.default_workloads import KINDS as SEVERAL
from linkflap.chaos.faults import FAULTS, check_options
from linkflap.chaos.scenario_file.schema import (
    ClusterTable,
    FaultTable,
    ScenarioFile,
    WorkloadTable,
)
from linkflap.chaos.triggers import after, condition, known, requests
from linkflap.harness import mirrors, runtimes
from linkflap.harness.guarantees.allowed import BROKERS, LOSSES, PROMOTED
from linkflap.harness.machine.broker_commands import NAMES, UNDONE_BY, VERBS, unknown_name
from linkflap.harness.machine.toml_file import KeyPath, TomlFile, content_and_lines
from linkflap.harness.machine.user_programs import program, reason_not_to_start
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Allowance
from linkflap.harness.model.scenario import (
    COMMAND,
    IN_SYNC,
    LIBRDKAFKA,
    NO_MIRROR,
    PRODUCERS,
    SCHEMA_VERSION,
    Budgets,
    FaultSpec,
    MirrorSpec,
    Option,
    Record,
    Scenario,
    TopicSpec,
    WorkloadSpec,
    least_of,
)
from linkflap.harness.model.texts import names_in, nearest
from linkflap.harness.model.topology import (
    ClusterSpec,
    ServiceSpec,
    Topology,
    id_of,
    of_release,
)
from linkflap.harness.runtimes import RUNTIMES
from linkflap.harness.runtimes.distribution import kafka_settings
from linkflap.harness.runtimes.distribution.kafka import look_for, released
from linkflap.harness.workloads import COMMAND_OPTIONS, KINDS, command, jvms
from linkflap.harness.workloads.client import value_of
from linkflap.topologies import parse
from linkflap.topologies.notation import arrows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(TomlFile):
    """A scenario file, and what a user chose instead of parts of it."""

    asked: Topology | None = None
    """The topology that replaces the file's. Whether it can play the schedule is not the file's
    mistake: `schedule.check` refuses it without a line."""
    program: WorkloadSpec | None = None
    """The program that replaces the file's workloads, at home on the first cluster."""
    kafka: str = ""
    """The Kafka that replaces the file's on every cluster."""

    def missing(self, at: KeyPath, name: str) -> str:
        """What kind of target the fault at this path takes."""
        if name != "target":
            return ""
        try:
            of = msgspec.convert(self.content["fault"], list[dict[str, object]])[int(at[1])]
            topology = parse(str(self.content["topology"]))
            reason = FAULTS[str(of["fault"])].applies_to("", topology)
        except (LookupError, msgspec.ValidationError, InputError):
            return ""
        return f" ({of['fault']}: {reason})" if reason else ""


_RESERVED: Final = re.compile(
    r"(.*\.)?(node\.id|broker\.id|process\.roles|host\.name|port|listeners|.*listener\.names?"
    r"|listener\.security\.protocol\.map|listener\.name\..*|early\.start\.listeners|advertised\..*"
    r"|inter\.broker\..*|controller\.quorum\.(?!.*\.ms$|fetch\.).*|zookeeper\..*"
    r"|.*\.dirs|.*\.dir(?<!per\.data\.dir)|.*\.location|.*\.file|.*\.path"
    r"|.*\.class|.*\.classes|.*class\.names?|.*\.assignors|.*\.reporters|.*interceptor.*"
    r"|.*callback\.handler.*|config\.providers.*|remote\.log\.storage\.system\.enable"
    r"|ssl\..*|sasl\..*|security\..*|.*\.secret|delegation\.token\..*\.key)"
)
"""Settings that linkflap sets itself, that load code, that name files, or that bind to addresses
beyond loopback."""
LOADS_CLASSES: Final = re.compile(r".*\.class(?:es)?|.*class\.names?")
"""Settings whose values are names of classes."""
_NAME: Final = re.compile(r"[a-z][a-z0-9.-]*")


def of_brokers(
    reader: Reader, key: str, given: Mapping[str, Option], cluster: ClusterSpec
) -> dict[str, str]:
    """The settings of a cluster's brokers, from the table with this key. Raises InputError."""
    at = ("cluster", key, "config")
    for name, value in given.items():
        if _RESERVED.fullmatch(name) and not _of_own_build(reader, (*at, name), value, cluster):
            reader.fail(
                (*at, name),
                f"{name} changes listeners, folders, loaded classes or credentials, which no "
                "scenario may; leave it out",
            )
    config = _config(reader, at, given)
    _known(reader, at, kafka_settings.BROKER, config, [cluster.kafka])
    return config


def _of_own_build(reader: Reader, at: KeyPath, value: Option, cluster: ClusterSpec) -> bool:
    """Whether a setting that no release has names classes of the cluster's own build: that runs
    anyway. Raises InputError for a class that is not there."""
    name = at[-1]
    if not isinstance(name, str) or not LOADS_CLASSES.fullmatch(name):
        return False
    if kafka_settings.knows(kafka_settings.BROKER, name):
        return False
    try:
        build = look_for(cluster.kafka)
    except InputError:
        return False  # an image, or not a folder: `check_kafka` distinguishes them
    for named in str(value).split(",") if build else ():
        if build and not kafka_settings.has_class(build, named.strip()):
            reader.fail(
                at,
                f"{name} is {named.strip()!r}, and the jars in {cluster.kafka} have no such class; "
                "name one of theirs",
            )
    return build is not None


def of_topics(reader: Reader, given: Mapping[str, Option], topology: Topology) -> dict[str, str]:
    """The configs of the topics. Raises InputError."""
    config = _config(reader, ("topics", "config"), given)
    _known(
        reader,
        ("topics", "config"),
        kafka_settings.TOPIC,
        config,
        [cluster.kafka for cluster in topology.clusters],
    )
    return config


def _config(reader: Reader, at: KeyPath, given: Mapping[str, Option]) -> dict[str, str]:
    """Settings as texts, as in Kafka's properties files. Raises InputError."""
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            reader.fail(
                (*at, name),
                f"{name!r} is not the name of a Kafka setting; write it as in Kafka's "
                "documentation",
            )
        if isinstance(value, str) and not value.isprintable():
            reader.fail((*at, name), f"{name} is {value!r}; a setting is text on one line")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def _known(
    reader: Reader, at: KeyPath, of: str, config: Mapping[str, str], kafkas: Iterable[str]
) -> None:
    """Refuses settings that neither a release of Kafka knows nor a user's build in a folder, and
    values that no release takes. The settings of an image are not known, so none is refused."""
    settings = kafka_settings.settings(of)
    for name, value in config.items():
        if name in settings and not settings[name].takes(value):
            reader.fail((*at, name), f"{name} is {value!r}; give {settings[name].legal}")
        if not any(_knows(of, name, asked) for asked in dict.fromkeys(kafkas)):
            near = nearest(name, {*settings, *_of_builds(name, kafkas)})
            reader.fail(
                (*at, name),
                f"Kafka has no setting {name!r} of a {of}{near}; write it as in Kafka's "
                "documentation",
            )


def _of_builds(name: str, kafkas: Iterable[str]) -> Iterator[str]:
    """Names of the user's builds in folders that are similar."""
    for asked in dict.fromkeys(kafkas):
        build = None if asked in released() else look_for(asked)
        if build:
            yield from kafka_settings.similar(name, build)


def _knows(of: str, name: str, asked: str) -> bool:
    if asked in released():
        return kafka_settings.knows(of, name)
    try:
        return kafka_settings.knows(of, name, look_for(asked))
    except InputError:  # an image, or not a folder: `check_kafka` distinguishes them
        return True


_OF_KAFKA: Final = (
    ("topics", "config"),
    ("cluster", "*", "config"),
    ("mirror", "options", "settings"),
)
"""Tables whose keys are Kafka's names."""
_OF_COMMANDS: Final = ("command", "folder", "reads", "writes", "exactly_once", "record")


def is_file(name: str) -> bool:
    """Whether the user named a file and not a built-in scenario: the text ends in .toml, or is a
    path."""
    return name.endswith(".toml") or "/" in name


def read(
    path: Path,
    *,
    seed: int,
    chosen: bool = False,
    topology: Topology | None = None,
    program: WorkloadSpec | None = None,
    kafka: str = "",
) -> Scenario:
    """The scenario of a file, on its own topology or another one, and with its own workloads, or a
    `program` on the first cluster; each cluster with its own Kafka or with `kafka`. `seed` is used
    if the file has none, or if the user chose it (`chosen`). Raises InputError."""
    reader = _opened(path, topology, program, kafka)
    reader.check_schema(SCHEMA_VERSION)
    file = reader.to(ScenarioFile)
    return _scenario(reader, file, seed if chosen or file.seed is None else file.seed)


def _opened(
    path: Path,
    topology: Topology | None = None,
    program: WorkloadSpec | None = None,
    kafka: str = "",
) -> Reader:
    content, where = content_and_lines(
        path, "scenario file", f"linkflap run NAME --dry-run --save {path} writes one", _with_names
    )
    return Reader(
        path=path, content=content, where=where, asked=topology, program=program, kafka=kafka
    )


def _with_names(content: Mapping[str, object]) -> Mapping[str, object]:
    """The file with Kafka's names as keys, even if they are not quoted (TOML reads each dot of an
    unquoted name as a nested table).
    """
    made = dict(content)
    for steps in _OF_KAFKA:
        _join_names(made, steps)
    return made


def _join_names(table: dict[str, object], steps: Sequence[str]) -> None:
    first, *rest = steps
    for name in [*table] if first == "*" else [first]:
        inside = table.get(name)
        if isinstance(inside, dict):
            table[name] = inside = dict(inside)
            if rest:
                _join_names(inside, rest)
            else:
                table[name] = dict(_joined(inside))


def _joined(table: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{own}", each) for own, each in _joined(value))
        else:
            yield name, value


def check_kafka(path: Path, made: Scenario, runtime: str) -> None:
    """Raises InputError, with the line, for a Kafka release in a file's topology that the runtime
    cannot run on any machine."""
    _opened(path).placed(("topology",), lambda: runtimes.check(runtime, made.topology))


def _scenario(reader: Reader, file: ScenarioFile, seed: int) -> Scenario:
    if file.runtime is not None:
        reader.known(("runtime",), "runtime", file.runtime, RUNTIMES)
    topology = _topology(reader, file)
    specs = tuple(_workloads(reader, file, topology))
    asked = msgspec.structs.asdict(file.minimums)
    made = Scenario(
        name=file.name,
        about=_named(file.about, topology) or f"{file.name}, from {reader.path.name}",
        seed=seed,
        topology=topology,
        mirror=_mirror(reader, file) if topology.links or "mirror" in reader.content else NO_MIRROR,
        workloads=specs,
        schedule=tuple(_schedule(reader, file, topology, random.Random(seed))),
        checks=tuple(_checks(reader, file)),
        minimums=replace(
            least_of(specs), **{name: least for name, least in asked.items() if least is not None}
        ),
        budgets=_budgets(reader, file),
        topics=TopicSpec(
            partitions=file.topics.partitions,
            replicas=file.topics.replicas,
            capture=file.topics.capture,
            config=of_topics(reader, file.topics.config, topology),
        ),
        duration=file.duration,
        progress_within=file.progress_within,
        runtime=file.runtime,
    )
    if reader.program is None:
        made = _unrecorded_where_impossible(file, made)
    if reader.asked is None:
        reader.placed(("fault",), lambda: schedule.check_scenario(made))
        tables: dict[KeyPath, Mapping[str, object]] = {("topics", "config"): file.topics.config}
        tables |= {("cluster", key, "config"): table.config for key, table in file.cluster.items()}
        at = next((at for at, config in tables.items() if IN_SYNC in config), ())
        reader.placed((*at, IN_SYNC), lambda: schedule.check_in_sync(made))
        if file.topics.replicas != TopicSpec().replicas:
            reader.placed(("topics", "replicas"), lambda: schedule.check_replicas(made))
    _refuse_fetching_compacted(reader, file, made)
    _refuse_budgets_of_violations(reader, made)
    _refuse_budgets_without_failover(reader, made)
    return made


def _refuse_fetching_compacted(reader: Reader, file: ScenarioFile, made: Scenario) -> None:
    """Refuses capture by Fetch of compacted topics: only a file on the broker's disk shows how far
    the cleaner came, and without it the records that it removed would look lost. Raises
    InputError.
    """
    settings: dict[KeyPath, str] = {
        ("topics", "config", _CLEANUP): made.topics.config.get(_CLEANUP, "")
    }
    if _CLEANUP not in made.topics.config:
        settings |= {
            ("cluster", key, "config", f"log.{_CLEANUP}"): str(
                table.config.get(f"log.{_CLEANUP}", "")
            )
            for key, table in file.cluster.items()
        }
    for at, policy in settings.items():
        if made.topics.capture == "fetch" and "compact" in policy:
            reader.fail(
                at,
                f'{at[-1]} is {policy!r}, and capture = "fetch" cannot tell how far a cleaner '
                "came; leave capture or compaction out",
            )


_CLEANUP: Final = "cleanup.policy"
_NO_FAILOVER: Final = (
    "a budget for {} limits what a failover costs, and no fault of this file is a failover; add "
    "failover-planned or failover-forced, or leave the budget out"
)


def _budgets(reader: Reader, file: ScenarioFile) -> Budgets:
    kinds = _kinds_of_anomalies() if file.budgets.allowed else []
    for kind, most in file.budgets.allowed.items():
        at = ("budgets", "allowed", kind)
        reader.known(at, "kind of anomaly", kind, kinds, "linkflap docs checks has them all")
        if most < 0:
            reader.fail(at, f"{kind} is {most}; give how many a cluster may have, 0 or more")
    return Budgets(**msgspec.structs.asdict(file.budgets))


def _kinds_of_anomalies() -> list[str]:
    # A run that is recorded imports the checks only where its file names some.
    from linkflap.spark_verify.checks import REGISTRY

    return [kind.name for check in REGISTRY.values() for kind in check.anomalies]


def _allowances(made: Scenario) -> list[Allowance]:
    losses = [line for spec in made.schedule for line in LOSSES.get(spec.fault, ())]
    return [*mirrors.resolve(made.mirror).guarantee.allowed, *BROKERS, *losses]


def _refuse_budgets_without_failover(reader: Reader, made: Scenario) -> None:
    """Raises InputError for budgets of what only a failover costs."""
    if any(spec.name.fails_over for spec in made.schedule):
        return
    if made.budgets.of_failovers:
        reader.fail(("budgets",), _NO_FAILOVER.format("rpo_records or rto_seconds"))
    otherwise = {line.kind for line in _allowances(made) if line.cluster != PROMOTED}
    for kind in made.budgets.allowed:
        if kind not in otherwise:
            reader.fail(("budgets", "allowed", kind), _NO_FAILOVER.format(kind))


def _refuse_budgets_of_violations(reader: Reader, made: Scenario) -> None:
    """What neither the mirror's guarantee nor a fault allows is invalid, however few there are."""
    kinds = dict.fromkeys(line.kind for line in _allowances(made))
    for kind in made.budgets.allowed:
        if kind not in kinds:
            reader.fail(
                ("budgets", "allowed", kind),
                f"neither the mirror {made.mirror.kind}, as it is set here, nor a fault of this "
                f"file allows {kind}, so that one is invalid already; leave the budget out (they "
                f"allow {', '.join(kinds)})",
            )


_CLUSTER: Final = "{cluster}"
_HOME: Final = "{home}"
_LINK: Final = "{link}"


def _named(text: str, topology: Topology) -> str:
    """The text with the names of the topology: the clusters of its first link, and all links."""
    for link in topology.links[:1]:
        text = text.replace("{source}", link.source).replace("{destination}", link.destination)
    if not topology.links:
        text = text.replace("{source}", topology.clusters[0].name)
        return text.replace("{links}", topology.clusters[0].name)
    return text.replace("{links}", ", ".join(link.name for link in topology.links))


def _refuse_one_cluster(reader: Reader, file: ScenarioFile, topology: Topology) -> None:
    """Raises InputError for a file that needs a link, where the topology is one cluster alone."""
    texts = [
        *(fault.target for fault in file.fault),
        *file.cluster,
        *(str(each) for table in file.workload for each in (table.home, *table.options.values())),
    ]
    names = [name for name in ("{destination}", _LINK) if any(name in text for text in texts)]
    if topology.links or not names:
        return
    sentence = (
        f"scenario {file.name} needs a link, and topology {arrows(topology)} has none; write for "
        "example A->B"
    )
    if reader.asked is not None:
        raise InputError(sentence)
    reader.fail(("topology",), sentence)


def _shape(reader: Reader, file: ScenarioFile) -> Topology:
    """The clusters and links, without what the file's tables say of them."""
    try:
        topology = reader.asked or parse(file.topology)
    except InputError as error:
        reader.fail(("topology",), str(error))
    return of_release(topology, lambda: reader.kafka) if reader.kafka else topology


def _topology(reader: Reader, file: ScenarioFile) -> Topology:
    topology = _shape(reader, file)
    _refuse_one_cluster(reader, file, topology)
    every = [c.name for c in topology.clusters]
    own: dict[str, dict[str, str]] = {name: {} for name in every}
    commands: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in every}
    folders, proxies = dict.fromkeys(every, ""), dict.fromkeys(every, "")
    for key, table in file.cluster.items():
        for name in every if key == _CLUSTER else [_named(key, topology)]:
            reader.known(("cluster", key), "cluster", name, every)
            own[name] |= of_brokers(reader, key, table.config, topology.cluster(name))
            commands[name] |= _commands(reader, key, table, topology.cluster(name))
            proxies[name] = _toxiproxy(reader, key, table, topology.cluster(name)) or proxies[name]
            folders[name] = str((reader.path.parent / table.folder).absolute())
    made = replace(
        topology,
        clusters=tuple(
            replace(
                c,
                config=own[c.name] | {**c.config},
                commands=commands[c.name] or c.commands,
                folder=folders[c.name] if commands[c.name] else c.folder,
                toxiproxy=proxies[c.name] or c.toxiproxy,
            )
            for c in topology.clusters
        ),
    )
    return _with_services(reader, file, made)


_NAME_OF_SERVICE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PORT: Final = "{port}"
_OF_SERVICES: Final = ("{host}", _PORT, "{folder}")
"""What is filled into the words of a service's commands."""


def _with_services(reader: Reader, file: ScenarioFile, topology: Topology) -> Topology:
    """The topology, each cluster with the services that the file gives it."""
    clusters = {cluster.name: cluster for cluster in topology.clusters}
    tables = [
        (key, table, name)
        for key, table in file.cluster.items()
        for name in (clusters if key == _CLUSTER else [_named(key, topology)])
    ]
    for key, table, name in tables:
        found = _services(reader, key, table, clusters[name], [*clusters])
        clusters[name] = replace(clusters[name], services={**clusters[name].services, **found})
    for key, table, name in tables:
        _check_filled(reader, key, table, clusters[name])
    return replace(topology, clusters=tuple(clusters.values()))


def _services(
    reader: Reader, key: str, table: ClusterTable, cluster: ClusterSpec, clusters: Sequence[str]
) -> dict[str, ServiceSpec]:
    """The services of a cluster that linkflap starts. Raises InputError."""
    for name, service in table.service.items():
        at: KeyPath = ("cluster", key, "service", name)
        if cluster.bootstrap:
            reader.fail(
                at,
                f"cluster {cluster.name} runs already, with the services that it needs; leave "
                f"{name} out",
            )
        if not _NAME_OF_SERVICE.fullmatch(name) or name in clusters:
            reader.fail(
                at,
                f"a service cannot be called {name!r}; give it a name of small letters, digits and "
                "_ that no cluster has",
            )
        for verb, words in (("command", service.command), ("ready", service.ready)):
            folder = (reader.path.parent / service.folder).absolute()
            _check_words(reader, (*at, verb), words, None if service.image else folder)
        if not any("port" in names_in(word) for word in service.command):
            reader.fail(
                (*at, "command"),
                f"the command of service {name} has no {_PORT}, and linkflap chooses the port on "
                f"which it must listen; write {_PORT} where it takes the port",
            )
    return {
        name: ServiceSpec(
            command=tuple(service.command),
            protocol=service.protocol,
            folder=str((reader.path.parent / service.folder).absolute()),
            ready=tuple(service.ready),
            ready_within=service.ready_within,
            image=service.image,
        )
        for name, service in table.service.items()
    }


def _check_words(reader: Reader, at: KeyPath, words: Sequence[str], folder: Path | None) -> None:
    """Raises InputError for a command with names that mean nothing, or whose program is not there
    (None: it is looked for in an image)."""
    if words and folder is not None and (reason := reason_not_to_start(words[0], folder)):
        reader.fail(at, reason)
    for word in words:
        for name in names_in(word):
            reader.known(at, "name", f"{{{name}}}", _OF_SERVICES)


def _check_filled(
    reader: Reader,
    key: str,
    table: ClusterTable,
    cluster: ClusterSpec,
) -> None:
    """Raises InputError for a setting that names a service which is not there, and for a service
    that no setting names: no broker would find it."""
    for setting, value in table.config.items() if cluster.services else ():
        for name in names_in(str(value)):
            reader.known(("cluster", key, "config", setting), "service", name, cluster.services)
    for name in table.service:
        if not any(name in names_in(value) for value in cluster.config.values()):
            reader.fail(
                ("cluster", key, "service", name),
                f"no setting of the brokers names {{{name}}}, the address of service {name}, so "
                f"none would use it; write it in [cluster.{key}.config]",
            )


def _toxiproxy(reader: Reader, key: str, table: ClusterTable, cluster: ClusterSpec) -> str:
    """The Toxiproxy for the paths into a cluster that runs already."""
    at: KeyPath = ("cluster", key, "toxiproxy")
    if table.toxiproxy and not cluster.bootstrap:
        reader.fail(
            at,
            f"linkflap starts cluster {cluster.name} itself, and the proxies before it; leave "
            "toxiproxy out",
        )
    if table.toxiproxy:
        from linkflap.harness.runtimes.toxiproxy import shared  # slow, and for few files

        reader.placed(at, lambda: shared.parse(table.toxiproxy))
    return table.toxiproxy


def _commands(
    reader: Reader, key: str, table: ClusterTable, cluster: ClusterSpec
) -> dict[str, tuple[str, ...]]:
    """The user's commands for brokers of a cluster that runs already."""
    at: KeyPath = ("cluster", key, "commands")
    if table.commands and not cluster.bootstrap:
        reader.fail(
            at,
            f"linkflap starts cluster {cluster.name} itself, and needs no commands for its "
            "brokers; leave them out",
        )
    folder = (reader.path.parent / table.folder).absolute()
    for verb, words in table.commands.items():
        reader.known((*at, verb), "command", verb, VERBS)
        if reason := reason_not_to_start(words[0] if words else "", folder):
            reader.fail((*at, verb), reason)
        if name := next(filter(None, map(unknown_name, words)), None):
            reader.known((*at, verb), "name", name, NAMES)
        if (undo := UNDONE_BY.get(verb)) and undo not in table.commands:
            reader.fail((*at, verb), f"what {verb} does is undone by {undo}; add its command")
    return {
        verb: (str(program(words[0], folder)), *words[1:]) for verb, words in table.commands.items()
    }


def _mirror(reader: Reader, file: ScenarioFile) -> MirrorSpec:
    reader.placed(("mirror", "kind"), lambda: mirrors.check_kind(file.mirror.kind))
    options: dict[str, Option] = {}
    for name, value in file.mirror.options.items():
        if isinstance(value, dict) and name != "settings":
            reader.fail(("mirror", "options", name), f"{name} is a table; give it one value")
        options |= value if isinstance(value, dict) else {name: value}
    if file.mirror.kind == mirrors.BY_COMMAND and isinstance(options.get("manifest"), str):
        # relative to the folder of the scenario file
        options["manifest"] = str((reader.path.parent / str(options["manifest"])).absolute())
    spec = MirrorSpec(kind=file.mirror.kind, options=options)
    try:
        mirrors.check(spec)
    except InputError as error:
        named = max((name for name in options if name in str(error)), key=len, default="")
        table = () if named in file.mirror.options else ("settings",)
        at = ("options", *table, named) if named else ("options",) if options else ()
        reader.fail(("mirror", *at), str(error))
    return spec


def _workloads(reader: Reader, file: ScenarioFile, topology: Topology) -> Iterable[WorkloadSpec]:
    if reader.program is not None:
        yield replace(reader.program, home=topology.clusters[0].name)
        return
    if not file.workload:
        reader.fail(("workload",), "there is no workload; add a [[workload]] with kind and home")
    for index, table in enumerate(file.workload):
        options = {
            name: _named(value, topology) if isinstance(value, str) else value
            for name, value in table.options.items()
        }
        named = msgspec.structs.replace(table, home=_named(table.home, topology), options=options)
        for each in _several(reader, index, named, topology) if table.kind in SEVERAL else [named]:
            yield _workload(reader, file, topology, index, each)


def _several(
    reader: Reader, index: int, table: WorkloadTable, topology: Topology
) -> Iterable[WorkloadTable]:
    """The workloads that one table stands for. Its options are those of producers."""
    known = {name for kind in PRODUCERS for name in KINDS[kind].options}
    for name in table.options:
        reader.known(("workload", index, "options", name), f"option of {table.kind}", name, known)
    specs = (
        default_workloads_at_every_home(topology)
        if table.home == _HOME
        else default_workloads(topology, table.home)
    )
    for spec in specs:
        if spec.kind in PRODUCERS and table.kind == DEFAULT_READERS:
            continue
        own = {
            name: value
            for name, value in table.options.items()
            if spec.kind in PRODUCERS and name in KINDS[spec.kind].options
        }
        yield msgspec.structs.replace(
            table,
            kind=spec.kind,
            home=spec.home,
            clients=spec.clients * table.clients,
            options={**spec.options, **own},
        )


def _kind_of_workload(reader: Reader, at: tuple[str, int], table: WorkloadTable) -> str:
    kind = table.kind or (COMMAND if table.command else "")
    if not kind:
        reader.fail(
            at, "'kind' is missing; add kind = …, or command = […] for a program of your own"
        )
    reader.known((*at, "kind"), "workload", kind, (*KINDS, COMMAND, *SEVERAL))
    return kind


def _workload(
    reader: Reader, file: ScenarioFile, topology: Topology, index: int, table: WorkloadTable
) -> WorkloadSpec:
    at = ("workload", index)
    kind = _kind_of_workload(reader, at, table)
    reader.known((*at, "home"), "cluster", table.home, [c.name for c in topology.clusters])
    options = COMMAND_OPTIONS if kind == COMMAND else KINDS[kind].options
    for name in table.options:
        reader.known((*at, "options", name), f"option of {kind}", name, options)
    spec = WorkloadSpec(
        kind=kind,
        home=table.home,
        clients=table.clients,
        library=table.library or (LIBRDKAFKA if kind == COMMAND else file.clients),
        options=table.options,
        command=tuple(table.command),
        folder=str((reader.path.parent / table.folder).absolute()) if table.command else "",
        reads=tuple(table.reads),
        writes=tuple(table.writes),
        exactly_once=table.exactly_once,
        record=_recorded(table),
        starts=table.starts,
        progress_within=table.progress_within,
    )
    for name in spec.options:
        reader.placed((*at, "options", name), partial(value_of, spec, name, options))
    reader.placed((*at, "library") if table.library else ("clients",), partial(jvms.check, spec))
    if kind == COMMAND:
        reader.placed(at, partial(command.check, spec))
    elif given := [name for name in _OF_COMMANDS if getattr(table, name)]:
        reader.fail(
            (*at, given[0]),
            f"{given[0]} is of a program of your own, and {kind} is linkflap's; leave it out",
        )
    return spec


def _left_open(table: WorkloadTable) -> bool:
    """Whether it is a program that names topics, and not whether it is recorded."""
    return bool(table.command and not table.record and (table.reads or table.writes))


def _recorded(table: WorkloadTable) -> Record:
    return "wire" if table.record == "wire" or _left_open(table) else ""


def _unrecorded_where_impossible(file: ScenarioFile, made: Scenario) -> Scenario:
    """The scenario. Where nothing can be recorded on the wire, programs are recorded only if the
    file says so, or names a share group, of which nothing else shows anything: both are refused
    later."""
    try:
        schedule.check_recorded(made)
    except InputError:
        tables = (table for table in file.workload if table.command)
        return replace(
            made,
            workloads=tuple(
                replace(w, record="")
                if w.command and _left_open(next(tables)) and not w.options.get("share_group")
                else w
                for w in made.workloads
            ),
        )
    return made


def _schedule(
    reader: Reader, file: ScenarioFile, topology: Topology, rng: random.Random
) -> Iterable[FaultSpec]:
    ids = _all_ids(reader, file)
    for index, table in enumerate(file.fault):
        at = ("fault", index)
        reader.known((*at, "fault"), "fault", table.fault, FAULTS)
        _check_condition(reader, at, table, ids)
        for name in table.options:
            reader.known(
                (*at, "options", name),
                f"option of {table.fault}",
                name,
                FAULTS[table.fault].options,
            )
        for id, target in _targets(table, topology):
            reason = FAULTS[table.fault].applies_to(target, topology)
            if reason and reader.asked is None:
                reader.fail(
                    (*at, "target"), f"{table.fault} cannot be applied to {target!r}: {reason}"
                )
            previous = ""
            for own in _ids(id, table):
                spec = FaultSpec(
                    id=own,
                    fault=table.fault,
                    target=target,
                    at=_seconds(reader, (*at, "at"), table.at, rng),
                    duration=_seconds(reader, (*at, "duration"), table.duration, rng),
                    when=after(previous, once=table.when) if previous else table.when,
                    options=table.options,
                )
                reader.placed((*at, "options"), partial(check_options, spec))
                yield spec
                previous = own


def _all_ids(reader: Reader, file: ScenarioFile) -> Sequence[str]:
    """The ids of all faults. Raises InputError for one that two faults have."""
    ids: list[str] = []
    for index, table in enumerate(file.fault):
        own = _ids(table.id, table)
        if twice := next(filter(ids.__contains__, own), None):
            reader.fail(
                ("fault", index, "id"),
                f"two faults have the id {twice!r}; give each an id of its own",
            )
        ids += own
    return ids


def _check_condition(reader: Reader, at: KeyPath, table: FaultTable, ids: Sequence[str]) -> None:
    """Raises InputError for a trigger or fault that a fault waits for and that does not exist."""
    waits = condition(table.when)
    for trigger, _ in waits.triggers:
        if requests(trigger) is None:
            reader.known((*at, "when"), "trigger", trigger, known())
    for name in waits.faults:
        reader.known((*at, "when"), "fault with the id", name, ids)


def _ids(first: str, table: FaultTable) -> Sequence[str]:
    """The ids of a fault, one for each time that it is played."""
    return [first, *(f"{first}-{number}" for number in range(2, table.repeat + 1))]


def _targets(table: FaultTable, topology: Topology) -> Iterable[tuple[str, str]]:
    """The ids and targets of a fault: one, or one for every link."""
    if table.target != _LINK:
        return [(table.id, _named(table.target, topology))]
    return [(id_of(table.id, link, topology), link.name) for link in topology.links]


def _seconds(reader: Reader, at: KeyPath, given: float | list[float], rng: random.Random) -> float:
    """The time of a fault: as the file says, or chosen by the seed between two times."""
    if not isinstance(given, list):
        return given
    if given[0] > given[1]:
        reader.fail(at, f"{at[-1]} is {given}; write the smaller number first")
    return round(rng.uniform(*given), 2)


def _checks(reader: Reader, file: ScenarioFile) -> Sequence[str]:
    if file.checks:
        from linkflap.spark_verify.checks import REGISTRY

        for name in file.checks:
            reader.known(("checks",), "check", name, REGISTRY)
    return file.checks
