"""A KRaft cluster in containers, and services beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Spawn
from linkflap.harness.model.side_by_side import side_by_side
from linkflap.harness.model.topology import hyphen_free
from linkflap.harness.runtimes.docker.container import Container
from linkflap.harness.runtimes.docker.network import DeploymentNetwork
from linkflap.harness.runtimes.kraft import jvm
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.configuration import CLIENT, BrokerPorts
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.kraft.service import KafkaService

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
        made: dict[int, Container] = {}
        private = {secrets.folder: False} if secrets is not None else {}

        def spawner(node: int, data: Path, command: Sequence[str]) -> Spawn:
            made[node] = Container(
                host_name(name, node),
                network,
                image=installation.image,
                command=command,
                address=ports[node].host,
                output=data / "output.log",
                folders={data: True, **_shared(installation), **private, **(folders or {})},
                published=[ports[node].listens[CLIENT]],
            )
            return made[node].spawn

        super().__init__(
            name,
            installation,
            ports,
            folder,
            spawner,
            settings=settings,
            jvm_options=jvm_options,
            secrets=secrets,
        )
        for node, broker in self.brokers.items():
            broker.confines = made[node].confines

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
    name: str,
    installation: Installation,
    network: DeploymentNetwork,
    *,
    main: str,
    folder: Path,
    files: Mapping[str, str],
    arguments: Sequence[str],
    folders: Mapping[Path, bool] | None = None,
    jvm_options: tuple[str, ...] = (),
) -> KafkaService:
    """A service in a container of its own; not started."""
    folder = folder.absolute()
    container = Container(
        name.lower(),
        network,
        image=installation.image,
        command=jvm.service_command(
            installation, main=main, folder=folder, arguments=arguments, jvm_options=jvm_options
        ),
        address=network.take_address(),
        output=folder / "output.log",
        folders={folder: True, **_shared(installation), **(folders or {})},
    )
    return KafkaService(name, folder=folder, files=files, spawn=container.spawn)


def host_name(cluster: str, node: int) -> str:
    """The name of a broker's container, also on the network."""
    return f"{hyphen_free(cluster.lower())}-{node}"


def _shared(installation: Installation) -> dict[Path, bool]:
    """The files that every JVM reads: its logging configuration and its class archive."""
    return {jvm.LOGGING: False, **({installation.archives: False} if installation.archives else {})}
