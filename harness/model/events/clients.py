"""Clients, and the processes that they run in (`harness.workloads`)."""

from __future__ import annotations

import msgspec

from linkflap.harness.model.events.base import Event
from linkflap.harness.model.history import OffsetOrNone, Small, SmallOrNone


class ProgramStarted(Event, frozen=True, kw_only=True):
    """A workload that is a program of the user's was started, with its clients at `cluster`."""

    program: str = msgspec.field(name="subject")
    cluster: str
    command: tuple[str, ...]
    pid: int


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that never returned; see `harness.model.history.Operation`."""

    client: str
    operation: int
    kind: str
    ending: str
    cluster: str
    records: int


class OfProcess(Event, frozen=True, kw_only=True):
    """About a process of clients."""

    process: str = msgspec.field(name="subject")


class ClientDied(OfProcess, frozen=True, kw_only=True):
    """A process of clients ended. `by`: itself, or the id of the fault that ended it.

    `status` is its exit status, or minus the signal's number, whose name `signal` is (empty without
    one). `torn_bytes` are those of unfinished rows that were removed. `again`: its clients are
    started again.
    """

    by: str
    pid: int
    clients: tuple[str, ...]
    clusters: tuple[str, ...]
    status: int
    signal: str
    in_flight: tuple[InFlight, ...]
    torn_bytes: int
    last_words: tuple[str, ...]
    again: bool


class ClientRestarted(OfProcess, frozen=True, kw_only=True):
    """The same clients, as new incarnations in a new process."""

    pid: int
    clients: tuple[str, ...]


class OfClient(Event, frozen=True, kw_only=True):
    """About a client."""

    client: str = msgspec.field(name="subject")


class ClientCrash(OfClient, frozen=True, kw_only=True):
    """It was ended by an error of linkflap's own."""

    error: str


class WaitedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in which a client had something to read: where it stood, the end of what it could
    read, and the leader (-1: none answered)."""

    topic: str
    partition: Small
    position: OffsetOrNone
    end: OffsetOrNone
    leader: SmallOrNone


class ClientStalled(OfClient, frozen=True, kw_only=True):
    """A client, or the group of several, had work and made no progress for `seconds` after all
    faults had ended (`harness.recording.liveness`).

    `coordinator` is what its coordinator said of its group or its transactional id then, in words;
    `last_words` are the last lines of a program's log.
    """

    cluster: str
    seconds: float
    partitions: tuple[WaitedFor, ...] = ()
    coordinator: str = ""
    last_words: tuple[str, ...] = ()


class ProducerReplaced(OfClient, frozen=True, kw_only=True):
    """It could not begin a transaction. `process` is its number; a new incarnation replaces it."""

    process: int
    reason: str
