"""MirrorMaker 2's options, and the settings of one dedicated worker, or of connectors on a Connect
cluster that others run, for one link. Pure.

The properties follow Kafka's MirrorMaker 2 documentation (georeplication) and KIP-382, KIP-545
(group offset sync), KIP-618 (exactly-once source connectors), KIP-710 (internal REST in dedicated
mode) and KIP-716 (offset syncs on the target).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from linkflap.harness.guarantees.mm2 import CHECKPOINT_CONNECTOR, INTERVALS, OFFSET_LAG
from linkflap.harness.machine.rest_leftovers import RestServer
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import KILL
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.option import OptionAbout, checked_options, reason_against
from linkflap.harness.model.scenario import Option, Scenario
from linkflap.harness.model.security import FILE_PROVIDER, security_of
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.runtimes.distribution import kafka_settings

PACKAGE: Final = "org.apache.kafka.connect.mirror"
MAIN: Final = f"{PACKAGE}.MirrorMaker"
SOURCE_CONNECTOR: Final = "MirrorSourceConnector"
LARGEST_REQUEST: Final = 32 << 20
TRANSACTION_TIMEOUT_MS: Final = 10_000

Delivery = Literal["at-least-once", "exactly-once"]

ABOUT: Final[Mapping[str, OptionAbout]] = {
    "delivery": OptionAbout.one_of(
        "at-least-once",
        "exactly-once",
        about="exactly-once: the worker writes in transactions (KIP-618)",
    ),
    "isolation": OptionAbout.one_of(
        "read_committed",
        "read_uncommitted",
        about="isolation level of its consumer at the source",
    ),
    "groups": OptionAbout(
        takes="a Java regular expression without backslashes; empty: none",
        default=".*",
        about="consumer groups whose offsets are synced every second (KIP-545)",
    ),
    "tasks": OptionAbout(default=2, low=1, high=64, about="tasks.max of its connectors"),
    "connect": OptionAbout(
        takes="http://host:8083, with a file of its login in braces behind it; empty: a worker of "
        "its own",
        default="",
        about="a Connect cluster that runs already, on the destination: its connectors run there",
    ),
}
"""The options, as the command line lists them."""
SOUND: Final[Mapping[str, tuple[Option, ...]]] = {
    "delivery": ABOUT["delivery"].choices,
    "tasks": (1, 2, 4),
}
"""Options with the values that are expected to give valid runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2Options:
    """A scenario's options of MirrorMaker 2. Its own default isolation level is read_uncommitted.

    `groups` is a Java regular expression of the consumer groups whose offsets are synced every
    second. Empty: none, and the checkpoint connector does not run.
    """

    delivery: Delivery = "at-least-once"
    isolation: Isolation = "read_committed"
    groups: str = ".*"
    tasks: int = 2
    connect: str = ""


def options(given: Mapping[str, Option]) -> Mm2Options:
    """The options of a MirrorSpec. Raises InputError for an unknown option or value, and lists the
    valid ones."""
    for name in given:
        if _CHANGING.fullmatch(name):
            raise InputError(
                f"mirror mm2 takes no {name}: {name.partition('.')[0]} change records on their way,"
                " so that none could be compared with its source; leave it out"
            )
    own = {name: value for name, value in given.items() if name in ABOUT or "." not in name}
    beside = ", and MirrorMaker 2's own settings, such as offset.lag.max"
    chosen = checked_options("mm2", own, ABOUT, beside=beside)
    settings(given)
    connect_server(chosen["connect"])
    return Mm2Options(**{**chosen, "groups": _groups(chosen["groups"])})


def connect_server(written: Option) -> RestServer | None:
    """The Connect cluster of the option `connect`; None for a worker of the mirror's own. Raises
    InputError."""
    if written == "":
        return None
    try:
        return RestServer.parse(str(written))
    except ValueError as error:
        shown = re.sub("//[^/]*@", "//…@", str(written))  # a password does not belong there
        raise InputError(f"option connect of mirror mm2 is {shown!r}; {error}") from None


def refusal(scenario: Scenario) -> str | None:
    """Why this mirror cannot play a scenario, in one sentence; None if it can."""
    server = connect_server(scenario.mirror.options.get("connect", ""))
    if server is None:
        return None
    server.login()
    topology = scenario.topology
    if not topology.attached:
        return (
            "a Connect cluster that runs already mirrors into the cluster that it is on, and this "
            "topology starts new ones; give the addresses of clusters that run already "
            "(A@bootstrap:host:port), or leave the option connect out"
        )
    destinations = dict.fromkeys(link.destination for link in topology.links)
    if len(destinations) > 1:
        return (
            f"one Connect cluster is on one Kafka cluster, and links lead to "
            f"{' and '.join(destinations)}; leave the option connect out, or give one of the links"
        )
    if secured := [cluster.name for cluster in topology.clusters if cluster.properties]:
        return (
            f"the connectors of mirror mm2 would have the login of cluster {secured[0]} in their "
            "settings, which everybody may read who can reach the Connect cluster; leave the option"
            " connect out, or name a PLAINTEXT listener"
        )
    if kill := [fault.id for fault in scenario.schedule if fault.fault == KILL]:
        return (
            f"fault {kill[0]!r} ({KILL}) would end workers of a Connect cluster that others run; "
            "leave it out, or leave the option connect out"
        )
    return None


_OF_CLIENTS: Final = re.compile(r"(consumer|producer)\.[a-z][a-z.]*")
_CHANGING: Final = re.compile(r"(transforms|predicates)(\..*)?")
_KEPT: Final = re.compile(
    r"\w+\.(isolation\.level|auto\.offset\.reset|group\..*|client\.id|transaction.*|bootstrap\..*"
    r"|acks|retries|max\.in\.flight\.requests\.per\.connection|delivery\.timeout\.ms"
    r"|enable\.idempotence|enable\.auto\.commit|.*class.*|.*serializer|.*reporters|.*interceptor.*"
    r"|partition.*|sasl\..*|ssl\..*|security\..*|config\..*|.*callback.*)"
)
"""Settings of its clients on which its guarantee rests, that log in, or that load code."""
_NUMBERS: Final[Mapping[str, OptionAbout]] = {
    OFFSET_LAG: OptionAbout(default=100, high=1_000_000, about="records between offset syncs"),
    **{
        name: OptionAbout(default=1, low=1, high=3600, about="seconds between syncs")
        for name in INTERVALS
    },
}
"""MirrorMaker 2's own settings that are passed on. Its guarantee follows them."""


def settings(given: Mapping[str, Option]) -> dict[str, str]:
    """MirrorMaker 2's own settings among the options, by Kafka's names. Raises InputError."""
    found = {name: value for name, value in given.items() if "." in name}
    for name, value in found.items():
        of_client = _OF_CLIENTS.fullmatch(name) and not _KEPT.fullmatch(name)
        if name not in _NUMBERS and not of_client:
            raise InputError(
                f"setting {name} of mirror mm2 is not passed on{nearest(name, _NUMBERS)}; "
                f"{', '.join(_NUMBERS)}, and settings that begin with consumer. or producer. are. "
                "Not passed on are a client's settings on which the mirror's guarantee rests, its "
                "logins, and classes that it loads"
            )
        try:
            if name in _NUMBERS:
                _NUMBERS[name].checked(value)
            elif not str(value).isprintable() or "$" in str(value) or "\\" in str(value):
                raise ValueError("give a text on one line without $ and backslashes")
            else:
                _check_of_client(name, value)
        except ValueError as error:
            raise InputError(f"setting {name} of mirror mm2 is {value!r}; {error}") from None
    return {name: _text(value) for name, value in found.items()}


def _check_of_client(name: str, value: Option) -> None:
    """Raises InputError for a name that no release's producer or consumer has, ValueError for a
    value that none takes."""
    client, _, own = name.partition(".")
    known = kafka_settings.settings(client)
    if own not in known:
        raise InputError(
            f"Kafka has no setting {own!r} of a {client}{nearest(own, known)}; write {name} as in "
            "Kafka's documentation"
        )
    if not known[own].takes(_text(value)):
        raise ValueError(f"give {known[own].legal}")


def _text(value: Option) -> str:
    """As in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _groups(value: Option) -> str:
    if not isinstance(value, str) or any(character in value for character in "\r\n\\"):
        raise InputError(
            f"option groups of mirror mm2 is {value!r}; it must be a regular expression of group "
            "names on one line without backslashes, or empty for no group offset sync"
        )
    # MirrorMaker replaces commas by `|` (MirrorUtils.compilePatternList).
    if reason := reason_against("|".join(part.strip() for part in value.split(","))):
        raise InputError(
            f"option groups of mirror mm2 is {value!r}, which Java rejects as a regular "
            f"expression: {reason}; correct it, or separate several patterns with commas"
        )
    return value


def offsets_topic(link: LinkSpec) -> str:
    """Connect's source offsets on the destination. Records up to them are acknowledged by the
    destination."""
    return f"mm2-offsets.{link.source}.internal"


def status_topic(link: LinkSpec) -> str:
    """Connect's connector and task states on the destination."""
    return f"mm2-status.{link.source}.internal"


def connectors(chosen: Mm2Options) -> tuple[str, ...]:
    """The connectors that run with these options."""
    return (SOURCE_CONNECTOR, *([CHECKPOINT_CONNECTOR] if chosen.groups else []))


_LOGIN: Final = "sasl.jaas.config"


def transactional_ids(link: LinkSpec, tasks: int) -> list[str]:
    """The transactional ids of the source connector's tasks in exactly-once mode (KIP-618,
    ExactlyOnceWorkerSourceTask)."""
    return [f"{link.source}-mm2-{SOURCE_CONNECTOR}-{task}" for task in range(tasks)]


def properties(
    chosen: Mm2Options,
    link: LinkSpec,
    *,
    source: str,
    destination: str,
    topics: str,
    replicas: int,
    port: int,
    own: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """All properties of the worker. `source` and `destination` are bootstrap servers, `topics` is a
    Java regular expression, `own` the user's settings (`settings`).

    `replicas` is the replication factor of topics that MirrorMaker creates on the destination.
    `port` is the port of its internal REST listener (exactly-once only).
    """
    a, b = link.source, link.destination
    flow = f"{a}->{b}"
    result = {
        "clusters": f"{a},{b}",
        f"{a}.bootstrap.servers": source,
        f"{b}.bootstrap.servers": destination,
        f"{flow}.enabled": "true",
        f"{b}->{a}.enabled": "false",
        f"{flow}.topics": topics,
        # By default also topics whose names end in .replica.
        f"{flow}.topics.exclude": "__.*",
        # MirrorMaker writes only to the destination, so that a dead source delays neither its start
        # nor its stop.
        f"{flow}.offset-syncs.topic.location": "target",
        f"{flow}.emit.heartbeats.enabled": "false",
        f"{b}->{a}.emit.heartbeats.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        # Scanning the class path for plugins takes seconds. `_worker` sets this again for the
        # worker itself.
        "plugin.discovery": "service_load",
        "tasks.max": str(chosen.tasks),
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "1",
    }
    parts = (
        _worker(b),
        _groups_synced(chosen, flow),
        _internal_topics(replicas),
        _clients(chosen, link),
        _exactly_once(chosen, link, port),
        _entered(a, source),
        _entered(b, destination),
    )
    for part in parts:
        result |= part
    sides = {"consumer": f"{a}.", "producer": f"{b}."}
    return result | {f"{sides.get(n.partition('.')[0], '')}{n}": v for n, v in own.items()}


def _entered(cluster: str, address: str) -> dict[str, str]:
    """How the worker connects to a secured cluster. A password stays in its own file (KIP-297,
    FileConfigProvider)."""
    security = security_of(address)
    values = security.java()
    if _LOGIN in values:
        values[_LOGIN] = f"${{file:{security.file}:{_LOGIN}}}"
    found = {f"{cluster}.{name}": value for name, value in values.items()}
    return found | (
        {"config.providers": "file", "config.providers.file.class": FILE_PROVIDER} if found else {}
    )


def _worker(destination: str) -> dict[str, str]:
    """Settings of the Connect worker itself. MirrorMakerConfig passes these on only with the
    destination's prefix."""
    settings = {
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "1000",
        # A killed worker stays a member of Connect's group until the session timeout, and its
        # successor waits for that. 6 s is the lowest session timeout that brokers allow by default
        # (group.min.session.timeout.ms). After that there is no other worker to wait for.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        # With a dead source the checkpoint task does not stop on its own, and a forced failover
        # waits for it (default 5 s).
        "task.shutdown.graceful.timeout.ms": "2000",
    }
    return {f"{destination}.{name}": value for name, value in settings.items()}


def _groups_synced(chosen: Mm2Options, flow: str) -> dict[str, str]:
    if not chosen.groups:
        return {
            f"{flow}.emit.checkpoints.enabled": "false",
            f"{flow}.sync.group.offsets.enabled": "false",
        }
    return {
        f"{flow}.groups": chosen.groups,
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }


def _internal_topics(replicas: int) -> dict[str, str]:
    factors = (
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "config.storage.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
    )
    return dict.fromkeys(factors, str(replicas)) | {
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
    }


def _clients(chosen: Mm2Options, link: LinkSpec) -> dict[str, str]:
    a, b = link.source, link.destination
    return {
        f"{a}.consumer.isolation.level": chosen.isolation,
        f"{a}.consumer.auto.offset.reset": "earliest",
        f"{a}.consumer.reconnect.backoff.ms": "50",
        f"{a}.consumer.reconnect.backoff.max.ms": "500",
        f"{a}.consumer.fetch.max.bytes": str(16 << 20),
        f"{a}.consumer.max.partition.fetch.bytes": str(4 << 20),
        f"{a}.consumer.max.poll.records": "2000",
        f"{b}.producer.batch.size": str(256 << 10),
        f"{b}.producer.linger.ms": "5",
        # Large enough for every batch of the source: limits are up to the destination's topic
        # config.
        f"{b}.producer.max.request.size": str(LARGEST_REQUEST),
    }


def _exactly_once(chosen: Mm2Options, link: LinkSpec, port: int) -> dict[str, str]:
    if chosen.delivery != "exactly-once":
        return {}
    return {
        f"{link.destination}.exactly.once.source.support": "enabled",
        # Dedicated mode sends zombie fencing requests over this listener (KIP-710).
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{port}",
        f"{link.name}.transaction.boundary": "interval",
        f"{link.name}.transaction.boundary.interval.ms": "500",
        # A killed worker's open transaction is aborted by its successor, or by the coordinator
        # after this timeout.
        f"{link.destination}.producer.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
    }


_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_OF_WORKERS: Final = re.compile(
    r"clusters|plugin\.discovery|listeners|dedicated\..*|config\..*|(config|offset|status)\.storage\..*"
)


def connector(name: str, values: Mapping[str, str], link: LinkSpec) -> dict[str, str]:
    """The settings of the connector `name` (a class of MirrorMaker 2) on a Connect cluster that
    others run: `values` are what `properties` gives to a dedicated worker."""
    a, b = link.source, link.destination
    renamed = {
        f"{link.name}.": "",
        f"{a}.consumer.": "source.consumer.",
        f"{b}.producer.": "producer.override.",
        f"{a}.bootstrap.": "source.cluster.bootstrap.",
        f"{b}.bootstrap.": "target.cluster.bootstrap.",
    }
    found = {
        "connector.class": f"{PACKAGE}.{name}",
        "source.cluster.alias": a,
        "target.cluster.alias": b,
        **dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES),
        # Connect gives a task up that does not end, and its consumer goes on for a while: it would
        # make a topic again that the run has removed.
        "target.consumer.allow.auto.create.topics": "false",
    }
    for key, value in values.items():
        old = next((old for old in renamed if key.startswith(old)), "")
        of_worker = key.startswith((f"{a}.", f"{b}.", f"{b}->")) or _OF_WORKERS.fullmatch(key)
        if old or not of_worker:
            found[renamed.get(old, "") + key.removeprefix(old)] = value
    if "transaction.boundary" in found and name == SOURCE_CONNECTOR:
        # Connect refuses it where its workers do not write in transactions.
        found["exactly.once.support"] = "required"
    return found
