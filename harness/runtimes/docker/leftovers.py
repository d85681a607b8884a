"""Removes what a dead harness left in a Docker engine. Imports the docker package only when there is something to look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from harness.model.wait import until
from harness.runtimes.ledger import Identity

if TYPE_CHECKING:
    import docker

OWNER: Final = "linkflap.owner"
_QUIET_SECONDS: Final = 2.0


def owner_label(owner: Identity) -> str:
    """One process, never mistaken for a later one with the same pid."""
    return f"{owner.pid}@{owner.born}"


def remove(engine: str, owner: Identity) -> Iterator[str]:
    """Removes all containers, networks and volumes of a dead owner, and says which. Raises OSError when no engine answers.

    A request that was under way when the owner died may still make something: so it is looked for until nothing has come up for
    two seconds.
    """
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        client = docker.DockerClient(base_url=engine, timeout=60) if engine else docker.from_env(timeout=60)
        try:
            names = _remove(client, owner)
            while names:
                yield from (f"{name} of dead harness {owner.pid}" for name in names)
                names = _remove_late(client, owner)
        finally:
            client.close()
    except (DockerException, RequestException) as error:
        raise OSError(f"the Docker engine does not answer: {error}") from error


def _remove_late(client: docker.DockerClient, owner: Identity) -> list[str]:
    """What came up within the next two seconds, if anything."""
    found: list[str] = []

    def look() -> bool:
        found.extend(_remove(client, owner))
        return bool(found)

    from harness.model.errors import DeadlineExceeded

    try:
        until(look, within=_QUIET_SECONDS, what="something late", every=0.5)
    except DeadlineExceeded:
        return []
    return found


def _remove(client: docker.DockerClient, owner: Identity) -> list[str]:
    """Removes what is there now, and returns what it was."""
    from docker.errors import NotFound

    mine = {"label": f"{OWNER}={owner_label(owner)}"}
    removed = []
    for container in client.containers.list(all=True, filters=mine, ignore_removed=True):
        try:
            container.remove(force=True, v=True)
            removed.append(f"container {container.name}")
        except NotFound:
            continue
    for network in client.networks.list(filters=mine):
        try:
            network.remove()
            removed.append(f"network {network.name}")
        except NotFound:
            continue
    return removed
