"""What the harness gives a recorder, and what a recorder reports: files in its folder. Settings are
read once; which answers it drops is read again at SIGUSR1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

SETTINGS: Final = "recorder.json"
REPORT: Final = "report.json"
DROP: Final = "drop.json"
DROPPED: Final = "dropped.json"
APIS: Final[Mapping[str, int]] = {
    "Produce": 0,
    "Fetch": 1,
    "Metadata": 3,
    "OffsetCommit": 8,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "SyncGroup": 14,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
"""Requests whose answers can be dropped, and their keys in Kafka's protocol."""
MOST_CLUSTERS: Final = 16
FIRST_PROCESS: Final = 1 << 21
PROCESSES: Final = 1 << 17
"""Numbers of producers on the wire (`harness.model.payload`): above those of linkflap's own
clients, and so many for each cluster."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`number`: the place of the cluster in its topology. `topics`: whose writes are recorded, in
    the run directory `root`; `reads`: those whose reads are, and `groups` whose. `listens`: port on
    loopback -> host:port of the broker behind it."""

    cluster: str
    number: int
    root: str
    topics: frozenset[str]
    listens: Mapping[int, str]
    reads: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


class Drops(msgspec.Struct, kw_only=True):
    """The answers to the next `left` requests of an API (its key) are dropped, each with its
    connection; `done` were. `asked`: which request of the harness this is."""

    api: int = -1
    left: int = 0
    done: int = 0
    asked: int = 0

    def takes(self, api: int) -> bool:
        """Whether the answer to a request that arrives now is to be dropped."""
        taken = api == self.api and self.left > 0
        self.left -= taken
        return taken


class Report(msgspec.Struct, kw_only=True):
    """Counts over all connections. `batches` were asked to be written to recorded topics,
    `acknowledged` by all replicas in sync, `by_leader` by a leader alone (acks=1) and `unpromised`
    with acks=0. `delivered` records were fetched of recorded topics, and `committed` offsets of
    groups acknowledged. `dropped` answers did not reach their programs, because a fault asked for
    it. `unread`: requests and answers that matter and could not be read, by their API and version;
    `passed`: connections that were not Kafka's from a point on, by the reason."""

    connections: int = 0
    requests: int = 0
    batches: int = 0
    acknowledged: int = 0
    by_leader: int = 0
    unpromised: int = 0
    delivered: int = 0
    committed: int = 0
    dropped: int = 0
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    passed: dict[str, int] = msgspec.field(default_factory=dict)

    def unreadable(self, what: str) -> None:
        """Counts one more of what could not be read."""
        self.unread[what] = self.unread.get(what, 0) + 1


def read_drops(folder: Path, name: str) -> Drops:
    """What was last asked (DROP), or last reported (DROPPED); nothing where there is no file."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=Drops)
    except FileNotFoundError:
        return Drops()


def read_settings(folder: Path) -> Settings:
    return msgspec.json.decode((folder / SETTINGS).read_bytes(), type=Settings)


def read_report(folder: Path) -> Report | None:
    """What a recorder reported when it ended; None if it did not."""
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=Report)
    except FileNotFoundError:
        return None
