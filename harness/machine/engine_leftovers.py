"""Removes a harness's containers, networks and volumes from a Docker engine. Imports the docker
package only if there is something to look for.

If something cannot be removed, it is reported by name with a fix, and everything else is still
removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from linkflap.harness.machine import docker_package
from linkflap.harness.machine.docker_package import (
    host,
    not_near,
    reason,
    require_listening,
    seconds,
)
from linkflap.harness.machine.process_identity import Identity, alive, elsewhere
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.threads import side_by_side
from linkflap.harness.model.wait import until

if TYPE_CHECKING:
    import docker

OWNER: Final = "linkflap.owner"
FIX: Final = "containers may run on there: when it answers again, remove them with `linkflap clean`"
_QUIET_SECONDS: Final = 2.0
_DAY: Final = 24 * 3600.0
"""Seconds. No run is that long."""


class StillThere(EnvironmentFailure):
    """Some objects of a dead owner could not be removed; one sentence for each."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = tuple(sentences)


def owner_label(owner: Identity) -> str:
    """One process, never mistaken for a later one with the same pid."""
    return f"{owner.pid}@{owner.born}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Names of the removed objects; a sentence for each thing that is still there."""

    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def remove(engine: str, owner: Identity) -> Iterator[str]:
    """Removes all containers, networks and volumes of a dead owner, and yields their names.

    Raises StillThere, after removing the rest, when something cannot be removed or no engine
    answers. A request that was under way when the owner died may still create an object, so the
    search continues until nothing has appeared for two seconds.
    """
    if docker_package.lacking():
        raise StillThere([f"nobody can ask the Docker engine here ({docker_package.FIX}); {FIX}"])
    with docker_package.importable():
        import docker
        from docker.errors import DockerException
    from requests.exceptions import RequestException

    label = f"{OWNER}={owner_label(owner)}"
    try:
        client = (
            docker.DockerClient(base_url=engine, timeout=60)
            if engine
            else docker.from_env(timeout=60)
        )
        try:
            swept = sweep(client, label)
            while swept.removed:
                yield from (f"{name} of dead harness {owner.pid}" for name in swept.removed)
                swept = _sweep_late(client, label)
        finally:
            client.close()
    except (DockerException, RequestException, OSError) as error:
        raise StillThere([f"the Docker engine does not answer ({reason(error)}); {FIX}"]) from error
    if swept.left:
        raise StillThere(swept.left)


def unclaimed() -> Removed:
    """Removes, by label, owner and age, objects that no ledger here lists: the ledger was lost with
    /tmp, or was another. It removes everything of dead owners, and objects older than a day whose
    owner cannot be checked from here (another pid namespace). If no engine of this machine answers,
    there is nothing to do.
    """
    if not_near(host()) or docker_package.lacking():
        return Removed()
    with docker_package.importable():
        import docker
        from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        require_listening(host())
        client = docker.DockerClient(base_url=host(), timeout=60)  # which asks the engine at once
    except (DockerException, RequestException, OSError):
        return Removed()
    swept = Removed()
    try:
        for label in sorted(_stale(client)):
            found = sweep(client, f"{OWNER}={label}")
            swept.removed.extend(found.removed)
            swept.left.extend(found.left)
    except (DockerException, RequestException, OSError) as error:
        swept.left.append(f"the Docker engine does not answer any more ({reason(error)}); {FIX}")
    finally:
        client.close()
    return swept


def _stale(client: docker.DockerClient) -> set[str]:
    mine = {"label": OWNER}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    made = [(it.labels[OWNER], it.attrs["Created"]) for it in containers]
    made += [
        (it.attrs["Labels"][OWNER], it.attrs["Created"])
        for it in client.networks.list(filters=mine)
    ]
    return {label for label, created in made if _is_stale(label, time.time() - seconds(created))}


def _is_stale(label: str, age: float) -> bool:
    pid, _, born = label.partition("@")
    owner = Identity(pid=int(pid), born=born)
    return age > _DAY if elsewhere(owner) else not alive(owner)


def _sweep_late(client: docker.DockerClient, label: str) -> Removed:
    """Removes objects that appear within the next two seconds."""
    last = Removed()

    def look() -> bool:
        nonlocal last
        last = sweep(client, label)
        return bool(last.removed)

    try:
        until(look, within=_QUIET_SECONDS, what="something late", every=0.5)
    except DeadlineExceeded:
        return last
    return last


def sweep(client: docker.DockerClient, label: str) -> Removed:
    """Removes the containers and networks that have this label now. Raises what the docker package
    does when it cannot look."""
    mine, swept = {"label": label}, Removed()
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    side_by_side(
        _removal(swept, f"container {it.name}", _by_force(it), lambda: "") for it in containers
    )
    for network in client.networks.list(filters=mine):
        _removal(
            swept,
            f"network {network.name}",
            network.remove,
            _guests(network, {it.id for it in containers}),
        )()
    return swept


# The docker package has no types.
def _by_force(container: Any) -> Callable[[], None]:  # noqa: ANN401
    return lambda: container.remove(force=True, v=True)


def _removal(
    swept: Removed, name: str, remove: Callable[[], object], why: Callable[[], str]
) -> Callable[[], None]:
    """`why` returns the reason of the engine's error in words, empty if unknown."""
    with docker_package.importable():
        from docker.errors import APIError, NotFound

    def removal() -> None:
        try:
            remove()
            swept.removed.append(name)
        except NotFound:
            return
        except APIError as error:
            failed = f"could not be removed ({reason(error)}); see to it, then: linkflap clean"
            swept.left.append(f"{name} {why() or failed}")

    return removal


def _guests(network: Any, ours: set[str]) -> Callable[[], str]:  # noqa: ANN401 - the docker package has no types
    def why() -> str:
        with docker_package.importable():
            from docker.errors import APIError

        try:
            network.reload()
        except APIError:
            return ""
        there = network.attrs.get("Containers") or {}
        guests = ", ".join(
            sorted(about.get("Name", id) for id, about in there.items() if id not in ours)
        )
        return (
            f"still has container {guests}, which is not linkflap's; disconnect it, then: linkflap "
            "clean"
            if guests
            else ""
        )

    return why
