"""A process with a few clients of one workload (harness.workloads.forks).

librdkafka can end a process by an assertion. Here it ends a few clients, and the harness starts
them again. Each client is a thread with its own file in the run directory, so its rows from before
a death are kept. The process dies with the harness: by the kernel (harness.machine.children), and
when the other end of its socket is closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.events import Event
from linkflap.harness.model.faults import Target
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import ClientWriter
from linkflap.harness.workloads import KINDS, context, forks
from linkflap.harness.workloads.client import Client, Numbers
from linkflap.harness.workloads.library import library
from linkflap.harness.workloads.protocol import (
    AskState,
    Channel,
    Command,
    Drained,
    Host,
    KillAt,
    KilledAt,
    Move,
    PartitionsGrown,
    Pause,
    Report,
    ReportEvent,
    Start,
    State,
    Stop,
)
from linkflap.harness.workloads.readers import PollingClient

LOOK_EVERY: Final = 0.02
FALLS_WITHIN: Final = 600.0
ORPHANED: Final = 3
"""Exit status of a process whose harness has ended."""


class Process:
    """The clients of one process, and the harness's commands to it."""

    def __init__(self, channel: Channel[Report, Command], host: Host) -> None:
        self._channel = channel
        self._writer = ClientWriter(Path(host.root), self._happened)
        shared = context(
            host.spec,
            clusters={name: host.entered(name, servers) for name, servers in host.clusters.items()},
            links={
                name: host.entered(Target.parse(name).entered, it)
                for name, it in host.links.items()
            },
            topics=host.topics,
            writer=self._writer,
            seed=host.seed,
            numbers=Numbers(Path(host.numbers)),
            library=library(host.jvm),
            deaths=host.deaths,
        )
        self._library = shared.library
        self._library.prepare()
        kind = KINDS[host.spec.kind]
        self._paused = {client.name for client in host.clients if client.paused}
        self.clients: Sequence[Client] = [
            kind.client(shared, each.name, each.cluster) for each in host.clients
        ]
        self._fall = KillAt(cluster="")
        self.stopping = False

    def _happened(self, event: Event) -> None:
        self._channel.send(ReportEvent.of(event))

    def obey(self, command: Command) -> None:
        """Executes the harness's commands without waiting."""
        match command:
            case AskState():
                self._channel.send(self.state(command))
            case Drained():
                self._drained(command)
            case KillAt():
                self._fall = command
                if command.cluster:
                    threading.Thread(
                        target=self._fall_at, args=(command,), name="fall", daemon=True
                    ).start()
            case _:
                self.stopping = self.stopping or isinstance(command, Stop)
                for client in self.clients:
                    self._steer(client, command)

    def _steer(self, client: Client, command: Command) -> None:
        match command:
            case Start():
                client.start(paused=client.name in self._paused)
            case Pause(clients=names) if client.name in names:
                client.pause()
            case Move(clients=names) if client.name in names:
                client.move(command.destination, drained=command.drained)
            case PartitionsGrown():
                client.grown(command.topic, command.partitions)
            case Stop():
                client.stop()

    def state(self, ask: AskState) -> State:
        """The state of all clients: the answer to `ask`."""
        reason = self._writer.breakage.reason
        return State(
            number=ask.number,
            clients=tuple(client.state() for client in self.clients),
            acknowledged_since=sum(
                client.tally.acknowledged_since(ask.since, ask.cluster) for client in self.clients
            ),
            broken="" if reason is None else str(reason),
            ready=self._library.ready,
        )

    def _drained(self, command: Drained) -> None:
        for client in self.clients:
            if isinstance(client, PollingClient) and client.name == command.client:
                if command.missing:
                    client.not_drained(command.missing)
                if command.reached:
                    client.drained(command.reached)

    def _fall_at(self, command: KillAt) -> None:
        """Kills this process at the requested moment; reports it first, and checks the moment again
        before it does."""

        def falls() -> bool:
            for client in self.clients:
                number = (
                    client.in_flight_at(command.moment)
                    if client.cluster == command.cluster
                    else None
                )
                if number is not None and self._fall is command:
                    self._channel.send(
                        KilledAt(client=client.name, operation=number, moment=command.moment)
                    )
                    if client.in_flight_at(command.moment) == number:
                        os.kill(os.getpid(), signal.SIGKILL)
            return self._fall is not command

        with contextlib.suppress(DeadlineExceeded):
            until(
                falls, within=FALLS_WITHIN, every=0.0005, what=f"{command.moment} to be in flight"
            )

    @property
    def over(self) -> bool:
        """Whether the process was asked to stop, and every client has stopped."""
        return self.stopping and not any(client.state().alive for client in self.clients)

    def close(self) -> None:
        self._writer.close()


def serve(channel: Channel[Report, Command]) -> int:
    """Runs clients until the harness stops them, or has ended. Returns the exit status."""
    process: Process | None = None
    try:
        while process is None or not process.over:
            command = channel.receive(
                LOOK_EVERY if process is not None and process.stopping else None
            )
            if isinstance(command, Host):
                process = Process(channel, command)
            elif command is not None and process is not None:
                process.obey(command)
        channel.send(process.state(AskState(number=0)))
        process.close()
    except EOFError:
        return ORPHANED
    finally:
        channel.close()
    return 0


def _serve(end: socket.socket) -> int:
    return serve(Channel(end, Command))


def main() -> None:
    role, handle = sys.argv[1:]
    end = socket.socket(fileno=int(handle))
    if role == forks.FORKS:
        forks.serve_forks(end, _serve)
        return
    status = _serve(end)
    sys.stderr.flush()
    # Not sys.exit: librdkafka's threads may still run, and everything that matters is written.
    os._exit(status)


if __name__ == "__main__":
    main()
