"""A topology in containers.

Brokers and services advertise to each other addresses of the deployment's network. This machine
reaches those too if the engine runs on it. To clients on this machine they advertise 127.0.0.1 and
a leased port that the engine publishes: the CLIENT listeners, the proxies of `*->X` and the
recorders. Every proxy and control API is published, so that the harness can measure and control it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.protocols import Recorder, Running, WireRecording
from linkflap.harness.model.security import beside
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec, Topology, hyphen_free
from linkflap.harness.runtimes.distribution import kafka
from linkflap.harness.runtimes.docker.cluster import (
    ContainerCluster,
    container_service,
    for_mirrors,
    install,
)
from linkflap.harness.runtimes.docker.container import Container, ContainerRun
from linkflap.harness.runtimes.docker.engine import DeploymentNetwork, create_network
from linkflap.harness.runtimes.docker.images import builds, custom_image, proxy_image, python_image
from linkflap.harness.runtimes.kraft.broker import KafkaService, ServicePlan
from linkflap.harness.runtimes.kraft.configuration import (
    ACCESS,
    CLIENT,
    CONTROLLER,
    INTERNAL,
    RECORDED,
    BrokerPorts,
)
from linkflap.harness.runtimes.kraft.deployment import (
    RECORDER,
    ClusterRecorder,
    KraftDeployment,
    started,
)
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.kraft.services import (
    ENDS_WITHIN,
    ServiceOfCluster,
    data_in,
    words_of,
)
from linkflap.harness.runtimes.kraft.services import LOG as SERVICE_LOG
from linkflap.harness.runtimes.kraft.training import MIRROR_MAIN
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyServer
from linkflap.harness.runtimes.toxiproxy.service_link import ServiceLink
from linkflap.harness.wire.access import host_and_port

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets

# Output goes directly to a file: the engine returns it only at the end, and not with every log
# driver.
_LAUNCH: Final = (
    "import os, sys; log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644); "
    "os.dup2(log, 1); os.dup2(log, 2); os.execv(sys.executable, [sys.executable, '-m', "
    "*sys.argv[2:]])"
)
_LOOPBACK: Final = "127.0.0.1"


class ContainerSidecar:
    """`harness.model.protocols.Sidecar`. `sees`: folders of this machine (path -> writable);
    `published`: see the deployment."""

    def __init__(
        self,
        name: str,
        network: DeploymentNetwork,
        *,
        module: str,
        folder: Path,
        log: Path,
        ports: Sequence[int],
        sees: Mapping[Path, bool],
        published: Mapping[str, str],
        address: str = "",
    ) -> None:
        """`address`: one of the network's, if it was taken already."""
        self.address = address or network.take_address()
        self._published = published
        self._container = Container(
            name.lower(),
            network,
            image=python_image.ready(),
            command=[
                python_image.PYTHON,
                "-c",
                _LAUNCH,
                str(log.absolute()),
                module,
                str(folder.absolute()),
            ],
            address=self.address,
            output=folder.absolute() / "container.log",
            folders=sees,
            elsewhere=python_image.code(),
            published=ports,
        )

    def advertised_host(self, beside: str) -> str:
        return _LOOPBACK if beside in self._published else self.address

    def reach(self, address: str) -> str:
        return self._published.get(address, address)

    def spawn(self) -> ContainerRun:
        return self._container.spawn()


class ContainerService(ServiceOfCluster):
    """A service in a container of the user's image."""

    def __init__(
        self,
        spec: ServiceSpec,
        link: ServiceLink,
        container: Container,
        words: Callable[[Sequence[str]], Sequence[str]],
        *,
        port: int,
        folder: Path,
    ) -> None:
        """`words`: fills a command in; `port`: where it is published on this machine."""
        super().__init__(spec, link, at=(_LOOPBACK, port), folder=folder, spawn=container.spawn)
        self._container, self._words = container, words

    def _end(self, child: Running) -> None:
        with contextlib.suppress(DeadlineExceeded):
            child.stop(within=ENDS_WITHIN)
        child.kill()

    def _status_of(self, words: Sequence[str]) -> int:
        return self._container.run(self._words(words))


_INTERNAL_PORT: Final = 9094
_CONTROLLER_PORT: Final = 9093
_FIRST_PATH_PORT: Final = 9200
_RECORDED_PORT: Final = 9095
_FIRST_PROXIED_PORT: Final = 9300


def check(topology: Topology) -> None:
    """Raises InputError for an unknown Kafka; fetches nothing and asks no engine."""
    for cluster in topology.clusters:
        for name, service in cluster.services.items():
            if not service.image:
                raise InputError(
                    f"service {name} of {cluster.name} has no image, in which runtime docker runs "
                    "its command; add image = …, or play this with --runtime process"
                )
    for asked in dict.fromkeys(cluster.kafka for cluster in topology.clusters):
        if not custom_image.is_reference(asked):
            kafka.look_for(asked)


def deploy(
    topology: Topology, *, folder: Path, recorder: Recorder, wire: WireRecording | None = None
) -> DockerDeployment:
    """Starts a topology in `folder`, which is created if necessary. Returns when everything serves
    and every link is proven. Raises InputError or SetupError, after ending what was already
    started."""
    return started(DockerDeployment(topology, folder=folder, recorder=recorder, wire=wire))


class DockerDeployment(KraftDeployment):
    """Brokers, proxies and services are containers on one separate network."""

    def __init__(
        self,
        topology: Topology,
        *,
        folder: Path,
        recorder: Recorder,
        wire: WireRecording | None = None,
    ) -> None:
        super().__init__(topology, folder=folder.absolute(), recorder=recorder, wire=wire)
        self._made_network: DeploymentNetwork | None = None
        self._proxies = ""
        self._published: dict[str, str] = {}
        """The address advertised to clients on this machine -> its address on the deployment's
        network."""

    @property
    def _network(self) -> DeploymentNetwork:
        if self._made_network is None:
            raise SetupError("the deployment is not started: it has no network")
        return self._made_network

    def sidecar(
        self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]
    ) -> ContainerSidecar:
        made = self._sidecar(
            name, module=module, folder=folder, log=log, ports=ports, sees={self._folder: True}
        )
        for secrets in self._secrets:
            secrets.serve_at(made.address)
        return made

    def _sidecar(
        self,
        name: str,
        *,
        module: str,
        folder: Path,
        log: Path,
        ports: Sequence[int],
        sees: Mapping[Path, bool],
        address: str = "",
    ) -> ContainerSidecar:
        return ContainerSidecar(
            name,
            self._network,
            module=module,
            folder=folder,
            log=log,
            ports=ports,
            sees={**sees, **self._secret_folders},
            published=self._published,
            address=address,
        )

    @property
    def _secret_folders(self) -> dict[Path, bool]:
        """The folders with the secrets of several clusters, under the same paths as here."""
        return {secrets.folder: False for secrets in self._secrets}

    def _begin_network(self) -> None:
        self._made_network = create_network()

    def _end_network(self) -> None:
        if self._made_network is not None:
            self._made_network.close()

    def _launch(self) -> None:
        side_by_side(cluster.launch for cluster in self._clusters.values())

    def _install_proxies(self) -> None:
        self._proxies = proxy_image.ready()

    def _install(self, asked: str) -> Installation:
        return install(asked)

    def _make_cluster_service(self, cluster: str, name: str, spec: ServiceSpec) -> ContainerService:
        if builds.identity(spec.image) is None:
            builds.pull(spec.image, fix="build or load it, or name another image")
        port, proxied, api = self._lease.ports(3)
        address, before = self._network.take_address(), self._network.take_address()
        folder = self._folder / cluster / "services" / name
        own_name = f"{hyphen_free(cluster)}-{name}".lower().replace("_", "-")
        link = ServiceLink(
            f"{cluster}->{name}",
            spec.protocol,
            port=proxied,
            behind=f"{address}:{port}",
            api_port=api,
            folder=folder,
            recorder=self._recorder,
            server=self._server(
                f"{own_name}-proxy", before, [api, proxied], folder / "toxiproxy.log"
            ),
            host=before,
        )
        words = partial(words_of, host="0.0.0.0", port=port, data=data_in(folder))
        container = Container(
            own_name,
            self._network,
            image=spec.image,
            command=words(spec.command),
            address=address,
            output=folder / SERVICE_LOG,
            folders={folder: True},
            published=[port],
        )
        return ContainerService(spec, link, container, words, port=port, folder=folder)

    def _prepare(self, spec: ClusterSpec, paths: Mapping[str, str]) -> None:
        recorded = spec.brokers if self._wire is not None else 0
        ports = iter(self._lease.ports(spec.brokers * (1 + len(paths)) + len(paths) + recorded))
        direct = list(islice(ports, recorded))
        before = self._network.take_address() if self._wire is not None else ""
        behind: dict[int, str] = {}
        servers = {path: self._network.take_address() for path in paths}
        proxies: dict[str, dict[int, tuple[int, str]]] = {path: {} for path in paths}
        nodes: dict[int, BrokerPorts] = {}
        for node in range(1, spec.brokers + 1):
            client, address = next(ports), self._network.take_address()
            listens = {INTERNAL: _INTERNAL_PORT, CLIENT: client, CONTROLLER: _CONTROLLER_PORT}
            advertised = {CLIENT: f"127.0.0.1:{client}"}
            self._published[advertised[CLIENT]] = f"{address}:{client}"
            for number, (path, listener) in enumerate(paths.items(), _FIRST_PATH_PORT):
                port = next(ports)
                listens[listener] = number
                advertised[listener] = (
                    f"{'127.0.0.1' if listener == ACCESS else servers[path]}:{port}"
                )
                self._published[f"127.0.0.1:{port}"] = f"{servers[path]}:{port}"
                proxies[path][node] = (port, f"{address}:{number}")
            if before:
                listens[RECORDED], proxied = _RECORDED_PORT, _FIRST_PROXIED_PORT + node
                advertised[RECORDED] = f"{_LOOPBACK}:{direct[node - 1]}"
                behind |= {
                    direct[node - 1]: f"{address}:{_RECORDED_PORT}",
                    proxied: f"{address}:{listens[ACCESS]}",
                }
                access = proxies[f"*->{spec.name}"]
                access[node] = (access[node][0], f"{before}:{proxied}")
            nodes[node] = BrokerPorts(listens=listens, advertised=advertised, host=address)
        hosts = {
            node: ("127.0.0.1", "localhost", each.host, *servers.values())
            for node, each in nodes.items()
        }
        secrets = self._secrets_of(spec, hosts)
        cluster = ContainerCluster(
            spec.name,
            self._installations[spec.kafka],
            nodes,
            self._folder / spec.name,
            self._network,
            settings=spec.config,
            secrets=secrets,
        )
        self._clusters[spec.name] = cluster
        if self._wire is not None:
            self._put_before(cluster, nodes, self._wire, behind, direct, before, secrets)
        for path, listener in paths.items():
            folder = self._folder / spec.name / listener.lower()
            api = next(ports)
            published = [api, *(port for port, _ in proxies[path].values())]
            server = self._server(
                f"{hyphen_free(spec.name)}-{listener}",
                servers[path],
                published,
                folder / "toxiproxy.log",
            )
            self._links[path] = ToxiproxyLink(
                path,
                spec.name,
                proxies[path],
                api,
                folder,
                self._recorder,
                cluster.bootstrap,
                server=server,
                advertised={
                    node: host_and_port(ports.advertised_address(listener))
                    for node, ports in nodes.items()
                },
            )

    def _put_before(
        self,
        cluster: ContainerCluster,
        nodes: Mapping[int, BrokerPorts],
        wire: WireRecording,
        behind: Mapping[int, str],
        ports: Sequence[int],
        address: str,
        secrets: ClusterSecrets | None,
    ) -> None:
        """Makes the recorder of a cluster, in a container at this address. Programs on this machine
        reach it at `ports`; `behind`: see `ClusterRecorder`."""
        addresses = ",".join(each.advertised[RECORDED] for each in nodes.values())
        made = self._recorders[cluster.name] = ClusterRecorder(
            cluster.name,
            len(self._recorders),
            wire,
            folder=self._folder / cluster.name / "recorder",
            listens=behind,
            bootstrap=beside(cluster.bootstrap, addresses),
            recorder=self._recorder,
            tls=secrets.recorder_tls() if secrets is not None else None,
            host="0.0.0.0",
        )
        made.run_by(
            self._sidecar(
                f"recorder-{hyphen_free(cluster.name)}",
                module=RECORDER,
                folder=made.log.parent,
                log=made.log,
                ports=ports,
                sees={self._folder: True, wire.root.absolute(): True},
                address=address,
            ).spawn
        )

    def _server(
        self, name: str, address: str, published: Sequence[int], log: Path
    ) -> ToxiproxyServer:
        """A toxiproxy-server whose control API is on the first of the `published` ports."""
        container = Container(
            name.lower().replace("_", "-"),
            self._network,
            image=self._proxies,
            command=[proxy_image.SERVER, "-host", "0.0.0.0", "-port", str(published[0])],
            address=address,
            output=log,
            folders={log.parent: True},
            published=published,
            environment={"LOG_LEVEL": "warn"},
        )
        return ToxiproxyServer(container.spawn, port=published[0], log=log, listens_on="0.0.0.0")

    def _make_service(self, installation: Installation, plan: ServicePlan) -> KafkaService:
        if plan.main == MIRROR_MAIN:
            installation = for_mirrors(installation)
        return container_service(installation, plan, self._network, self._secret_folders)
