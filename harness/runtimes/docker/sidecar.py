"""A container for one of linkflap's own programs: the shadow mirror, on the same network as the
brokers that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.runtimes.docker.container import Container, ContainerRun
from linkflap.harness.runtimes.docker.images import python_image
from linkflap.harness.runtimes.docker.network import DeploymentNetwork

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
    ) -> None:
        self.address = network.take_address()
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
