"""How the harness talks to a shadow: a socket that it reaches on loopback, one JSON object a line
each way.

{"do": "status"}      what it is at
{"do": "fail-over"}   begins the failover, or goes on with it; answered at once, like status
{"do": "go-on"}       leaves the step that it stands at (`steps`)
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from linkflap.harness.mirrors.shadow.journal import Phase
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.mirrors.shadow.shadow import Shadow
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.connection import quietly_closed

Verb = Literal["status", "fail-over", "go-on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One mirrored partition. `replicated` is what all live replicas have, -1 while that is not
    known."""

    topic: str
    partition: int
    leader_epoch: int
    start: int
    end: int
    replicated: int
    sealed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`held` is bytes in windows, `source_lost` whether the source does not answer, `step` where it
    stands (`steps`).

    `longest_silence` is how many seconds two heartbeats that were answered were apart at most.
    `given_up` is by topic why nothing is mirrored into it any more, `synced` whether every group's
    offsets are on the destination too.
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
    """The control port. Whoever has it is the shadow of the link: taken before the journal is read,
    so that no two write it.

    Raises EnvironmentFailure when another program has it.
    """
    try:
        return socket.create_server((config.host, config.control_port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise EnvironmentFailure(
            f"port {config.control_port}, by which the shadow of {config.link} is controlled, is "
            f"not free ({why}); end the program that has it (another shadow of this link?), or "
            "start the run again"
        ) from error


class Control:
    """The server side, on a port from `bound`."""

    def __init__(self, shadow: Shadow, port: socket.socket) -> None:
        self._shadow, self._port = shadow, port
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                verb = json.loads(line)["do"]
                if verb == "fail-over":
                    self._shadow.fail_over()
                elif verb == "go-on":
                    self._shadow.log.steps.go_on()
                writer.write(msgspec.json.encode(self._status()) + b"\n")
                await writer.drain()
        except (OSError, ValueError, TypeError, KeyError, asyncio.CancelledError):
            pass  # the harness went away, or it is no harness
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


def ask(port: int, verb: Verb, *, within: float) -> Status | None:
    """The client side: what the shadow answers; None when it does not within so many seconds."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=within) as connection,
            connection.makefile("rwb") as lines,
        ):
            question: dict[str, Any] = {"do": verb}
            lines.write(json.dumps(question).encode() + b"\n")
            lines.flush()
            answer = lines.readline()
        return msgspec.json.decode(answer, type=Status)
    except (OSError, msgspec.MsgspecError):
        return None
