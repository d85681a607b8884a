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


VIA: Final = ("direct", "proxy")


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
        if self.text("via", "direct") == "proxy":
            return self.links[f"*->{cluster}"]
        return self.clusters[cluster]

    def number(self, name: str, default: float, *, low: float = 0.0, high: float = 1e9) -> float:
        """A numeric option. Raises InputError when it is not a number or out of range."""
        value = self.spec.options.get(name, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise self._wrong(name, value, f"give a number from {low:g} to {high:g}")
        return float(value)

    def count(self, name: str, default: int, *, low: int = 1, high: int = 1_000_000) -> int:
        """An option that is a whole number."""
        return int(self.number(name, default, low=low, high=high))

    def text(self, name: str, default: str) -> str:
        """An option that is a text."""
        value = self.spec.options.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "give a text")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """An option that is true or false."""
        value = self.spec.options.get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "give true or false")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """An option that is one of `choices`, by default the first."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise self._wrong(name, value, f"give one of {', '.join(choices)}")
        return value

    def check(self, known: frozenset[str]) -> None:
        """InputError when the spec has an option that its kind does not know, or its home has no
        topics."""
        for name, value in self.spec.options.items():
            if name not in known:
                raise self._wrong(name, value, f"it knows {', '.join(sorted(known))}")
        self.choice("via", VIA)
        if not self.topics:
            raise InputError(
                f"workload {self.spec.kind} has no topics of home {self.spec.home}; create "
                f"{self.spec.home}.* first"
            )

    def _wrong(self, name: str, value: Option, fix: str) -> InputError:
        return InputError(f"workload {self.spec.kind} cannot have {name}={value!r}; {fix}")
