"""The context of a workload's clients: addresses of clusters, topics, the writer of rows, and the
numbers of incarnations.

Numbers of producer and reader incarnations begin at 1, and each is used once in a run, across all
processes. A small file with a lock keeps the last one. The kernel releases the lock when its holder
is killed, so that no other process waits for it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Event
from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import Option, WorkloadSpec
from linkflap.harness.rundir import Appender
from linkflap.harness.workloads.library import ClientLibrary, Librdkafka


class Numbers:
    """The numbers of one run. Safe from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # the kernel's lock is per process, not per thread

    def next(self) -> int:
        """The number of a new incarnation."""
        with self._lock:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX)
                number = int(os.pread(handle, 32, 0) or b"0") + 1
                os.pwrite(handle, b"%d" % number, 0)
                return number
            finally:
                os.close(handle)


Options = Mapping[str, OptionAbout]
VIA: Final = OptionAbout(
    default="direct",
    choices=("direct", "proxy"),
    about="proxy: by the path that client faults break",
)


def value_of(spec: WorkloadSpec, name: str, options: Options) -> Option:
    """The value of one of a workload's options, else its default. Raises InputError for a wrong
    value, and for an option that the workload does not have."""
    value = spec.options.get(name)
    if name not in options:
        fix = f"it knows {', '.join(sorted(options))}"
    elif value is None:
        return options[name].default
    else:
        try:
            return options[name].checked(value)
        except ValueError as error:
            fix = str(error)
    raise InputError(f"workload {spec.kind} cannot have {name}={value!r}; {fix}")


class ClientFiles(Protocol):
    """The part of a run directory that clients write to."""

    def operations(self, client: str) -> Appender[Operation]: ...
    def polls(self, reader: str) -> Appender[Poll]: ...
    def write(self, event: Event, /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a workload's clients share. `topics` is topic -> partitions, which can grow, of
    the workload's home only; `clusters` and `links` are name -> bootstrap servers; `library` makes
    their producers and consumers; `deaths` is how many processes of these clients died before."""

    spec: WorkloadSpec
    clusters: Mapping[str, str]
    links: Mapping[str, str]
    options: Options
    topics: dict[str, int]
    writer: ClientFiles
    seed: int
    numbers: Numbers
    library: ClientLibrary = field(default_factory=Librdkafka)
    deaths: int = 0

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Every (topic, partition) of the home."""
        return [(topic, p) for topic, count in sorted(self.topics.items()) for p in range(count)]

    def grown(self, topic: str, partitions: int) -> None:
        """A topic now has this many partitions. Ignored if the workload does not use it."""
        if topic in self.topics:
            self.topics[topic] = partitions

    def bootstrap(self, cluster: str) -> str:
        """Bootstrap servers of a cluster: its own listener, or with `via=proxy` the proxied path of
        ordinary clients."""
        if self.text("via") == "proxy":
            return self.links[f"*->{cluster}"]
        return self.clusters[cluster]

    def number(self, name: str) -> float:
        """An option that is a number. Raises InputError for a wrong value."""
        value = value_of(self.spec, name, self.options)
        assert isinstance(value, int | float)
        return value

    def count(self, name: str) -> int:
        """An option that is a whole number. Raises InputError for a wrong value."""
        return int(self.number(name))

    def text(self, name: str) -> str:
        """An option that is a text. Raises InputError for a wrong value."""
        return str(value_of(self.spec, name, self.options))

    def flag(self, name: str) -> bool:
        """An option that is true or false. Raises InputError for a wrong value."""
        return bool(value_of(self.spec, name, self.options))
