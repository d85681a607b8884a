"""How the harness controls a shadow: over a TCP socket on loopback, with one JSON object per line
in each direction.

 {"do": "status"}      only asks for the status
 {"do": "fail-over"}   starts the failover, or continues it
 {"do": "go-on"}       resumes a shadow that is paused at a failpoint (`journal`)

Each has the `token` of the shadow's folder (`settings.control_token`), for any user of the machine
reaches the port; one without it closes the connection. Each command is answered at once with the
`Status`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from linkflap.harness.machine import untrusted_files
from linkflap.harness.mirrors.shadow.journal import Phase
from linkflap.harness.mirrors.shadow.settings import Config, control_token
from linkflap.harness.mirrors.shadow.shadow import Shadow
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.connection import quietly_closed

Verb = Literal["status", "fail-over", "go-on"]
_LARGEST_STATUS: Final = 16 << 20
_SHORTEST_WAIT: Final = 0.001
"""Seconds; 0 would mean not to wait, and less is no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One mirrored partition.

    `start` and `end` are the log start offset and the log end offset; `end` is -1 while it is
    unknown. All live replicas have the log up to `replicated`, which is -1 while that is unknown.
    `sealed` is why the partition is no longer mirrored, or empty.
    """

    topic: str
    partition: int
    leader_epoch: int
    start: int
    end: int
    replicated: int
    sealed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """State of the shadow.

    `held` is the number of bytes in the partitions' windows. `source_lost`: the source does not
    answer. `step` is the failpoint at which it is paused, or empty. `longest_silence` is the
    longest time between two acknowledged heartbeats, in seconds. `given_up`: topic -> why nothing
    is mirrored into it any more. `synced`: every group's offsets have been committed on the
    destination.
    """

    phase: Phase
    fenced: bool
    source_lost: bool
    held: int
    step: str
    longest_silence: float
    partitions: tuple[PartitionStatus, ...]
    given_up: Mapping[str, str] = field(default_factory=dict)
    synced: bool = True


def bound(config: Config) -> socket.socket:
    """Binds the control port. It is the lock of a link's shadow: bound before the journal is read,
    so that two shadows never write one journal.

    Raises EnvironmentFailure when the port cannot be bound.
    """
    try:
        return socket.create_server((config.host, config.control_port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise EnvironmentFailure(
            f"the control port {config.control_port} of the shadow of {config.link} is not free "
            f"({why}); end the program that uses it (another shadow of this link?), or start the "
            "run again"
        ) from error


class Control:
    """The server side, on a port from `bound`."""

    def __init__(self, shadow: Shadow, port: socket.socket, token: str) -> None:
        self._shadow, self._port, self._token = shadow, port, token.encode()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                command = json.loads(line)
                if not hmac.compare_digest(str(command["token"]).encode(), self._token):
                    return
                verb = command["do"]
                if verb == "fail-over":
                    self._shadow.fail_over()
                elif verb == "go-on":
                    self._shadow.log.steps.go_on()
                writer.write(msgspec.json.encode(self._status()) + b"\n")
                await writer.drain()
        except (OSError, ValueError, TypeError, KeyError, RecursionError, asyncio.CancelledError):
            pass  # the harness disconnected, or the client is not the harness
        finally:
            await quietly_closed(writer)

    def _status(self) -> Status:
        shadow = self._shadow
        return Status(
            phase=shadow.journal.notes.phase,
            fenced=shadow.membership.fenced,
            source_lost=shadow.source.lost,
            held=shadow.log.held,
            step=shadow.log.steps.at,
            given_up={
                name: note.given_up
                for name, note in shadow.journal.notes.topics.items()
                if note.given_up
            },
            synced=shadow.groups.synced,
            longest_silence=round(shadow.membership.longest_silence, 3),
            partitions=tuple(
                PartitionStatus(
                    topic=topic,
                    partition=number,
                    leader_epoch=partition.leader_epoch,
                    start=partition.start,
                    end=partition.end,
                    replicated=shadow.replicated(partition),
                    sealed=partition.sealed,
                )
                for (topic, number), partition in shadow.log.partitions.items()
            ),
        )


def ask(port: int, verb: Verb, *, folder: Path, within: float) -> Status | None:
    """The client side: sends one command to the shadow of a folder and returns its status. None
    when it does not answer within `within` seconds; a dead shadow's port may be another user's."""
    deadline = time.monotonic() + within
    try:
        token = control_token(folder)
        with socket.create_connection(("127.0.0.1", port), timeout=within) as connection:
            question: dict[str, Any] = {"do": verb, "token": token}
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = _answer(connection, deadline)
        return untrusted_files.decoded(answer, Status)
    except (OSError, msgspec.MsgspecError):
        return None


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """The line that the other side sends. Raises OSError where it sends none by then, or more than
    a status can have."""
    found = b""
    while not found.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), _SHORTEST_WAIT))
        more = connection.recv(_LARGEST_STATUS)
        if not more or time.monotonic() > deadline or len(found) > _LARGEST_STATUS:
            raise TimeoutError("no status")
        found += more
    return found
