"""A running topology: all clusters and links start concurrently, and one `close` ends everything.

Every port is leased before anything is written or started, because a broker must advertise the
ports of its links' proxies.

The recorder of one cluster, seen from the harness (`harness.wire.recorder` is the program): one
process before all of its brokers, with two ports for each: one that the listener RECORDED
advertises, and one behind the proxy `*->X`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from linkflap.harness.machine.cleanup import private_folder
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.ledger import remove_folder
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.events import ClusterReady, WireRecorded
from linkflap.harness.model.interference import APIS, Interference, Requests
from linkflap.harness.model.interrupts import held_off
from linkflap.harness.model.protocols import Recorder, Sidecar, WireRecording
from linkflap.harness.model.threads import all_side_by_side, side_by_side
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec, Topology
from linkflap.harness.model.wait import until
from linkflap.harness.rundir.files import write_whole
from linkflap.harness.runtimes.kraft.broker import (
    END_WITHIN,
    ClusterProgram,
    KafkaService,
    ServicePlan,
)
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.configuration import paths_into
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.kraft.services import ServiceOfCluster, settings_of
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink
from linkflap.harness.wire.forwarding import Tls
from linkflap.harness.wire.recorder.settings import (
    ASKED,
    SEEN,
    SEEN_APIS,
    SEEN_EACH,
    SETTINGS,
    Asked,
    Settings,
    read_done,
    read_report,
)

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets


RECORDER: Final = "linkflap.harness.wire.recorder"


class ClusterRecorder(ClusterProgram):
    """Not started when made. `bootstrap`: the addresses that its clients are given."""

    def __init__(
        self,
        cluster: str,
        number: int,
        wire: WireRecording,
        *,
        folder: Path,
        listens: Mapping[int, str],
        bootstrap: str,
        recorder: Recorder,
        tls: Tls | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`listens`: port on `host` -> the listener behind it; `number`: the place of the cluster
        in its topology."""
        settings = Settings(
            cluster=cluster,
            number=number,
            root=str(wire.root.absolute()),
            topics=wire.topics,
            reads=wire.reads,
            groups=wire.groups,
            share_groups=wire.share_groups,
            counted=tuple(wire.counted),
            listens=listens,
            host=host,
            tls=tls,
        )
        super().__init__(
            f"recorder of {cluster}",
            RECORDER,
            folder=folder,
            settings=(SETTINGS, msgspec.json.encode(settings)),
            ready="records at",
        )
        self.cluster, self.bootstrap, self._recorder = cluster, bootstrap, recorder
        self._asked, self._lock = Asked(), threading.Lock()
        self._counted = settings.counted

    def interfere(self, fault: str, what: Interference | None) -> None:
        """Makes the recorder change requests as `what` says, for the fault with this id; None: no
        longer. Returns when the recorder has confirmed it. Raises DeadlineExceeded, and SetupError
        if the recorder has died."""
        with self._lock:
            others = {name: one for name, one in self._asked.faults.items() if name != fault}
            self._asked = Asked(
                number=self._asked.number + 1,
                faults=others if what is None else {**others, fault: what},
            )
            write_whole(self._folder / ASKED, msgspec.json.encode(self._asked))
            if self._child is not None:
                self._child.signal(signal.SIGUSR1)
            until(
                self._does_as_asked,
                within=END_WITHIN,
                what=f"the {self._name} to change requests, or to stop it",
            )

    def _does_as_asked(self) -> bool:
        if not self.alive:
            raise SetupError(f"the {self._name} has died; see {self.log}")
        return read_done(self._folder).number == self._asked.number

    def interfered(self, fault: str) -> int:
        """The number of requests and answers that the recorder has changed for this fault."""
        return read_done(self._folder).done.get(fault, 0)

    def requested(self, what: Requests) -> int:
        """Such requests that programs have sent so far, or that are in flight now. Raises
        InputError for one that is not counted."""
        if not what.of_api and what not in self._counted:
            raise InputError(
                f"the {self._name} does not count {what}; name it in a scenario's schedule"
            )
        at = APIS[what.api] if what.of_api else SEEN_APIS + self._counted.index(what)
        with (self._folder / SEEN).open("rb") as counted:
            counted.seek(at * SEEN_EACH.size)
            return int(SEEN_EACH.unpack(counted.read(SEEN_EACH.size))[0])

    def finish(self) -> None:
        """Ends the recorder and records its report; does nothing if it has died or was never
        started."""
        if self.alive:
            self.stop(within=END_WITHIN)
            if (report := read_report(self._folder)) is not None:
                self._recorder.write(
                    WireRecorded(cluster=self.cluster, **msgspec.structs.asdict(report))
                )
        self.close()


_MEGABYTE: Final = 1 << 20
BROKER_MEMORY: Final = 350 * _MEGABYTE
LINK_MEMORY: Final = 20 * _MEGABYTE
SERVICE_MEMORY: Final = 600 * _MEGABYTE


D = TypeVar("D", bound="DeploymentParts")


def require_certificates() -> None:
    """Raises InputError if the package for making certificates is not installed."""
    if find_spec("trustme") is None:  # only linkflap[tls] installs it
        raise InputError(
            "secured clusters need the package trustme for their certificates: pip install "
            "'linkflap[tls]', or leave the braces out"
        )


def started(deployment: D) -> D:
    """Starts a deployment and returns it once everything serves and every link is proven. Raises
    InputError or SetupError, after ending what was already started."""
    try:
        deployment.start()
    except BaseException:
        deployment.close()
        raise
    return deployment


class DeploymentParts(ABC):
    """What all deployments have, whoever started their brokers: links, services, leases, and one
    `close`; a context manager that closes it. A runtime defines what they run in."""

    def __init__(
        self,
        topology: Topology,
        *,
        folder: Path,
        recorder: Recorder,
        wire: WireRecording | None = None,
    ) -> None:
        self._topology = topology
        self._folder = folder
        self._recorder = recorder
        self._wire = wire
        self._recorders: dict[str, ClusterRecorder] = {}
        self._lease = Lease()
        self._installations: dict[str, Installation] = {}
        self._links: dict[str, ToxiproxyLink] = {}
        self._services: dict[str, KafkaService] = {}
        self._cluster_services: dict[str, ServiceOfCluster] = {}
        self._ends: list[Callable[[], None]] = []
        self._closed = False
        self._lock = threading.Lock()

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def links(self) -> Mapping[str, ToxiproxyLink]:
        return MappingProxyType(self._links)

    @property
    def recorders(self) -> Mapping[str, ClusterRecorder]:
        return MappingProxyType(self._recorders)

    @property
    def cluster_services(self) -> Mapping[str, ServiceOfCluster]:
        return MappingProxyType(self._cluster_services)

    @property
    def javas(self) -> Mapping[str, str]:
        return {
            asked: str(installation.java.major)
            for asked, installation in self._installations.items()
        }

    @abstractmethod
    def start(self) -> None:
        """See `started`."""

    @abstractmethod
    def _install(self, asked: str) -> Installation:
        """The installation for a `ClusterSpec.kafka`, made or downloaded if necessary. Raises
        InputError or SetupError."""

    @abstractmethod
    def _make_service(self, installation: Installation, plan: ServicePlan) -> KafkaService:
        """See `service`."""

    @abstractmethod
    def _give_back(self) -> None:
        """Returns leased ports and memory, except those of programs that could not be ended."""

    @abstractmethod
    def _end_clusters(self, ends: contextlib.ExitStack) -> None:
        """Has `ends` end what is behind the links, the last first."""

    def service(
        self,
        name: str,
        *,
        main: str,
        kafka: str,
        files: Mapping[str, str],
        arguments: Sequence[str],
    ) -> KafkaService:
        """See the protocol. `kafka` is a cluster's requested or reported version, or any other
        `ClusterSpec.kafka`."""
        folder = (self._folder / "services" / name).absolute()
        plan = ServicePlan(name=name, main=main, folder=folder, files=files, arguments=arguments)
        service = self._make_service(self._installation(kafka), plan)
        with self._lock:
            if self._closed:
                raise SetupError(f"service {name} cannot be made: the deployment is closed")
            if before := self._services.get(name):
                before.close()
            else:
                self._lease.reserve(SERVICE_MEMORY)
            self._services[name] = service
        return service

    def _installation(self, asked: str) -> Installation:
        for name, installation in self._installations.items():
            if asked in (name, installation.kafka.version):
                return installation
        return self._install(asked)

    def broken(self) -> str:
        """See the protocol."""
        return ""

    def free_port(self) -> int:
        return self._lease.ports(1)[0]

    def at_close(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._ends.append(end)

    def close(self) -> None:
        """Ends services, brokers and links, in this order, and returns ports and memory. Safe to
        call twice. A thread that is about to start one of them (a fault's heal, a mirror) gets a
        SetupError instead."""
        with held_off():
            with self._lock:
                if self._closed:
                    return
                self._closed = True
            with contextlib.ExitStack() as ends:
                ends.callback(self._give_back)
                for link in self._links.values():
                    ends.callback(link.close)
                self._end_clusters(ends)
                for service in self._services.values():
                    ends.callback(service.close)
                for end in self._ends:
                    ends.callback(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KraftDeployment(DeploymentParts):
    """`harness.model.protocols.Deployment`, and a context manager that closes it. A runtime defines
    what brokers run in."""

    def __init__(
        self,
        topology: Topology,
        *,
        folder: Path,
        recorder: Recorder,
        wire: WireRecording | None = None,
    ) -> None:
        super().__init__(topology, folder=folder, recorder=recorder, wire=wire)
        self._clusters: dict[str, KraftCluster] = {}
        self._private: Path | None = None
        self._secrets: list[ClusterSecrets] = []

    @property
    def clusters(self) -> Mapping[str, KraftCluster]:
        return MappingProxyType(self._clusters)

    def start(self) -> None:
        """See `started`."""
        if self._topology.attached:
            raise InputError(
                "the clusters of this topology run already, and this would start others; play a "
                "scenario on them with linkflap run"
            )
        paths = {
            cluster.name: paths_into(self._topology, cluster.name)
            for cluster in self._topology.clusters
        }
        kafkas = dict.fromkeys(cluster.kafka for cluster in self._topology.clusters)
        all_side_by_side(
            [*(partial(self._install_once, asked) for asked in kafkas), self._install_proxies]
        )
        # in the topology's order
        self._installations = {asked: self._installations[asked] for asked in kafkas}
        brokers = sum(cluster.brokers for cluster in self._topology.clusters)
        services = len(self._topology.service_links)
        self._lease.memory(
            (brokers + services) * BROKER_MEMORY
            + (sum(map(len, paths.values())) + services) * LINK_MEMORY
        )
        self._begin_network()
        for cluster in self._topology.clusters:
            for name, service in cluster.services.items():
                self._cluster_services[f"{cluster.name}->{name}"] = self._make_cluster_service(
                    cluster.name, name, service
                )
            settings = settings_of(cluster, self._cluster_services)
            self._prepare(replace(cluster, config=settings), paths[cluster.name])
        side_by_side(service.start for service in self._cluster_services.values())
        self._launch()
        side_by_side(recorder.start for recorder in self._recorders.values())
        side_by_side(link.start for link in self._links.values())
        side_by_side(self._readiness(cluster) for cluster in self._clusters.values())
        side_by_side(link.prove for link in self._links.values())

    def _secrets_of(
        self, spec: ClusterSpec, hosts: Mapping[int, Sequence[str]]
    ) -> ClusterSecrets | None:
        """The secrets of a cluster, with `hosts` (node -> its names and addresses); None if it is
        not secured."""
        if not spec.security:
            return None
        require_certificates()
        # it needs an optional package
        from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets

        if self._private is None:
            self._private = private_folder()
        made = ClusterSecrets(spec.name, self._topology, self._private, hosts)
        self._secrets.append(made)
        return made

    def _launch(self) -> None:
        """Starts every broker's process; does not wait."""
        for cluster in self._clusters.values():
            cluster.launch()

    def _install_once(self, asked: str) -> None:
        self._installations[asked] = self._install(asked)

    @abstractmethod
    def _install_proxies(self) -> None:
        """Installs Toxiproxy if necessary. Raises SetupError."""

    @abstractmethod
    def _make_cluster_service(self, cluster: str, name: str, spec: ServiceSpec) -> ServiceOfCluster:
        """Leases the ports of a service and its link, and makes both; starts nothing."""

    @abstractmethod
    def _prepare(self, spec: ClusterSpec, paths: Mapping[str, str]) -> None:
        """Leases every port of one cluster and its proxies (path -> listener), and makes both;
        starts nothing."""

    @abstractmethod
    def sidecar(
        self, name: str, *, module: str, folder: Path, log: Path, ports: Sequence[int]
    ) -> Sidecar:
        """See the protocol."""

    def _readiness(self, cluster: KraftCluster) -> Callable[[], None]:
        def ready() -> None:
            seconds = cluster.await_ready()
            self._recorder.write(
                ClusterReady(
                    cluster=cluster.name,
                    kafka=cluster.kafka,
                    brokers=len(cluster.brokers),
                    seconds=round(seconds, 3),
                )
            )

        return ready

    def replace_release(self, cluster: str, broker: int, kafka: str) -> str:
        """See the protocol."""
        installation = self._installation(kafka)
        self._clusters[cluster].replace_release(broker, installation)
        return installation.kafka.version

    def skew_clock(self, cluster: str, broker: int, seconds: float) -> None:
        """See the protocol."""
        self._clusters[cluster].skew_clock(broker, seconds)

    def _end_clusters(self, ends: contextlib.ExitStack) -> None:
        for service in self._cluster_services.values():
            ends.callback(service.close)
        for cluster in self._clusters.values():
            ends.callback(cluster.close)
        for recorder in self._recorders.values():
            ends.callback(recorder.finish)

    def _give_back(self) -> None:
        """Returns leased ports and memory, except those of programs that could not be ended."""
        if self._private is not None:
            remove_folder(self._private)
        self._end_network()
        self._lease.release()

    def _begin_network(self) -> None:
        """Creates the network of brokers and links. Child processes need none."""
        return

    def _end_network(self) -> None:
        """Removes the network, after brokers and links have ended."""
        return
