"""The start of pairs in containers, compared with child processes and with a naive image, as ratios
from one run.

It measures the time from `deploy` until the clusters are healthy and the links are proven (`A->B`,
with one broker each, and with three), and the time of the removal. The naive image is the obvious
one: each broker formats its log directory with a separate JVM, and has no class archive. Rounds are
interleaved, so that other load affects all variants alike, and medians are compared. Jars, images,
templates and class archives are warm.

    python benchmarks/runtimes.py [rounds] [brokers …]

Target: at most 2 times the process runtime, and less than the naive image.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from linkflap.harness.machine import cleanup
from linkflap.harness.model.protocols import Deployment, Recorder
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes import runtime
from linkflap.harness.runtimes.docker.cluster import container_service
from linkflap.harness.runtimes.docker.deployment import DockerDeployment
from linkflap.harness.runtimes.kraft.broker import KraftBroker, ServicePlan
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.deployment import started
from linkflap.harness.runtimes.kraft.installation import Installation

TARGET = 2.0
ORDER = ("process", "docker", "naive")


class NaiveDeployment(DockerDeployment):
    """Containers of the naive image."""

    def _install(self, asked: str) -> Installation:
        return replace(super()._install(asked), archives=None)

    def _launch(self) -> None:
        side_by_side(
            self._first_formatted(c, b) for c in self.clusters.values() for b in c.brokers.values()
        )
        super()._launch()

    def _first_formatted(self, cluster: KraftCluster, broker: KraftBroker) -> Callable[[], None]:
        def make() -> None:
            shutil.rmtree(broker.log_dir)
            into = broker.log_dir.parent
            plan = ServicePlan(
                name=f"format-{cluster.name}-{broker.id}",
                main="kafka.tools.StorageTool",
                folder=into / "format",
                files={},
                arguments=["format", "-t", cluster.id, "-c", str(into / "server.properties")],
            )
            service = container_service(cluster.installation, plan, self._network, {into: True})
            service.start()
            until(
                lambda: not service.alive,
                within=120,
                what=f"{broker.name} to be formatted",
                every=0.01,
            )

        return make


def naive(topology: Topology, *, folder: Path, recorder: Recorder) -> Deployment:
    return started(NaiveDeployment(topology, folder=folder, recorder=recorder))


def one(name: str, brokers: int, folder: Path) -> tuple[float, float]:
    """Seconds until a pair is ready, and until it is removed."""
    topology = Topology(
        clusters=(ClusterSpec(name="A", brokers=brokers), ClusterSpec(name="B", brokers=brokers)),
        links=(LinkSpec(source="A", destination="B"),),
    )
    deploy = naive if name == "naive" else runtime(name)
    folder.mkdir()
    with closing(EventLog(folder / "events.jsonl")) as events:
        began = time.perf_counter()
        deployment = deploy(topology, folder=folder, recorder=events)
        ready = time.perf_counter()
        deployment.close()
        return ready - began, time.perf_counter() - ready


def compare(rounds: int, brokers: int, folder: Path) -> bool:
    """Prints the medians and their ratios. Returns whether the target is met."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ORDER}
    for number in range(-1, rounds):  # the first round warms up caches and does not count
        for name in ORDER:
            seconds = one(name, brokers, folder / f"{name}{brokers}-{number}")
            if number >= 0:
                taken[name].append(seconds)
    ready = {name: statistics.median(up for up, _ in taken[name]) for name in ORDER}
    gone = {name: statistics.median(down for _, down in taken[name]) for name in ORDER}
    print(f"pairs of {brokers} broker{'s' * (brokers > 1)} each, {rounds} rounds")
    for name in ORDER:
        print(f"  {name:8} ready {ready[name]:6.2f} s   gone {gone[name]:5.2f} s")
    ratio = ready["docker"] / ready["process"]
    print(f"  ready, docker to process: {ratio:.2f} (target: at most {TARGET:g})")
    print(
        f"  ready, naive to docker:   {ready['naive'] / ready['docker']:.2f} (target: more than 1)"
    )
    return ratio <= TARGET and ready["docker"] < ready["naive"]


def main(rounds: int, sizes: list[int]) -> int:
    """Returns 1 if a target is missed."""
    with cleanup.temporary_folder() as folder:
        met = [compare(rounds, brokers, folder) for brokers in sizes]
    return int(not all(met))


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    sys.exit(main(given[0] if given else 3, given[1:] or [1, 3]))
