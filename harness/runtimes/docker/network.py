"""The network of one deployment's containers, with fixed addresses, and their labels.

The engine gives a fixed address only in a subnet that the caller chose, and chooses a free subnet
only if it chooses the addresses too. So linkflap first lets it choose, and then creates the network
again with the chosen subnet.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import threading
from collections.abc import Iterator
from typing import Final

import docker
from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool
from testcontainers.core.network import Network

from linkflap.harness.machine import engine_leftovers
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.runtimes.docker import engine

_ATTEMPTS: Final = 20


class DeploymentNetwork:
    """Made by `create_network`. Thread-safe."""

    def __init__(self, network: Network, id: str, labels: dict[str, str], user: str) -> None:
        config = network._unwrap_network.attrs["IPAM"]["Config"][0]
        self.id, self.labels, self.user = id, labels, user
        self.name: str = network.name
        self.gateway: str = config["Gateway"].partition("/")[0]
        self._network = network
        hosts = (str(host) for host in ipaddress.ip_network(config["Subnet"]).hosts())
        self._free: Iterator[str] = (host for host in hosts if host != self.gateway)
        self._lock = threading.Lock()
        self._closed = False

    def take_address(self) -> str:
        """A free address of the network. Raises SetupError when there is none."""
        with self._lock:
            found = next(self._free, None)
        if found is None:
            raise SetupError(
                f"network {self.name} has no address left; give the engine larger "
                "default-address-pools"
            )
        return found

    def close(self) -> None:
        """Removes every container and the network. Safe to call twice. Raises EnvironmentFailure
        after removing as much as possible; the rest stays in the ledger as this process' own."""
        with engine.asked("remove the run's containers", fix=engine_leftovers.FIX):
            swept = engine_leftovers.sweep(engine.client(), f"{engine.DEPLOYMENT}={self.id}")
        if swept.left:
            raise EnvironmentFailure("; ".join(swept.left))
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            engine.release()


def create_network() -> DeploymentNetwork:
    """A new network. Raises SetupError when the engine does not answer or has no subnet left."""
    client = engine.client()
    id = f"linkflap-{os.getpid()}-{secrets.token_hex(3)}"
    labels = engine.claim(id)
    try:
        with engine.asked("create a network", kind=SetupError):
            rootless = any(
                "rootless" in option for option in client.info().get("SecurityOptions") or ()
            )
            user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
            for _ in range(_ATTEMPTS):
                network = _network(client, id, labels)
                if network is not None:
                    return DeploymentNetwork(network, id, labels, user)
        raise SetupError(
            "the Docker engine found no free subnet; remove unused networks (docker network prune),"
            " then run again"
        )
    except BaseException:
        engine.release()
        raise


def _network(client: docker.DockerClient, id: str, labels: dict[str, str]) -> Network | None:
    """None when another program took the subnet meanwhile."""
    try:
        draft = client.networks.create(f"{id}-draft", labels=labels)
    except APIError as error:
        if "non-overlapping" in str(error):
            raise SetupError(
                "the Docker engine has no subnet left; remove unused networks (docker network "
                "prune) or give it larger default-address-pools"
            ) from error
        raise
    draft.reload()
    subnet = draft.attrs["IPAM"]["Config"][0]["Subnet"]
    draft.remove()
    pool = IPAMPool(subnet=subnet, gateway=str(next(ipaddress.ip_network(subnet).hosts())))
    network = Network(docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool]), "labels": labels})
    network.name = id
    try:
        network.create()
    except APIError as error:
        if "overlaps" in str(error):
            return None
        raise
    network._unwrap_network.reload()
    return network
