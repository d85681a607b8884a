"""A KRaft cluster in containers, services beside it, and what it is started from: an image, a
formatted directory, and class archives of the image's Java."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from linkflap.harness.machine import cache
from linkflap.harness.machine.java import Java, java_for
from linkflap.harness.machine.leases import Lease
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Spawn
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.topology import hyphen_free
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import Kafka, kafka
from linkflap.harness.runtimes.docker.container import Container
from linkflap.harness.runtimes.docker.engine import DeploymentNetwork, create_network
from linkflap.harness.runtimes.docker.images import custom_image, kafka_image
from linkflap.harness.runtimes.kraft import training
from linkflap.harness.runtimes.kraft.broker import KafkaService, ServicePlan
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts
from linkflap.harness.runtimes.kraft.installation import (
    LOGGING,
    Installation,
    log_dir_template,
    service_command,
)

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets


class ContainerCluster(KraftCluster):
    """A cluster whose brokers are containers. `folders`: folders of this machine that they see
    besides their own (path -> writable)."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        ports: Mapping[int, BrokerPorts],
        folder: Path,
        network: DeploymentNetwork,
        *,
        folders: Mapping[Path, bool] | None = None,
        settings: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = (),
        secrets: ClusterSecrets | None = None,
    ) -> None:
        private = {secrets.folder: False} if secrets is not None else {}
        self._network = network
        self._seen_by_all = {**_shared(installation), **private, **(folders or {})}
        self._containers: dict[int, Container] = {}
        super().__init__(
            name,
            installation,
            ports,
            folder,
            settings=settings,
            jvm_options=jvm_options,
            secrets=secrets,
        )
        for node, broker in self.brokers.items():
            broker.confines = self._containers[node].confines

    def _spawner(self, node: int, folder: Path, command: Sequence[str]) -> Spawn:
        made = self._containers[node] = Container(
            host_name(self.name, node),
            self._network,
            image=self.installation.image,
            command=command,
            address=self._ports[node].host,
            output=folder / "output.log",
            folders={folder: True, **self._seen_by_all},
            published=[self._ports[node].listens[CLIENT]],
        )
        return made.spawn

    def replace_release(self, node: int, installation: Installation) -> None:
        """Refused before anything is done, because a container has one image."""
        raise InputError(
            f"broker {self.name}/{node} runs in a container of one release; run it with --runtime "
            "process"
        )

    def skew_clock(self, node: int, seconds: float) -> None:
        """Refused before anything is done, because images have no libfaketime."""
        raise InputError(
            f"broker {self.name}/{node} has the clock of its container's machine; run it with "
            "--runtime process"
        )

    def _launch_all(self) -> None:
        side_by_side(broker.launch for broker in self.brokers.values())


def container_service(
    installation: Installation,
    plan: ServicePlan,
    network: DeploymentNetwork,
    folders: Mapping[Path, bool] | None = None,
) -> KafkaService:
    """A service in a container of its own; not started."""
    container = Container(
        plan.name.lower(),
        network,
        image=installation.image,
        command=service_command(installation, plan),
        address=network.take_address(),
        output=plan.folder / "output.log",
        folders={plan.folder: True, **_shared(installation), **(folders or {})},
    )
    return KafkaService(plan, container.spawn)


def host_name(cluster: str, node: int) -> str:
    """The name of a broker's container, also on the network."""
    return f"{hyphen_free(cluster.lower())}-{node}"


def _shared(installation: Installation) -> dict[Path, bool]:
    """The files that every JVM reads: its logging configuration and its class archive."""
    return {
        LOGGING: False,
        **({installation.archives: False} if installation.archives else {}),
    }


def install(asked: str, base_image: str | None = None) -> Installation:
    """The installation for a `ClusterSpec.kafka`; quick when it exists already. `base_image`: see
    `image.ready`. Raises InputError or SetupError."""
    if base_image is None and (
        reference := asked if custom_image.is_reference(asked) else kafka_image.official(asked)
    ):
        taken = custom_image.take(reference)
        found, libs, identity, java = taken.kafka, taken.libs, taken.id, taken.java
    else:
        found = kafka(asked)
        made = kafka_image.ready(found, base_image)
        libs, identity, java = kafka_image.LIBS, made.id, made.java
    plain = Installation(
        kafka=Kafka(
            version=found.version, jars=tuple(libs / jar.name for jar in found.jars), key=found.key
        ),
        java=Java(path=Path("java"), major=java),
        template=log_dir_template(found, java_for(found.version)),
        archives=None,
        image=identity,
        mirroring=generation(found),
    )
    doing = (
        f"making a class archive of Kafka {found.version} in a container, so that its brokers start"
        " in 2 s instead of 5"
    )
    archives = cache.once(_archive_name(plain), partial(_train, plain), doing=doing)
    return replace(plain, archives=archives)


def for_mirrors(installation: Installation) -> Installation:
    """The installation with MirrorMaker's class archive instead of the broker's."""
    archives = cache.once(
        f"{_archive_name(installation)}-mirror",
        partial(_train_mirror, installation),
        doing=training.MIRROR_DOING.format(installation.kafka.version),
    )
    return replace(installation, archives=archives)


def _archive_name(installation: Installation) -> str:
    return f"archives/docker-{installation.image[:24]}"


def _give_back(network: DeploymentNetwork, lease: Lease) -> None:
    """Returns the leased ports, except those of containers that could not be ended."""
    network.close()
    lease.release()


def _train(plain: Installation, target: Path) -> None:
    options = training.broker_options(plain, target)
    with _training_cluster(plain, target, options) as (cluster, _):
        training.train_broker(plain, target, cluster)


def _train_mirror(installation: Installation, target: Path) -> None:
    with _training_cluster(installation, target) as (cluster, network):
        service = partial(container_service, network=network, folders={target: True})
        training.train_mirror(installation, target, cluster, service)


@contextlib.contextmanager
def _training_cluster(
    installation: Installation, target: Path, jvm_options: tuple[str, ...] = ()
) -> Iterator[tuple[ContainerCluster, DeploymentNetwork]]:
    """A cluster of one broker in `target/run`, not started; and its network."""
    with contextlib.ExitStack() as ends:
        lease, network = Lease(), create_network()
        ends.callback(_give_back, network, lease)
        (client,) = lease.ports(1)
        listens = {INTERNAL: 9094, CLIENT: client, CONTROLLER: 9093}
        ports = {
            1: BrokerPorts(
                listens=listens,
                advertised={CLIENT: f"127.0.0.1:{client}"},
                host=network.take_address(),
            )
        }
        cluster = ContainerCluster(
            "training",
            installation,
            ports,
            target / "run",
            network,
            folders={target: True},
            jvm_options=jvm_options,
        )
        yield cluster, network
