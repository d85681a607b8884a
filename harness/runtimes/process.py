"""The process runtime: brokers, proxies and services as plain child processes on loopback. No
engine, no root, no images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.machine import java as javas
from linkflap.harness.machine.java import java_for
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.user_programs import Foreign, reason_not_to_start
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Recorder, Running, Spawn, WireRecording
from linkflap.harness.model.security import beside
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec, Topology
from linkflap.harness.runtimes.distribution import kafka as distribution
from linkflap.harness.runtimes.distribution import toxiproxy_server as toxiproxy
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import kafka, look_for
from linkflap.harness.runtimes.distribution.toxiproxy_server import toxiproxy_server
from linkflap.harness.runtimes.kraft import training
from linkflap.harness.runtimes.kraft.broker import KafkaService, ServicePlan
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.configuration import (
    ACCESS,
    CLIENT,
    CONTROLLER,
    INTERNAL,
    RECORDED,
    BrokerPorts,
)
from linkflap.harness.runtimes.kraft.deployment import (
    ClusterRecorder,
    DeploymentParts,
    KraftDeployment,
    started,
)
from linkflap.harness.runtimes.kraft.installation import (
    Installation,
    archive_name,
    log_dir_template,
    service_command,
)
from linkflap.harness.runtimes.kraft.services import (
    ENDS_WITHIN,
    ServiceOfCluster,
    data_in,
    words_of,
)
from linkflap.harness.runtimes.kraft.services import LOG as SERVICE_LOG
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.runtimes.toxiproxy.service_link import ServiceLink


class ProcessCluster(KraftCluster):
    """A cluster whose brokers are children of this process."""

    def _spawner(self, node: int, folder: Path, command: Sequence[str]) -> Spawn:
        return partial(
            children.spawn,
            command,
            name=f"broker {self.name}/{node}",
            folder=folder,
            output=folder / "output.log",
        )


def for_mirrors(installation: Installation) -> Installation:
    """The installation with MirrorMaker's class archive instead of the broker's."""
    archives = cache.once(
        f"{archive_name(installation.kafka, installation.java)}-mirror",
        partial(_train_mirror, installation),
        doing=training.MIRROR_DOING.format(installation.kafka.version),
    )
    return replace(installation, archives=archives)


def process_service(installation: Installation, plan: ServicePlan) -> KafkaService:
    """A service that is a child of this process; not started."""
    spawn = partial(
        children.spawn,
        service_command(installation, plan),
        name=plan.name,
        folder=plan.folder,
        output=plan.folder / "output.log",
    )
    return KafkaService(plan, spawn)


def install(asked: str) -> Installation:
    """The installation for a `ClusterSpec.kafka` on this machine; quick when it exists already.
    Raises InputError or SetupError."""
    found = kafka(asked)
    java = java_for(found.version)
    plain = Installation(
        kafka=found,
        java=java,
        template=log_dir_template(found, java),
        archives=None,
        mirroring=generation(found),
    )
    doing = (
        f"making a class archive of Kafka {found.version} for Java {java.major}, so that its "
        "brokers start in 2 s instead of 5"
    )
    archives = cache.once(archive_name(found, java), partial(_train, plain), doing=doing)
    return replace(plain, archives=archives)


def _train(plain: Installation, target: Path) -> None:
    with _training_cluster(plain, target, training.broker_options(plain, target)) as cluster:
        training.train_broker(plain, target, cluster)


def _train_mirror(installation: Installation, target: Path) -> None:
    with _training_cluster(installation, target) as cluster:
        training.train_mirror(installation, target, cluster, process_service)


@contextlib.contextmanager
def _training_cluster(
    installation: Installation, target: Path, jvm_options: tuple[str, ...] = ()
) -> Iterator[ProcessCluster]:
    """A cluster of one broker in `target/run`; not started."""
    lease = Lease()
    try:
        internal, client, controller = lease.ports(3)
        ports = {
            1: BrokerPorts(
                listens={INTERNAL: internal, CLIENT: client, CONTROLLER: controller}, advertised={}
            )
        }
        yield ProcessCluster(
            "training", installation, ports, target / "run", jvm_options=jvm_options
        )
    finally:
        lease.release()


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


_HOST: Final = "127.0.0.1"


class ChildService(ServiceOfCluster):
    """A service that is a child of this process, with whatever it starts."""

    def __init__(self, spec: ServiceSpec, link: ServiceLink, *, port: int, folder: Path) -> None:
        folder = folder.absolute()
        self._words = partial(words_of, host=_HOST, port=port, data=data_in(folder))
        self._foreign = Foreign(
            name=f"service {link.name}", folder=Path(spec.folder), log=folder / SERVICE_LOG
        )
        super().__init__(
            spec,
            link,
            at=(_HOST, port),
            folder=folder,
            spawn=lambda: self._foreign.start(self._words(spec.command)),
        )

    @property
    def alive(self) -> bool:
        return isinstance(self._child, children.Child) and self._child.end_group() is None

    def kill(self) -> None:
        if isinstance(self._child, children.Child):
            self._child.kill_supervised()
            self._foreign.kill(self._child)

    def _end(self, child: Running) -> None:
        if isinstance(child, children.Child):
            self._foreign.end(child, within=ENDS_WITHIN)

    def _status_of(self, words: Sequence[str]) -> int:
        within = self._spec.ready_within
        return self._foreign.run(self._words(words), what="ready", within=within).status


def deploy(
    topology: Topology, *, folder: Path, recorder: Recorder, wire: WireRecording | None = None
) -> ProcessDeployment:
    """Starts a topology in `folder`, which is created if necessary. Returns when everything serves
    and every link is proven. Raises InputError or SetupError, after ending what was already
    started."""
    return started(ProcessDeployment(topology, folder=folder, recorder=recorder, wire=wire))


class WithChildren(DeploymentParts):
    """A deployment whose proxies, services and sidecars are children of this process."""

    def _install(self, asked: str) -> Installation:
        return install(asked)

    def _make_service(self, installation: Installation, plan: ServicePlan) -> KafkaService:
        if plan.main == training.MIRROR_MAIN:
            installation = for_mirrors(installation)
        return process_service(installation, plan)

    def sidecar(
        self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]
    ) -> ChildSidecar:
        return ChildSidecar(name, module, folder, log)


class ProcessDeployment(WithChildren, KraftDeployment):
    """Its brokers are children of this process too."""

    def _install_proxies(self) -> None:
        toxiproxy_server()

    def _make_cluster_service(self, cluster: str, name: str, spec: ServiceSpec) -> ChildService:
        port, proxied, api = self._lease.ports(3)
        folder = self._folder / cluster / "services" / name
        link = ServiceLink(
            f"{cluster}->{name}",
            spec.protocol,
            port=proxied,
            behind=f"{_HOST}:{port}",
            api_port=api,
            folder=folder,
            recorder=self._recorder,
        )
        return ChildService(spec, link, port=port, folder=folder)

    def _prepare(self, spec: ClusterSpec, paths: Mapping[str, str]) -> None:
        """Leases every port of one cluster and its proxies, and makes both; starts nothing."""
        recorded = 3 * spec.brokers if self._wire is not None else 0
        ports = iter(self._lease.ports(spec.brokers * (3 + 2 * len(paths)) + len(paths) + recorded))
        proxies: dict[str, dict[int, tuple[int, str]]] = {path: {} for path in paths}
        nodes: dict[int, BrokerPorts] = {}
        behind: dict[int, str] = {}
        for node in range(1, spec.brokers + 1):
            listens = {
                name: next(ports) for name in (INTERNAL, CLIENT, CONTROLLER, *paths.values())
            }
            for path, listener in paths.items():
                proxies[path][node] = (next(ports), f"127.0.0.1:{listens[listener]}")
            advertised = {
                listener: f"127.0.0.1:{proxies[path][node][0]}" for path, listener in paths.items()
            }
            if self._wire is not None:
                listens[RECORDED], direct, proxied = next(ports), next(ports), next(ports)
                behind |= {
                    direct: f"127.0.0.1:{listens[RECORDED]}",
                    proxied: f"127.0.0.1:{listens[ACCESS]}",
                }
                advertised[RECORDED] = f"127.0.0.1:{direct}"
                access = f"*->{spec.name}"
                proxies[access][node] = (proxies[access][node][0], f"127.0.0.1:{proxied}")
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
        if self._wire is not None:
            self._recorders[spec.name] = ClusterRecorder(
                spec.name,
                len(self._recorders),
                self._wire,
                folder=self._folder / spec.name / "recorder",
                listens=behind,
                bootstrap=beside(
                    cluster.bootstrap,
                    ",".join(each.advertised[RECORDED] for each in nodes.values()),
                ),
                recorder=self._recorder,
                tls=secrets.recorder_tls() if secrets is not None else None,
            )
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


def check(topology: Topology) -> None:
    """Raises InputError for an unknown Kafka, SetupError where linkflap is offline and the cache
    lacks something; fetches nothing."""
    _check_services(topology)
    missing = []
    for asked in dict.fromkeys(cluster.kafka for cluster in topology.clusters):
        found = look_for(asked)
        if found is None and not distribution.cached(asked):
            missing.append(distribution.described(asked))
        if found:
            distribution.check_broker(found)
        missing.append(javas.lacking(found.version if found else asked))
    if not toxiproxy.cached():
        missing.append(toxiproxy.DESCRIBED)
    cache.check_online(*dict.fromkeys(filter(None, missing)))


def _check_services(topology: Topology) -> None:
    """Raises InputError for a service whose program is not there."""
    for cluster in topology.clusters:
        for name, service in cluster.services.items():
            for words in filter(None, (service.command, service.ready)):
                if reason := reason_not_to_start(words[0], Path(service.folder)):
                    raise InputError(
                        f"service {name} of {cluster.name}: {reason}, or play this with --runtime "
                        "docker"
                    )
