"""The options of the shadow mirror, and the configuration of its process. Pure: no sockets, no
processes."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.option import OptionAbout, checked_options
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.security import OPEN, Address, Security
from linkflap.harness.model.topology import (
    CANARY,
    LinkSpec,
    is_data_topic,
    is_recreated,
    topic_name,
)

FIRST_BROKER_ID: Final = 1000
"""Shadows have broker ids from here on; real brokers of a deployment have lower ones."""
CONFIG: Final = "shadow.json"
TOKEN: Final = "control.token"
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
"""Option -> its values; the first is the default."""
_GROUPS: Final = "groups"
_ABOUT: Final[Mapping[str, str]] = {
    "producer_ids": (
        "how mirrored producer ids are kept apart from those that B allocates (KIP-1279's drafts)"
    ),
    "bound": "how far it mirrors: to the source's high watermark, or to its last stable offset",
    "open_transactions": "what a failover does with open transactions",
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
"""The options, as the command line lists them."""
SOUND: Final[Mapping[str, tuple[Option, ...]]] = {
    "bound": ("hw", "lso"),
    "open_transactions": ("abort", "write-txn-markers"),
    "leader_epochs": ("rewrite", "keep"),
    "failback_point": ("offset", "epoch"),
}
"""Options with the values that are expected to give valid runs (docs/shadow.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowOptions:
    """The drafts of KIP-1279, and the alternatives that were discussed. Each option is implemented
    in a module of its own.

    `groups` is a regular expression of the consumer groups whose offsets are synced; empty: none.
    """

    producer_ids: ProducerIds = "jump"
    bound: Bound = "hw"
    open_transactions: OpenTransactions = "abort"
    leader_epochs: LeaderEpochs = "rewrite"
    clients: Clients = "visible"
    failback_point: FailbackPoint = "offset"
    groups: str = ".*"


def options(given: Mapping[str, Option]) -> ShadowOptions:
    """The options of a MirrorSpec. Raises InputError for an unknown option or value, and lists the
    valid ones."""
    chosen = checked_options("shadow", given, ABOUT)
    return ShadowOptions(**{**chosen, _GROUPS: _pattern(chosen[_GROUPS])})


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
    """One partition as the reversed mirror left it. `end` is where the records of its source end in
    the log that it promoted; `epochs` are their leader epochs (epoch, first offset)."""

    end: int
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTopic:
    """A topic that a mirror takes over in a failback, with its ids on both sides."""

    source_id: str
    destination_id: str
    partitions: Mapping[int, TakenPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The credentials of a shadow. `source`: for the source, over the link. `inner`: for brokers
    and controllers of the destination, as one of its brokers; its listeners present the same
    certificate. `clients`: for the destination, as a client."""

    source: Security = OPEN
    inner: Security = OPEN
    clients: Security = OPEN

    @property
    def relay(self) -> Security:
        """For connections to real brokers on behalf of a client, which authenticates over them
        itself."""
        return replace(
            self.clients, protocol="SSL" if self.clients.authority else "PLAINTEXT", mechanism=""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of one shadow process. Addresses are host:port.

    `source` is the source's address through the link. `listeners` are the destination's listeners
    that the shadow joins: name -> its port. `followers` is the listener over which brokers fetch.
    `real` is listener -> real broker -> its address.

    `takes_over` are the topics that the destination already has, because a reversed mirror copied
    them from there. `behind` is listener -> the port that the shadow binds, where a proxy listens
    on the advertised one. `host` is the address that the shadow binds and registers; brokers can
    reach it. `advertised_hosts` is listener -> the host that it advertises to clients.

    `source_notes` is for chains: the folder with the folders of the shadows that lead topics at the
    source, or empty. `entries` is written to `entries_file`, outside the run directory, where any
    side is secured.
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
    options: ShadowOptions
    takes_over: Mapping[str, TakenTopic] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    host: str = "127.0.0.1"
    advertised_hosts: Mapping[str, str] = field(default_factory=dict)
    source_notes: str = ""
    entries: Entries = Entries()
    entries_file: str = ""

    @property
    def brokers(self) -> Mapping[int, str]:
        """The destination's real brokers, on the listener of inter-broker traffic, which the shadow
        joins in either mode of `clients`."""
        return self.real[self.followers]

    @property
    def canary(self) -> str:
        """The name of the canary topic."""
        return topic_name(LinkSpec.parse(self.link).source, CANARY)

    def mirrors(self, topic: str) -> bool:
        """Whether this topic of the source is mirrored."""
        beside = topic == self.canary or (
            is_recreated(topic) and topic.partition(".")[0] in self.homes
        )
        return beside or is_data_topic(topic, self.homes)


def folder_at(cluster: Cluster) -> Path:
    """The folder with the folders of the shadows that lead this cluster's topics."""
    return next(iter(cluster.brokers.values())).log.parent


def write(config: Config, folder: Path) -> None:
    public = replace(config, entries=Entries(), entries_file=_write_entries(config.entries))
    (folder / CONFIG).write_bytes(msgspec.json.encode(public))


def control_token(folder: Path) -> str:
    """The token of every command to the shadow of this folder. Raises OSError where none was
    started."""
    return (folder / TOKEN).read_text(encoding="ascii")


def new_token(folder: Path) -> str:
    """A new token for a process that has its port, in a file that only this user can read. The
    previous token may have reached a stranger that had the port while no shadow did."""
    token, partial = secrets.token_hex(32), folder / f"{TOKEN}.partial"
    partial.unlink(missing_ok=True)
    made = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(made, "w", encoding="ascii") as file:
        file.write(token)
    partial.replace(folder / TOKEN)
    return token


def _write_entries(entries: Entries) -> str:
    """Writes the credentials to a file beside the secrets that they name. Returns its path, or an
    empty string when there are none."""
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
            f"{at} is not a shadow configuration ({error}); let linkflap write it"
        ) from error


def _entered(config: Config) -> Config:
    """The configuration with its addresses replaced by addresses that carry their credentials."""
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
