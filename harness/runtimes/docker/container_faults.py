"""The faults that only a broker in a container can have: taken from its network, cut from its
peers, limited in memory.

Each is measured where it takes effect: inside the container's network, and in its control group.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.protocols import MemoryUse
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.docker import engine
from linkflap.harness.runtimes.docker.images import python_image
from linkflap.harness.runtimes.docker.network import DeploymentNetwork

_INSIDE: Final = f"{python_image.CODE}/linkflap/harness/runtimes/docker/inside.py"
_FIRST_NUMBER: Final = 100
_UNLIMITED: Final = -1
_WITHIN: Final = 60


class ContainerConfinement:
    """`harness.model.protocols.Confines` of one container. `handle`: the engine's container, once
    it was made."""

    def __init__(
        self, name: str, network: DeploymentNetwork, address: str, handle: Callable[[], Any]
    ) -> None:
        self._name, self._network, self._address, self._handle = name, network, address, handle
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._blocks: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._lock = threading.Lock()

    @property
    def connected(self) -> bool:
        with engine.asked(f"report the networks of container {self._name}"):
            container = self._handle()
            container.reload()
            return self._network.name in container.attrs["NetworkSettings"]["Networks"]

    def disconnect(self) -> None:
        with engine.asked(f"disconnect container {self._name} from its network"):
            engine.client().networks.get(self._network.name).disconnect(self._handle())

    def reconnect(self) -> None:
        if not self.connected:
            with engine.asked(f"connect container {self._name} to its network"):
                network = engine.client().networks.get(self._network.name)
                network.connect(self._handle(), ipv4_address=self._address, aliases=[self._name])
            with self._lock:
                held = list(self._blocks.values())
            for number, addresses in held:  # the routes that its rules use went with the interface
                self._put(number, addresses)

    @property
    def blocks(self) -> Mapping[str, Sequence[str]]:
        with self._lock:
            return {owner: addresses for owner, (_, addresses) in self._blocks.items()}

    def block(self, owner: str, addresses: Sequence[str]) -> None:
        with self._lock:
            number, _ = self._blocks.get(owner) or (next(self._numbers), ())
            self._blocks[owner] = (number, tuple(addresses))
        self._put(number, addresses)

    def _put(self, number: int, addresses: Sequence[str]) -> None:
        output, status = self._inside("block", str(number), *addresses)
        if status:
            raise EnvironmentFailure(
                f"the network of container {self._name} cannot be partitioned: {output}"
            )

    def unblock(self, owner: str) -> None:
        with self._lock:
            held = self._blocks.get(owner)
        if held is None:
            return
        if self._runs():  # otherwise its network is gone, with everything in it
            output, status = self._inside("unblock", str(held[0]))
            if status:
                raise EnvironmentFailure(
                    f"the partition of container {self._name} cannot be ended: {output}"
                )
        with self._lock:
            self._blocks.pop(owner, None)

    def _runs(self) -> bool:
        with engine.asked(f"report the state of container {self._name}"):
            container = self._handle()
            container.reload()
        return bool(container.attrs["State"]["Running"])

    def round_trip(self, address: str, *, within: float) -> float | None:
        if not self._runs():
            return None
        output, status = self._inside("ask", address, str(within), probe.first_words(address).hex())
        return None if status or output == "silence" else float(output)

    def _inside(self, *words: str) -> tuple[str, int]:
        """Runs a linkflap program in the container's network. Returns its output and status."""
        container = self._handle()
        with engine.asked(f"look into the network of container {self._name}"):
            helper = engine.client().containers.create(
                python_image.ready(),
                [python_image.PYTHON, "-S", _INSIDE, *words],
                network_mode=f"container:{container.id}",
                cap_add=["NET_ADMIN"],
                volumes={
                    str(here): {"bind": there, "mode": "ro"}
                    for here, there in python_image.code().items()
                },
                labels=self._network.labels,
            )
            try:
                helper.start()
                status = int(helper.wait(timeout=_WITHIN)["StatusCode"])
                return helper.logs().decode(errors="replace").strip(), status
            finally:
                helper.remove(force=True, v=True)

    def limit_memory(self, size: int | None) -> None:
        with engine.asked(f"change the memory limit of container {self._name}"):
            # An engine cannot remove a limit, so it is set to all of the memory.
            limit = _everything() if size is None else size
            self._handle().update(
                mem_limit=limit, memswap_limit=_UNLIMITED if size is None else size
            )

    def memory(self) -> MemoryUse:
        with engine.asked(f"report the memory of container {self._name}"):
            container = self._handle()
            container.reload()
            state, limit = container.attrs["State"], int(container.attrs["HostConfig"]["Memory"])
            used = 0
            if state["Running"]:
                statistics = container.stats(stream=False)["memory_stats"]
                detail = statistics.get("stats", {})
                used = int(detail.get("anon", detail.get("total_rss", statistics.get("usage", 0))))
        hits = _hits(int(state["Pid"]))
        return MemoryUse(
            used=used,
            limit=limit if 0 < limit < _everything() else None,
            hits=hits,
            killed=bool(state["OOMKilled"]),
        )


def _everything() -> int:
    """The memory of the engine's machine, in bytes."""
    return int(engine.client().info()["MemTotal"])


def _hits(pid: int) -> int | None:
    """How often the control group of a process has reached its limit; None if that is not
    visible."""
    try:
        groups = [
            line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        ]
        for _, controllers, path in groups:
            if "memory" in controllers.split(","):
                return int(Path(f"/sys/fs/cgroup/memory{path}/memory.failcnt").read_text())
        events = Path(f"/sys/fs/cgroup{groups[-1][2]}/memory.events").read_text()
    except (OSError, IndexError):
        return None
    return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("max "))
