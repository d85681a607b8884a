"""The Docker engine: the only connection to it, the owners of its objects, and its errors as one
sentence.

Everything that linkflap creates there has labels: `linkflap.owner` names the harness process (pid
and start time, as in the ledger), `linkflap.deployment` the deployment. Cleanup selects by these
labels only, so it touches no other objects.

The network of a deployment's containers has fixed addresses. The engine gives a fixed address only
in a subnet that the caller chose, and chooses a free subnet only if it chooses the addresses too.
So linkflap first lets it choose, and then creates the network again with the chosen subnet.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from typing import Final

import docker
from docker.errors import APIError, DockerException
from docker.types import IPAMConfig, IPAMPool
from requests.exceptions import RequestException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient, get_docker_host
from testcontainers.core.network import Network

from linkflap.harness.machine import cleanup, engine_leftovers, ledger
from linkflap.harness.machine.docker_package import USUAL, not_near, reason, require_listening
from linkflap.harness.machine.engine_leftovers import OWNER, owner_label
from linkflap.harness.model.errors import EnvironmentFailure, LinkflapError, SetupError

ANSWERS_WITHIN: Final = 120
_FIX: Final = "see that it runs and has room: docker info"
DEPLOYMENT: Final = "linkflap.deployment"

_clients: dict[int, docker.DockerClient] = {}
_lock = threading.Lock()


def _prepare_testcontainers() -> None:
    """Disables the reaper unless requested: it needs another image, and linkflap's watchdog removes
    the leftovers of a dead harness."""
    if "TESTCONTAINERS_RYUK_DISABLED" not in os.environ:
        testcontainers_config.ryuk_disabled = True
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("testcontainers"):
            logging.getLogger(name).setLevel(logging.WARNING)


def client() -> docker.DockerClient:
    """This process' client, once the engine has answered. Raises SetupError."""
    with _lock:
        if os.getpid() not in _clients:
            _prepare_testcontainers()
            _check_near(get_docker_host() or USUAL)
            try:
                require_listening(get_docker_host() or USUAL)
                made = DockerClient(timeout=ANSWERS_WITHIN).client
                made.ping()
            except (DockerException, RequestException, OSError) as error:
                raise SetupError(
                    f"no Docker engine answers ({reason(error)}); start it, let this user talk to "
                    "it, or set DOCKER_HOST; --runtime process needs none"
                ) from error
            _clients[os.getpid()] = made
        return _clients[os.getpid()]


def _check_near(host: str) -> None:
    """Raises SetupError for an engine on another machine, which does not have the folders for the
    brokers' logs."""
    if why := not_near(host):
        raise SetupError(f"{why}; unset DOCKER_HOST, or take --runtime process")


@contextlib.contextmanager
def claimed(deployment: str) -> Iterator[dict[str, str]]:
    """`claim` for the duration of a block that leaves nothing behind."""
    try:
        yield claim(deployment)
    finally:
        release()


def claim(deployment: str) -> dict[str, str]:
    """The labels of all objects of one deployment. Until `release`, the watchdog removes such
    objects when this process dies."""
    cleanup.start_watchdog()
    ledger.add_engine(get_docker_host() or "")
    return {OWNER: owner_label(ledger.own().owner), DEPLOYMENT: deployment}


def release() -> None:
    """Ends a claim, once nothing of the deployment is left."""
    ledger.remove_engine(get_docker_host() or "")


@contextlib.contextmanager
def asked(
    what: str, *, kind: type[LinkflapError] = EnvironmentFailure, fix: str = _FIX
) -> Iterator[None]:
    """Turns errors of the engine, or of the connection to it, into one sentence; `what` completes
    "could not …"."""
    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise kind(f"the Docker engine could not {what} ({reason(error)}); {fix}") from error


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
        with asked("remove the run's containers", fix=engine_leftovers.FIX):
            swept = engine_leftovers.sweep(client(), f"{DEPLOYMENT}={self.id}")
        if swept.left:
            raise EnvironmentFailure("; ".join(swept.left))
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            release()


def create_network() -> DeploymentNetwork:
    """A new network. Raises SetupError when the engine does not answer or has no subnet left."""
    engine = client()
    id = f"linkflap-{os.getpid()}-{secrets.token_hex(3)}"
    labels = claim(id)
    try:
        with asked("create a network", kind=SetupError):
            rootless = any(
                "rootless" in option for option in engine.info().get("SecurityOptions") or ()
            )
            user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
            for _ in range(_ATTEMPTS):
                network = _network(engine, id, labels)
                if network is not None:
                    return DeploymentNetwork(network, id, labels, user)
        raise SetupError(
            "the Docker engine found no free subnet; remove unused networks (docker network prune),"
            " then run again"
        )
    except BaseException:
        release()
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
