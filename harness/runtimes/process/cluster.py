"""A KRaft cluster of child processes on loopback, and services beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from linkflap.harness.machine import children
from linkflap.harness.model.protocols import Spawn
from linkflap.harness.runtimes.kraft import jvm
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.harness.runtimes.kraft.service import KafkaService

if TYPE_CHECKING:
    from linkflap.harness.runtimes.kraft.secrets import ClusterSecrets


class ProcessCluster(KraftCluster):
    """A cluster whose brokers are children of this process."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        ports: Mapping[int, BrokerPorts],
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = (),
        secrets: ClusterSecrets | None = None,
    ) -> None:
        def spawner(node: int, data: Path, command: Sequence[str]) -> Spawn:
            return partial(
                children.spawn,
                command,
                name=f"broker {name}/{node}",
                folder=data,
                output=data / "output.log",
            )

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


def process_service(
    name: str,
    installation: Installation,
    *,
    main: str,
    folder: Path,
    files: Mapping[str, str],
    arguments: Sequence[str],
    jvm_options: tuple[str, ...] = (),
) -> KafkaService:
    """A service that is a child of this process; not started."""
    folder = folder.absolute()
    command = jvm.service_command(
        installation, main=main, folder=folder, arguments=arguments, jvm_options=jvm_options
    )
    spawn = partial(children.spawn, command, name=name, folder=folder, output=folder / "output.log")
    return KafkaService(name, folder=folder, files=files, spawn=spawn)
