"""The containers and networks of a process in a Docker engine, and a harness that creates some."""

from __future__ import annotations

from typing import Any

from linkflap.harness.machine import process_identity

HARNESS = """
import json, sys
from linkflap.harness.machine import cleanup
from linkflap.harness.runtimes import runtime
from tests.on_runtimes import Events, topology
from linkflap.harness.model.topology import ClusterSpec

with cleanup.temporary_folder() as folder:
    one = topology(ClusterSpec(name="A"))
    with runtime("docker")(one, folder=folder, recorder=Events()) as deployment:
        deployment.clusters["A"].brokers[1].pause()
        print(json.dumps(str(folder)), flush=True)
        sys.stdin.readline()
"""


def of(engine: Any, owner: process_identity.Identity) -> list[str]:
    """The containers and networks that one process created."""
    from linkflap.harness.machine import engine_leftovers

    mine = {"label": f"{engine_leftovers.OWNER}={engine_leftovers.owner_label(owner)}"}
    containers = engine.containers.list(all=True, filters=mine, ignore_removed=True)
    return [thing.name for thing in (*containers, *engine.networks.list(filters=mine))]


def volumes(engine: Any) -> set[str]:
    """All of them except those of tests that run at the same time."""
    return {
        volume.name
        for volume in engine.volumes.list()
        if not volume.name.startswith("not-linkflaps")
    }
