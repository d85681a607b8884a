"""A topology as child processes on loopback.

Every port is leased before anything is written or started, because a broker must advertise the
ports of its links' proxies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from linkflap.harness.machine import children
from linkflap.harness.model.protocols import Recorder
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from linkflap.harness.runtimes.kraft.deployment import KraftDeployment, started
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.kraft.service import KafkaService
from linkflap.harness.runtimes.process.cluster import ProcessCluster, process_service
from linkflap.harness.runtimes.process.installation import install
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink


class ChildSidecar:
    """`harness.model.protocols.Sidecar`: a child process on loopback, like everything else."""

    address = "127.0.0.1"

    def __init__(self, name: str, module: str, folder: Path, log: Path) -> None:
        self._name, self._module, self._folder, self._log = name, module, folder, log

    def advertised_host(self, beside: str) -> str:
        return self.address

    def reach(self, address: str) -> str:
        return address

    def spawn(self) -> children.Child:
        command, environment = children.module(self._module, str(self._folder))
        return children.spawn(
            command, name=self._name, folder=self._folder, output=self._log, environment=environment
        )


def deploy(topology: Topology, *, folder: Path, recorder: Recorder) -> ProcessDeployment:
    """Starts a topology in `folder`, which is created if necessary. Returns when everything serves
    and every link is proven. Raises InputError or SetupError, after ending what was already
    started."""
    return started(ProcessDeployment(topology, folder=folder, recorder=recorder))


class ProcessDeployment(KraftDeployment):
    """Brokers, proxies and services are children of this process."""

    def _install_proxies(self) -> None:
        toxiproxy_server()

    def _install(self, asked: str) -> Installation:
        return install(asked)

    def _prepare(self, spec: ClusterSpec, paths: Mapping[str, str]) -> None:
        """Leases every port of one cluster and its proxies, and makes both; starts nothing."""
        ports = iter(self._lease.ports(spec.brokers * (3 + 2 * len(paths)) + len(paths)))
        proxies: dict[str, dict[int, tuple[int, str]]] = {path: {} for path in paths}
        nodes: dict[int, BrokerPorts] = {}
        for node in range(1, spec.brokers + 1):
            listens = {
                name: next(ports) for name in (INTERNAL, CLIENT, CONTROLLER, *paths.values())
            }
            for path, listener in paths.items():
                proxies[path][node] = (next(ports), f"127.0.0.1:{listens[listener]}")
            advertised = {
                listener: f"127.0.0.1:{proxies[path][node][0]}" for path, listener in paths.items()
            }
            nodes[node] = BrokerPorts(listens=listens, advertised=advertised)
        secrets = self._secrets_of(spec, dict.fromkeys(nodes, ("127.0.0.1", "localhost")))
        cluster = ProcessCluster(
            spec.name,
            self._installations[spec.kafka],
            nodes,
            self._folder / spec.name,
            settings=spec.config,
            secrets=secrets,
        )
        self._clusters[spec.name] = cluster
        for path, listener in paths.items():
            self._links[path] = ToxiproxyLink(
                path,
                spec.name,
                proxies[path],
                next(ports),
                self._folder / spec.name / listener.lower(),
                self._recorder,
                cluster.bootstrap,
            )

    def sidecar(
        self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]
    ) -> ChildSidecar:
        return ChildSidecar(name, module, folder, log)

    def _make_service(
        self,
        name: str,
        *,
        main: str,
        installation: Installation,
        files: Mapping[str, str],
        arguments: Sequence[str],
    ) -> KafkaService:
        folder = self._folder / "services" / name
        return process_service(
            name, installation, main=main, folder=folder, files=files, arguments=arguments
        )
