"""Runtimes: what brokers run in. Nothing above this package can tell one runtime from another.

A runtime is one module with `deploy(topology, *, folder, recorder, wire) -> Deployment` and
`check(topology)`, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol, cast

from linkflap.harness.machine import docker_package
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.protocols import Deployment, Recorder, WireRecording
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import Topology

# Modules by name, imported when used: the docker runtime's packages are slow to import and not
# needed by the other.
RUNTIMES: Final = {
    "process": "linkflap.harness.runtimes.process",
    "docker": "linkflap.harness.runtimes.docker.deployment",
}
DEFAULT: Final = "process"
"""The default runtime, even where a Docker engine runs."""
ATTACHED: Final = "attached"
"""The runtime of topologies whose clusters run already, which no other one starts."""


class Deploy(Protocol):
    def __call__(
        self,
        topology: Topology,
        *,
        folder: Path,
        recorder: Recorder,
        wire: WireRecording | None = None,
    ) -> Deployment: ...


def usual(topology: Topology, *asked: str | None) -> str:
    """The first that is asked for, else the default one; of clusters that run already always
    theirs."""
    return ATTACHED if topology.attached else next(filter(None, asked), DEFAULT)


def runtime(name: str) -> Deploy:
    """The `deploy` function of the runtime called `name`. Raises InputError when there is none."""
    return cast(Deploy, _module(name).deploy)


def check(name: str, topology: Topology) -> None:
    """Raises InputError when there is no such runtime, or when it could not run this topology on
    any machine.

    Nothing is fetched or started.
    """
    module = _module(name)
    if topology.attached != (name == ATTACHED):
        raise InputError(
            f"the clusters of this topology run already, and runtime {name} would start others; "
            "play it with linkflap run, without --runtime"
            if topology.attached
            else f"runtime {name} is that of clusters that run already; give their addresses, "
            "like A@bootstrap:one:9092->B@bootstrap:two:9092"
        )
    module.check(topology)


def _module(name: str) -> ModuleType:
    if name == ATTACHED:
        return import_module("linkflap.harness.runtimes.attached")
    if name not in RUNTIMES:
        raise InputError(
            f"there is no runtime {name!r}{nearest(name, RUNTIMES)}; known: {', '.join(RUNTIMES)}"
        )
    if name == "docker":
        docker_package.check()
    with docker_package.importable():
        return import_module(RUNTIMES[name])
