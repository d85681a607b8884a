"""Settings of brokers and topics in a scenario file, by Kafka's names: refuses some, and passes on
the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from linkflap.chaos.scenario_file import value_lines
from linkflap.chaos.scenario_file.reader import Reader
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.spelling import nearest
from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes.distribution import setting_names
from linkflap.harness.runtimes.distribution.kafka import look_for, released

_RESERVED: Final = re.compile(
    r"(.*\.)?(node\.id|broker\.id|process\.roles|controller\.quorum\..*|listeners|advertised\..*|host\.name|port"
    r"|inter\.broker\..*|controller\.listener\.names|listener\.security\.protocol\.map|listener\.name\..*"
    r"|log\.dirs?|metadata\.log\.dir|.*\.dir|.*\.dirs|.*\.class|.*\.classes|.*class\.name|.*class\.names|.*\.class\.path"
    r"|metric\.reporters|.*\.reporters|.*interceptor.*|config\.providers.*|plugin\.path|ssl\..*|sasl\..*|security\..*"
    r"|zookeeper\..*|early\.start\.listeners|.*callback\.handler.*|.*\.location|.*\.file|.*\.path)"
)
"""Settings that linkflap sets itself, that load code, that name files, or that bind to addresses
beyond loopback."""
_NAME: Final = re.compile(r"[a-z][a-z0-9.-]*")


def of_brokers(
    reader: Reader, cluster: str, given: Mapping[str, Option], topology: Topology
) -> dict[str, str]:
    """The settings of a cluster's brokers. Raises InputError."""
    at = ("cluster", cluster, "config")
    for name in given:
        if _RESERVED.fullmatch(name):
            reader.fail(
                (*at, name),
                f"{name} changes listeners, folders, loaded classes or credentials, which no "
                "scenario may; leave it out",
            )
    config = _config(reader, at, given)
    _known(reader, at, setting_names.BROKER, config, [topology.cluster(cluster).kafka])
    return config


def of_topics(reader: Reader, given: Mapping[str, Option], topology: Topology) -> dict[str, str]:
    """The configs of the topics. Raises InputError."""
    config = _config(reader, ("topics", "config"), given)
    _known(
        reader,
        ("topics", "config"),
        setting_names.TOPIC,
        config,
        [cluster.kafka for cluster in topology.clusters],
    )
    return config


def _config(reader: Reader, at: value_lines.Path, given: Mapping[str, Option]) -> dict[str, str]:
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
    reader: Reader, at: value_lines.Path, of: str, config: Iterable[str], kafkas: Iterable[str]
) -> None:
    """Refuses settings that neither a release of Kafka knows nor a user's build in a folder. The
    settings of an image are not known, so none is refused."""
    for name in config:
        if not any(_knows(of, name, asked) for asked in dict.fromkeys(kafkas)):
            near = nearest(name, setting_names.names(of))
            reader.fail(
                (*at, name),
                f"Kafka has no setting {name!r} of a {of}{near}; write it as in Kafka's "
                "documentation",
            )


def _knows(of: str, name: str, asked: str) -> bool:
    if asked in released():
        return setting_names.knows(of, name)
    try:
        return setting_names.knows(of, name, look_for(asked))
    except InputError:  # an image, or not a folder: `check_kafka` distinguishes them
        return True
