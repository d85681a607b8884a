"""Released images. Whether a registry is reachable is tested once, quickly; an unreachable one is
no error by itself."""

from __future__ import annotations

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException
from testcontainers.core.docker_client import get_docker_host

from linkflap.harness.machine import cache
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker import engine
from linkflap.harness.runtimes.docker.images import builds

_ANSWERS_WITHIN = 20
_unreachable: set[str] = set()


def fetched(name: str) -> bool:
    """Whether the engine has the image, or could pull it now. Raises SetupError when the engine
    does not answer."""
    if builds.identity(name):
        return True
    host = name.partition("/")[0]
    if host in _unreachable or not _offered(name):
        _unreachable.add(host)
        return False
    cache.LOG.info("first use: pulling %s", name)
    pull(name, fix="pull it by hand (docker pull), or see that its registry can be reached")
    return True


def pull(name: str, *, fix: str) -> None:
    """Raises SetupError with the reason and how to fix it."""
    with engine.asked(f"pull {name}", kind=SetupError, fix=fix):
        engine.client().images.pull(name)


def _offered(name: str) -> bool:
    """Whether the registry has it, with a short timeout: a network that drops packets must not cost
    minutes."""
    engine.client()
    quick = (
        docker.DockerClient(base_url=get_docker_host(), timeout=_ANSWERS_WITHIN)
        if get_docker_host()
        else None
    )
    client = quick or docker.from_env(timeout=_ANSWERS_WITHIN)
    try:
        client.api.inspect_distribution(name)
    except (DockerException, RequestException, OSError):
        return False
    finally:
        client.close()
    return True
