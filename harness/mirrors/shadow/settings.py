"""The options of the shadow mirror, and the configuration of its process. Pure: no sockets, no
processes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.security import OPEN, Address, Security
from linkflap.harness.model.spelling import nearest
from linkflap.harness.model.topology import (
    CANARY,
    LinkSpec,
    is_data_topic,
    is_recreated,
    topic_name,
)

FIRST_BROKER_ID: Final = 1000
"""Broker ids from here on are shadows: no real broker of a deployment has one."""
CONFIG: Final = "shadow.json"
JOURNAL: Final = "journal.json"

ProducerIds = Literal["keep", "negate", "complement", "region", "jump", "reset"]
Bound = Literal["hw", "lso"]
OpenTransactions = Literal["abort", "write-txn-markers", "truncate-once", "truncate-stable"]
LeaderEpochs = Literal["rewrite", "keep"]
Clients = Literal["visible", "hidden"]
FailbackPoint = Literal["offset", "epoch"]

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "producer_ids": ("jump", "keep", "negate", "complement", "region", "reset"),
    "bound": ("hw", "lso"),
    "open_transactions": ("abort", "write-txn-markers", "truncate-once", "truncate-stable"),
    "leader_epochs": ("rewrite", "keep"),
    "clients": ("visible", "hidden"),
    "failback_point": ("offset", "epoch"),
}
"""Per option its values; the first is the default."""
_GROUPS: Final = "groups"
_ABOUT: Final[Mapping[str, str]] = {
    "producer_ids": (
        "what becomes of producer ids: how KIP-1279's drafts keep B's producers from using A's"
    ),
    "bound": "how far it mirrors: to the source's high watermark, or to its last stable offset",
    "open_transactions": "what a failover does with transactions that are open",
    "leader_epochs": "whether batches get B's leader epochs or keep A's",
    "clients": "whether clients of B may read a topic while it is mirrored",
    "failback_point": (
        "what a failback truncates to: the last mirrored offset, or the last common leader epoch"
    ),
}
ABOUT: Final[Mapping[str, OptionAbout]] = {
    **{
        name: OptionAbout(choices=values, default=values[0], about=_ABOUT[name])
        for name, values in CHOICES.items()
    },
    _GROUPS: OptionAbout(
        takes="a regular expression; empty: none",
        default=".*",
        about="consumer groups whose offsets are synced",
    ),
}
"""Its options, as they are listed."""
SOUND: Final[Mapping[str, tuple[Option, ...]]] = {
    "bound": ("hw", "lso"),
    "open_transactions": ("abort", "write-txn-markers"),
    "leader_epochs": ("rewrite", "keep"),
    "failback_point": ("offset", "epoch"),
}
"""Options and values with which runs are meant to be valid (docs/shadow.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The generations of KIP-1279 and what it was argued against: each option is a strategy of its
    own module.

    `groups` is a regular expression of the consumer groups whose offsets are synced; empty: none.
    """

    producer_ids: ProducerIds = "jump"
    bound: Bound = "hw"
    open_transactions: OpenTransactions = "abort"
    leader_epochs: LeaderEpochs = "rewrite"
    clients: Clients = "visible"
    failback_point: FailbackPoint = "offset"
    groups: str = ".*"


def options(given: Mapping[str, Option]) -> Options:
    """The options of a MirrorSpec; InputError that names an unknown option or value and what there
    is."""
    for name, value in given.items():
        if name not in ABOUT:
            raise InputError(
                f"mirror shadow has no option {name!r}{nearest(name, ABOUT)}; it has "
                f"{', '.join(ABOUT)}"
            )
        if name != _GROUPS and value not in CHOICES[name]:
            raise InputError(
                f"option {name} of mirror shadow is {value!r}; it must be "
                f"{' or '.join(CHOICES[name])}"
            )
    chosen = {name: given.get(name, values[0]) for name, values in CHOICES.items()}
    return Options(
        producer_ids=cast(ProducerIds, chosen["producer_ids"]),
        bound=cast(Bound, chosen["bound"]),
        open_transactions=cast(OpenTransactions, chosen["open_transactions"]),
        leader_epochs=cast(LeaderEpochs, chosen["leader_epochs"]),
        clients=cast(Clients, chosen["clients"]),
        failback_point=cast(FailbackPoint, chosen["failback_point"]),
        groups=_pattern(given.get(_GROUPS, ".*")),
    )


def _pattern(value: Option) -> str:
    try:
        re.compile(str(value))
    except re.error as error:
        raise InputError(
            f"option groups of mirror shadow is {value!r}, which is not a valid regular "
            f"expression: {error}; correct it"
        ) from error
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenPartition:
    """One partition as the mirror that is reversed left it: where its own source's log ended in
    what it promoted, and that log's leader epochs (epoch, first offset)."""

    end: int
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTopic:
    """A topic that a reversed mirror takes over: its ids on both sides, as the mirror that is
    reversed saw them."""

    source_id: str
    destination_id: str
    partitions: Mapping[int, TakenPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """How a shadow enters: `source`, the source by the link; `inner`, brokers and controllers of
    the destination, as one of them, whose certificate it also shows to whoever comes in; `clients`,
    the destination as a client."""

    source: Security = OPEN
    inner: Security = OPEN
    clients: Security = OPEN

    @property
    def relay(self) -> Security:
        """How real brokers are asked on behalf of a client, who logs in to them by itself."""
        return replace(
            self.clients, protocol="SSL" if self.clients.authority else "PLAINTEXT", mechanism=""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of the process of one shadow. Addresses are host:port.

    `source` is the link's way in. `listeners` are the destination's listeners that the shadow
    joins, name -> its port there; `followers` is the one that brokers fetch over. `real` is
    listener -> real broker -> its address there. `takes_over` are topics that the destination has
    already, because they were mirrored from there. `behind` is the port that a listener really has
    where a proxy stands before it. `host` is where the shadow listens and is registered: an address
    that brokers reach. `advertised_hosts` is, by listener, the host that it advertises to clients.
    `source_notes` is the folder in which shadows that lead topics at the source keep their own
    folders (a chain), or empty. `entries` is written to a file of its own outside the run
    directory, `entries_file`, where anything is secured.
    """

    link: str
    source: tuple[str, ...]
    source_cluster_id: str
    homes: tuple[str, ...]
    cluster_id: str
    real: Mapping[str, Mapping[int, str]]
    controllers: tuple[str, ...]
    broker_id: int
    followers: str
    listeners: Mapping[str, int]
    control_port: int
    options: Options
    takes_over: Mapping[str, TakenTopic] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    host: str = "127.0.0.1"
    advertised_hosts: Mapping[str, str] = field(default_factory=dict)
    source_notes: str = ""
    entries: Entries = Entries()
    entries_file: str = ""

    @property
    def brokers(self) -> Mapping[int, str]:
        """The destination's real brokers, by the listener that names every replica whatever the
        mode."""
        return self.real[self.followers]

    @property
    def canary(self) -> str:
        """The topic that proves the path."""
        return topic_name(LinkSpec.parse(self.link).source, CANARY)

    def mirrors(self, topic: str) -> bool:
        """Whether this topic of the source is mirrored."""
        beside = topic == self.canary or (
            is_recreated(topic) and topic.partition(".")[0] in self.homes
        )
        return beside or is_data_topic(topic, self.homes)


def folder_at(cluster: Cluster) -> Path:
    """Where the shadows that lead a cluster's topics keep their folders."""
    return next(iter(cluster.brokers.values())).log.parent


def write(config: Config, folder: Path) -> None:
    public = replace(config, entries=Entries(), entries_file=_write_entries(config.entries))
    (folder / CONFIG).write_bytes(msgspec.json.encode(public))


def _write_entries(entries: Entries) -> str:
    """The file that a shadow reads them from, beside what they name; empty where there is nothing
    to keep."""
    if entries == Entries():
        return ""
    beside = next(each.file for each in (entries.inner, entries.source) if each.file)
    handle, path = tempfile.mkstemp(prefix="shadow-", suffix=".json", dir=Path(beside).parent)
    with open(handle, "wb") as file:
        file.write(msgspec.json.encode(entries))
    return path


def read(folder: Path) -> Config:
    """Raises InputError when the folder has no readable configuration."""
    at = folder / CONFIG
    try:
        config = msgspec.json.decode(at.read_bytes(), type=Config)
        if not config.entries_file:
            return config
        at = Path(config.entries_file)
        return _entered(replace(config, entries=msgspec.json.decode(at.read_bytes(), type=Entries)))
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{at} is no configuration of a shadow ({error}); let linkflap write it"
        ) from error


def _entered(config: Config) -> Config:
    """With addresses that know how they are entered."""
    entries = config.entries

    def real(listener: str, address: str) -> str:
        return Address(address, entries.inner if listener == config.followers else entries.relay)

    return replace(
        config,
        source=tuple(Address(address, entries.source) for address in config.source),
        controllers=tuple(Address(address, entries.inner) for address in config.controllers),
        real={
            name: {broker: real(name, at) for broker, at in them.items()}
            for name, them in config.real.items()
        },
    )
