"""One container as a `Running` (`harness.model.protocols`): created at its first start, and kept
until it is closed.

It runs as the harness's user, on folders that have the same path inside and outside. So files refer
to each other by the same paths on both sides, and the output of a dead container can be read. It
has a fixed address, and keeps it when it is started again.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from docker.errors import APIError, NotFound
from docker.types import EndpointConfig, LogConfig
from testcontainers.core.container import DockerContainer

from linkflap.harness.machine import docker_package, ledger, process_identity
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
from linkflap.harness.model.protocols import MemoryUse
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.docker import engine
from linkflap.harness.runtimes.docker.engine import DeploymentNetwork
from linkflap.harness.runtimes.docker.images import python_image

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


_API_VERSION: Final = "1.41"
_WORDS: Final = 200
# waiting loops ask every few milliseconds, and each answer costs the engine about three
_FRESH: Final = 0.1
_LOG: Final = LogConfig(type="json-file", config={"max-size": "10m", "max-file": "2"})


class Container:
    """A container that starts later. `spawn` starts it (`harness.model.protocols.Spawn`). Its
    output goes to `output` when it ends. `published`: ports with the same number inside and on this
    machine's loopback. `folders`: absolute paths -> whether writable. `elsewhere`: read-only
    folders, under another path."""

    def __init__(
        self,
        name: str,
        network: DeploymentNetwork,
        *,
        image: str,
        command: Sequence[str],
        address: str,
        output: Path,
        folders: Mapping[Path, bool],
        published: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        elsewhere: Mapping[Path, str] | None = None,
    ) -> None:
        self.name, self._network, self._output, self._address = name, network, output, address
        self._made = False
        self._container = DockerContainer(
            image, command=None, env=dict(environment or {}), name=f"{network.id}-{name}"
        ).with_kwargs(
            network=network.name,
            networking_config={
                network.name: EndpointConfig(_API_VERSION, ipv4_address=address, aliases=[name])
            },
            entrypoint=[command[0]],  # whatever the image's own is
            hostname=name,
            labels=network.labels,
            user=network.user,
            working_dir=str(output.parent),
            log_config=_LOG,
        )
        self._container.with_command(list(command[1:]))
        # the package's own with_bind_ports takes no address of the host
        ports = cast("dict[str, Any]", self._container.ports)
        ports.update({f"{port}/tcp": ("127.0.0.1", port) for port in published})
        for folder, writable in folders.items():
            self._container.with_volume_mapping(
                str(folder), str(folder), "rw" if writable else "ro"
            )
        for folder, inside in (elsewhere or {}).items():
            self._container.with_volume_mapping(str(folder), inside, "ro")

    @property
    def confines(self) -> ContainerConfinement:
        """The faults of a container. Available once it was started."""
        return ContainerConfinement(
            self.name, self._network, self._address, self._container.get_wrapped_container
        )

    def run(self, words: Sequence[str]) -> int:
        """The exit status of a command beside the program, to whose output its own is added. Raises
        EnvironmentFailure."""
        with engine.asked(f"run {words[0]} in container {self.name}"):
            ran = self._container.get_wrapped_container().exec_run(
                list(words), user=self._network.user, workdir=str(self._output.parent)
            )
        with self._output.open("ab") as file:
            file.write(ran.output)
        return int(ran.exit_code)

    def spawn(self) -> ContainerRun:
        """Raises SetupError with the engine's reason when it cannot be started."""
        with engine.asked(f"start container {self.name}", kind=SetupError):
            if self._made:
                wrapped = self._container.get_wrapped_container()
                wrapped.start()
            else:
                self._output.parent.mkdir(parents=True, exist_ok=True)
                self._container.start()
                self._made = True
        return ContainerRun(self._container.get_wrapped_container(), self.name, self._output)


class ContainerRun:
    """One start of a container. See `harness.model.protocols.Running`."""

    def __init__(self, container: Any, name: str, output: Path) -> None:  # noqa: ANN401 - the docker package has no types
        self.name = name
        self._container, self._output = container, output
        self._status: int | None = None
        self._lock = threading.Lock()
        state = self._known = self._inspect()
        self._asked = time.monotonic()
        self._began = str(state["StartedAt"])
        self._process = _on_this_machine(int(state["Pid"]), str(container.id))
        if self._process is not None:
            ledger.add_contained(self._process)

    def _inspect(self) -> dict[str, Any]:
        with engine.asked(f"report the state of container {self.name}"):
            try:
                self._container.reload()
            except NotFound:
                return {
                    "Running": False,
                    "ExitCode": 137,
                    "StartedAt": "",
                    "Paused": False,
                    "Pid": 0,
                }
        state: dict[str, Any] = self._container.attrs["State"]
        return state

    def _state(self, *, newer_than: float = _FRESH) -> dict[str, Any]:
        """The engine's report of the state, at most this many seconds old. Notes the end of the
        container."""
        with self._lock:
            if self._status is not None:
                return {"Running": False, "Paused": False, "Pid": 0}
            now = time.monotonic()
            if now - self._asked < newer_than:
                return self._known
            state = self._known = self._inspect()
            self._asked = now
            if not state["Running"]:
                code = int(state["ExitCode"])
                self._keep_words()
                if self._process is not None:
                    ledger.remove_contained(self._process)
                # in the form of a child process
                self._status = 128 - code if code > 128 else code
            return state

    def _keep_words(self) -> None:
        """Saves the output since this start, because it is lost when the container is removed."""
        with (
            contextlib.suppress(EnvironmentFailure, OSError),
            engine.asked(f"return the output of container {self.name}"),
        ):
            words = self._container.logs(since=docker_package.seconds(self._began), tail=_WORDS)
            with self._output.open("ab") as file:
                file.write(words)

    @property
    def pid(self) -> int:
        return int(self._state()["Pid"])

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        self._state()
        return self._status

    @property
    def alive(self) -> bool:
        return self.poll() is None

    @property
    def paused(self) -> bool:
        return bool(self._state()["Paused"])

    def pause(self) -> None:
        """Freezes every process in it. Returns when they are frozen."""
        state = self._state(newer_than=0)
        if state["Running"] and not state["Paused"]:
            with engine.asked(f"pause container {self.name}"):
                self._container.pause()
            self._state(newer_than=0)

    def resume(self) -> None:
        if self._state(newer_than=0)["Paused"]:
            with engine.asked(f"resume container {self.name}"):
                self._container.unpause()
            self._state(newer_than=0)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        self.signal(signal.SIGKILL)
        self._gone(within=60, what="die")

    def stop(self, *, within: float) -> None:
        """SIGTERM, also to a paused one; returns when it has ended. Raises DeadlineExceeded after
        `within` seconds, and it keeps running."""
        self.signal(signal.SIGTERM)
        self._gone(within=within, what="end after SIGTERM")

    def signal(self, number: int) -> None:
        """Sends a signal, unless it has ended. The engine thaws a paused container once the signal
        is pending."""
        name = signal.Signals(number).name
        if self._state(newer_than=0)["Running"]:
            with engine.asked(f"send {name} to container {self.name}"):
                try:
                    self._container.kill(name)
                except (NotFound, APIError):
                    if self._state(newer_than=0)["Running"]:
                        raise

    def _gone(self, *, within: float, what: str) -> None:
        until(
            lambda: not self._state(newer_than=0)["Running"],
            within=within,
            what=f"container {self.name} to {what}",
            every=0.02,
        )


def _on_this_machine(pid: int, container: str) -> process_identity.Identity | None:
    """The pid of the container's process if the engine runs on this machine; in a virtual machine,
    the pid belongs to that."""
    try:
        ours = container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return process_identity.identify(pid) if ours else None
