"""The Docker engine: the only connection to it, the owners of its objects, and its errors as one
sentence.

Everything that linkflap creates there has labels: `linkflap.owner` names the harness process (pid
and start time, as in the ledger), `linkflap.deployment` the deployment. Cleanup selects by these
labels only, so it touches no other objects.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Final

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient, get_docker_host

from linkflap.harness.machine import cleanup, ledger
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
