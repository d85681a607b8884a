"""The services that a cluster needs besides Kafka (a database, an object store): each started
before the brokers, ended after them, and reached by them over a link of its own.

A service is ready once it answers on its own port, its command `ready` (if it has one) has exited
with 0, and it answers through the link.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.protocols import Running, Spawn
from linkflap.harness.model.texts import filled
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.kraft.broker import ServiceProgram
from linkflap.harness.runtimes.toxiproxy.service_link import ServiceLink, answers
from linkflap.harness.wire.access import Address

LOG: Final = "output.log"
ENDS_WITHIN: Final = 10.0
_ANSWERS_WITHIN: Final = 2.0
_ASKED_EVERY: Final = 0.1
_LINES: Final = 5


class ServiceOfCluster(ServiceProgram, ABC):
    """`harness.model.protocols.ClusterService`. Not started when made; `folder` gets its output. A
    runtime defines what it runs in."""

    def __init__(
        self, spec: ServiceSpec, link: ServiceLink, *, at: Address, folder: Path, spawn: Spawn
    ) -> None:
        """`at`: where this machine reaches it without the link."""
        self._cluster, _, self._service = link.name.partition("->")
        super().__init__(
            f"service {self._service} of {self._cluster}", folder=folder, log=LOG, spawn=spawn
        )
        self.data.mkdir(parents=True)
        self._spec, self._link, self._at = spec, link, at
        self._lacks = "it was not asked"

    @property
    def cluster(self) -> str:
        return self._cluster

    @property
    def name(self) -> str:
        return self._service

    @property
    def link(self) -> ServiceLink:
        return self._link

    @property
    def data(self) -> Path:
        return data_in(self._folder)

    @property
    def exit_status(self) -> int | None:
        return self._child.poll() if self._child is not None else None

    @abstractmethod
    def _end(self, child: Running) -> None:
        """Ends it, and everything that it started: with SIGTERM, and after `ENDS_WITHIN` seconds
        with SIGKILL."""

    @abstractmethod
    def _status_of(self, words: Sequence[str]) -> int:
        """The exit status of a command that runs beside it."""

    def start(self) -> None:
        """Returns when it is ready, and proven to be behind its link. Raises SetupError."""
        self._link.start()
        self._start_until(self._ready)
        self._link.prove()

    def start_again(self) -> None:
        """See the protocol."""
        self._start_until(self._answers)

    def _start_until(self, ready: Callable[[], bool]) -> None:
        self.launch()
        try:
            until(
                ready,
                within=self._spec.ready_within,
                what=f"{self._name} to be ready",
                every=_ASKED_EVERY,
                state=lambda: self._lacks,
            )
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; {self._said()}") from error

    def _answers(self) -> bool:
        if not self.alive:
            raise SetupError(
                f"{self._name} ended with exit status {self.exit_status} while it started; "
                f"{self._said()}"
            )
        if answers(self._spec.protocol, self._at, within=_ANSWERS_WITHIN) is None:
            host, port = self._at
            self._lacks = f"it does not answer {self._spec.protocol} at {host}:{port}"
            return False
        return True

    def _ready(self) -> bool:
        if not self._answers():
            return False
        if self._spec.ready and (status := self._status_of(self._spec.ready)):
            self._lacks = f"{shlex.join(self._spec.ready)} exits with {status}"
            return False
        return True

    def _said(self) -> str:
        words = " | ".join(self.last_words(lines=_LINES))
        return f"its output ends with: {words}; see {self.log}" if words else f"see {self.log}"

    def close(self) -> None:
        """Ends it and its link for good."""
        self._closed = True
        with self._starting:
            if self._child is not None:
                self._end(self._child)
        self._link.close()


def data_in(folder: Path) -> Path:
    """Where a service of this folder keeps its data."""
    return folder / "data"


def words_of(words: Sequence[str], *, host: str, port: int, data: Path) -> Sequence[str]:
    """A command of a service, with the address and the folder filled in."""
    names = {"host": host, "port": str(port), "folder": str(data)}
    return [filled(word, names) for word in words]


def settings_of(spec: ClusterSpec, services: Mapping[str, ServiceOfCluster]) -> dict[str, str]:
    """The settings of a cluster's brokers, with the addresses of its services filled in."""
    names = {name: services[f"{spec.name}->{name}"].link.bootstrap for name in spec.services}
    return {key: filled(value, names) for key, value in spec.config.items()}
