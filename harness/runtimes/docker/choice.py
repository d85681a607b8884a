"""Whether a run that names no runtime takes docker: an engine of this machine answers at once, and it has the images."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from linkflap.harness.machine import engine_address
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import Topology

_AT_ONCE: Final = 2.0
_PORT: Final = 2375


def reason_against(topology: Topology) -> str | None:
    """None when docker is to be taken, else a few words why not. Raises InputError for a Kafka that there is not."""
    host = engine_address.host()
    if why := engine_address.not_near(host):
        return why
    if not _answers(host):
        return "no Docker engine answers"
    from linkflap.harness.runtimes.docker.images import (  # slow to import, and not needed where no engine is
        inventory,
        kafka_image,
    )

    try:
        for asked in dict.fromkeys(cluster.kafka for cluster in topology.clusters):
            if kafka_image.there(asked) is None:
                return f"the Docker engine has no image of Kafka {asked} (linkflap images build)"
            if why := inventory.reason_against(asked):
                return why
        for what, name in inventory.besides().items():
            if name is None:
                return f"the Docker engine has no image of {what} (linkflap images build)"
    except EnvironmentFailure as error:
        return str(error)
    return None


def _answers(host: str) -> bool:
    """Whether an engine listens there: asked here, because clients wait for minutes."""
    try:
        with _opened(host) as door_to_it:
            door_to_it.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b" 200 " in door_to_it.recv(64)
    except OSError:
        return False


@contextlib.contextmanager
def _opened(host: str) -> Iterator[socket.socket]:
    if not host.startswith(engine_address.UNIX):
        address = urlsplit(host)
        with socket.create_connection((address.hostname or "", address.port or _PORT), timeout=_AT_ONCE) as opened:
            yield opened
        return
    with socket.socket(socket.AF_UNIX) as opened:
        opened.settimeout(_AT_ONCE)
        opened.connect(host.removeprefix(engine_address.UNIX))
        yield opened
