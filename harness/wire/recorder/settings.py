"""The files in a recorder's folder: its settings, what faults ask for, and its reports. Settings
are read once; what faults ask for is read again at SIGUSR1."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from kio.schema.index import api_key_map

from linkflap.harness.model.interference import Interference, Requests
from linkflap.harness.wire.forwarding import Tls
from linkflap.harness.wire.messages import api_name

SETTINGS: Final = "recorder.json"
REPORT: Final = "report.json"
ASKED: Final = "interferences.json"
DONE: Final = "interfered.json"
SEEN: Final = "requests.bin"
"""How many requests of each API have come, at its key, and behind these what is counted besides: 8
bytes each, in a file that both map."""
SEEN_APIS: Final = 256
SEEN_EACH: Final = struct.Struct("=q")
_MOST_KINDS: Final = 100
MOST_CLUSTERS: Final = 16
FIRST_PROCESS: Final = 1 << 21
PROCESSES: Final = 1 << 17
"""Numbers of producers on the wire (`harness.model.payload`): above those of linkflap's own
clients, and so many for each cluster."""


def seen_size(besides: int) -> int:
    """The size of the file SEEN, for so many numbers besides those of the APIs."""
    return (SEEN_APIS + besides) * SEEN_EACH.size


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`number`: the place of the cluster in its topology. `topics`: whose writes are recorded, in
    the run directory `root`; `reads`: those whose reads are, and `groups` and `share_groups` whose.
    `counted`: requests that faults wait for. `listens`: port on `host` -> host:port of the broker
    behind it; `tls` None: plain text."""

    cluster: str
    number: int
    root: str
    topics: frozenset[str]
    listens: Mapping[int, str]
    host: str = "127.0.0.1"
    reads: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    share_groups: frozenset[str] = frozenset()
    counted: tuple[Requests, ...] = ()
    tls: Tls | None = None


class Asked(msgspec.Struct, kw_only=True):
    """What faults ask for now, by their ids. `number`: which request of the harness this is."""

    number: int = 0
    faults: dict[str, Interference] = msgspec.field(default_factory=dict)


class InterferencesDone(msgspec.Struct, kw_only=True):
    """The request of the harness that is in effect, and how often each fault was done to a request
    or answer so far."""

    number: int = 0
    done: dict[str, int] = msgspec.field(default_factory=dict)


class Report(msgspec.Struct, kw_only=True):
    """Counts over all connections. `batches` were asked to be written to recorded topics,
    `acknowledged` by all replicas in sync, `by_leader` by a leader alone (acks=1) and `unpromised`
    with acks=0. Of `unanswered` ones, without a producer id, the connection ended before the
    answer, and the same bytes did not come again. `delivered` records were fetched of recorded
    topics, and `committed` offsets of groups acknowledged. `interfered`: what faults did to
    requests and answers, and how often. `written`: for each topic, when a batch was first asked to
    be written to it, and when one was first accepted (ns; 0: never). `deleted`: for each topic, how
    many requests to delete it had no certain answer, and how many were carried out. `unread`:
    requests and answers that matter and could not be read, by their API and version;
    `forwarded_unread`: requests that the history does not need, by their API and version; `passed`:
    connections that were not Kafka's from a point on, by the reason. `handshakes_failed`:
    connections that ended before their TLS handshake was complete."""

    connections: int = 0
    handshakes_failed: int = 0
    requests: int = 0
    batches: int = 0
    acknowledged: int = 0
    by_leader: int = 0
    unpromised: int = 0
    unanswered: int = 0
    delivered: int = 0
    committed: int = 0
    interfered: dict[str, int] = msgspec.field(default_factory=dict)
    written: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    deleted: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    passed: dict[str, int] = msgspec.field(default_factory=dict)
    forwarded_unread: dict[str, int] = msgspec.field(default_factory=dict)

    def unreadable(self, what: str) -> bool:
        """Counts one more of what could not be read. Returns whether it is the first of its
        kind."""
        return _counted(self.unread, what)

    def forwards_unread(self, api: int, version: int) -> None:
        """Counts one more request that the history does not need. `api`: its key, of any value."""
        name = api_key_map.get(api)
        known = api_name(name) if name is not None else f"API {api}"
        _counted(self.forwarded_unread, f"{known} v{version}")

    def passes(self, reason: str) -> None:
        """Counts one more connection that is not Kafka's from a point on."""
        _counted(self.passed, reason)


def _counted(counts: dict[str, int], what: str) -> bool:
    """Counts one more, and returns whether it is the first. Clients may send any number of kinds,
    and the last of these are counted together."""
    name = what if what in counts or len(counts) < _MOST_KINDS else "others"
    counts[name] = counts.get(name, 0) + 1
    return counts[name] == 1


def read_asked(folder: Path) -> Asked:
    return msgspec.json.decode((folder / ASKED).read_bytes(), type=Asked)


def read_done(folder: Path) -> InterferencesDone:
    """What the recorder reported last; nothing before its first report."""
    try:
        return msgspec.json.decode((folder / DONE).read_bytes(), type=InterferencesDone)
    except FileNotFoundError:
        return InterferencesDone()


def read_settings(folder: Path) -> Settings:
    return msgspec.json.decode((folder / SETTINGS).read_bytes(), type=Settings)


def read_report(folder: Path) -> Report | None:
    """What a recorder reported when it ended; None if it did not."""
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=Report)
    except FileNotFoundError:
        return None
