"""Whether a run that names no runtime takes docker: an engine of this machine answers at once, and it has the images."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from harness.model.errors import EnvironmentFailure
from harness.model.topology import Topology

_AT_ONCE: Final = 2.0
_USUAL: Final = "unix:///var/run/docker.sock"
_UNIX: Final = "unix://"


def reason_against(topology: Topology) -> str | None:
    """None when docker is to be taken, else a few words why not. Raises InputError for a Kafka that there is not."""
    host = os.environ.get("DOCKER_HOST") or _USUAL
    if not host.startswith(_UNIX):
        return f"the Docker engine is another machine's ({host})"
    if not _answers(Path(host.removeprefix(_UNIX))):
        return "no Docker engine answers"
    from harness.runtimes.docker import image  # slow to import, and not needed where no engine is

    for asked in dict.fromkeys(cluster.kafka for cluster in topology.clusters):
        try:
            if image.there(asked) is None:
                return f"the Docker engine has no image of Kafka {asked} (linkflap images build)"
        except EnvironmentFailure as error:
            return str(error)
    return None


def _answers(path: Path) -> bool:
    """Whether an engine listens there: asked here, because clients wait for minutes."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(_AT_ONCE)
        try:
            door.connect(str(path))
            door.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b" 200 " in door.recv(64)
        except OSError:
            return False
