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
from typing import Final, final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness import runtimes
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Broker, Cluster, Deployment, Link
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import EventLog
from linkflap.harness.wire.offsets import quiet
from linkflap.topologies import parse

IN_SYNC_WITHIN: Final = 30.0
_ERROR: Final = re.compile(rb"^\[[^\]]*\] (ERROR|FATAL) .*", re.MULTILINE)
_LONGEST: Final = 200


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
        self._sizes = {path: _size(path) for path in _logs(self.deployment)}

    def changed(self) -> Sequence[str]:
        """What is broken since `mark`: brokers, links, replicas, and errors in brokers' logs."""
        return [
            *(
                f"broker {b.cluster}/{b.id} is {b.state}"
                for b in _brokers(self.deployment)
                if b.state != "running"
            ),
            *(text for link in self.deployment.links.values() for text in _broken(link)),
            *(text for cluster in self.deployment.clusters.values() for text in _behind(cluster)),
            *(text for path, size in self._sizes.items() for text in _errors(path, size)),
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
        """What the test left broken. If anything is, stops the deployment, so that the next test
        gets another."""
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


def _brokers(deployment: Deployment) -> Iterator[Broker]:
    for cluster in deployment.clusters.values():
        yield from cluster.brokers.values()


def _logs(deployment: Deployment) -> Iterator[Path]:
    for broker in _brokers(deployment):
        yield broker.log


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _broken(link: Link) -> Iterator[str]:
    if toxics := link.toxics():
        yield f"link {link.name} has the toxics {', '.join(toxics)}"
    if not link.enabled or link.holders():
        yield f"link {link.name} is cut"


def _behind(cluster: Cluster) -> Iterator[str]:
    """Brokers that are missing in a cluster's metadata, and partitions whose replicas are not in
    sync. Waits a while for both."""
    admin = AdminClient(quiet(cluster.bootstrap))
    found = [f"cluster {cluster.name} does not answer"]

    def in_sync() -> bool:
        nonlocal found
        try:
            known = admin.list_topics(timeout=5.0)
        except KafkaException:
            return False
        found = [
            f"cluster {cluster.name} lacks broker {each}"
            for each in sorted(cluster.brokers.keys() - known.brokers.keys())
        ]
        for name, topic in known.topics.items():
            short = sorted(
                p.id
                for p in topic.partitions.values()
                if {*p.isrs} != {*p.replicas} or p.leader < 0
            )
            found += [
                f"{name}-{partition} of cluster {cluster.name} is not in sync"
                for partition in short
            ]
        return not found

    try:
        until(
            in_sync,
            within=patient(IN_SYNC_WITHIN),
            every=0.1,
            what=f"the replicas of {cluster.name} to be in sync",
        )
    except DeadlineExceeded:
        yield from found


def _errors(path: Path, since: int) -> Iterator[str]:
    """The first error in a broker's log file after byte `since`. A file that is shorter by now was
    begun again, and is read from the start."""
    if not path.exists():
        return
    with path.open("rb") as log:
        log.seek(since if _size(path) >= since else 0)
        first = _ERROR.search(log.read())
    if first:
        yield (
            f"{path.parent.parent.name}/{path.parent.name} logged "
            f"{first[0][:_LONGEST].decode(errors='replace')}"
        )
