"""Clusters that several tests use one after the other. Each test has its own names, and a check
after each test shows whether it left something broken.

A deployment that a test left broken is stopped, and the next test gets a new one. It is never
repaired: one test must not affect the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import final

from linkflap.harness import runtimes
from linkflap.harness.model.protocols import Cluster, Deployment, Link
from linkflap.harness.model.topology import Topology
from linkflap.harness.rundir import EventLog
from linkflap.recording import cleanliness
from linkflap.topologies import parse


@final
class Shared:
    """A deployment that other tests used before, and topic names that no other test uses."""

    def __init__(self, deployment: Deployment, names: Iterator[int], test: str) -> None:
        self._deployment, self._names = deployment, names
        self._test = re.sub(r"[^A-Za-z0-9_-]+", "-", test)[:60]

    @property
    def topology(self) -> Topology:
        return self._deployment.topology

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        """By name; `clusters["A"].bootstrap` leads to the brokers directly."""
        return self._deployment.clusters

    @property
    def links(self) -> Mapping[str, Link]:
        """By name: links, their reverses, and `*->A`, the proxied path of ordinary clients, for
        every cluster."""
        return self._deployment.links

    def topic(
        self,
        cluster: str = "A",
        *,
        partitions: int = 1,
        replicas: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic for this test on a cluster; returns its name."""
        name = f"{cluster}.{self._name()}"
        self.clusters[cluster].create_topic(
            name, partitions=partitions, replicas=replicas, config=config
        )
        return name

    def group(self) -> str:
        """The name of a consumer group that no other test has."""
        return f"group-{self._name()}"

    def transactional_id(self) -> str:
        """A transactional id that no other test has."""
        return f"tx-{self._name()}"

    def _name(self) -> str:
        return f"{self._test}-{next(self._names)}"


class _Lent:
    """A deployment of a pool, and the sizes of its brokers' log files when it was lent."""

    def __init__(self, deployment: Deployment, end: ExitStack) -> None:
        self.deployment, self.end = deployment, end
        self._sizes: dict[Path, int] = {}

    def mark(self) -> None:
        logs = [broker.log for broker in cleanliness.brokers_of(self.deployment)]
        self._sizes = cleanliness.sizes_of(logs)

    def changed(self) -> Sequence[str]:
        """Everything that broke since `mark`: brokers, links, replicas, and errors in brokers'
        logs."""
        return [
            *cleanliness.broken(self.deployment),
            *(
                text
                for path, size in self._sizes.items()
                for text in cleanliness.first_error(path, size)
            ),
        ]


class Pool:
    """Deployments of one session or module of tests, by topology and runtime."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lent: dict[tuple[str, str], _Lent] = {}
        self._names, self._folders = count(1), count(1)

    def lend(self, topology: str, runtime: str, test: str) -> Shared:
        """Lends a clean deployment; starts one if there is none. Raises InputError or
        SetupError."""
        key = topology, runtime
        if key not in self._lent:
            self._lent[key] = self._started(topology, runtime)
        lent = self._lent[key]
        lent.mark()
        return Shared(lent.deployment, self._names, test)

    def give_back(self, topology: str, runtime: str) -> Sequence[str]:
        """Everything that the test left broken. If anything is, stops the deployment, so that the
        next test gets another."""
        lent = self._lent[topology, runtime]
        changed = lent.changed()
        if changed:
            del self._lent[topology, runtime]
            lent.end.close()
        return changed

    def close(self) -> None:
        """Stops all deployments."""
        with ExitStack() as ends:
            while self._lent:
                ends.callback(self._lent.popitem()[1].end.close)

    def _started(self, topology: str, runtime: str) -> _Lent:
        folder = self._folder / f"clusters-{next(self._folders)}"
        folder.mkdir(parents=True)
        with ExitStack() as stack:
            events = stack.enter_context(closing(EventLog(folder / "events.jsonl")))
            up = stack.enter_context(
                runtimes.runtime(runtime)(parse(topology), folder=folder, recorder=events)
            )
            return _Lent(up, stack.pop_all())
