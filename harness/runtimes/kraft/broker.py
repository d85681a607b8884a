"""One broker: KRaft combined mode, on a log directory that outlives every restart."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from harness.model.errors import DeadlineExceeded, SetupError
from harness.model.protocols import BrokerState
from harness.model.wait import until
from harness.runtimes.kraft import readiness
from harness.runtimes.kraft.running import Running, Spawn

UP_WITHIN: Final = 120.0
STOP_WITHIN: Final = 60.0


class KraftBroker:
    """`harness.model.protocols.Broker`. Not started when made; `folder` holds its data, configuration and logs."""

    def __init__(self, cluster: str, node: int, *, folder: Path, spawn: Spawn, client_address: str) -> None:
        self._cluster = cluster
        self._id = node
        self._folder = folder
        self._spawn = spawn
        self._client_address = client_address
        self._child: Running | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        """As faults name it: `A/1`."""
        return f"{self._cluster}/{self._id}"

    @property
    def cluster(self) -> str:
        return self._cluster

    @property
    def id(self) -> int:
        return self._id

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.alive else None

    @property
    def state(self) -> BrokerState:
        if self._child is None or not self._child.alive:
            return "stopped"
        return "paused" if self._child.paused else "running"

    @property
    def client_address(self) -> str:
        return self._client_address

    @property
    def log_dir(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> Path:
        return self._folder / "server.log"

    @property
    def output(self) -> Path:
        """What the JVM printed beside its log: its last words when it could not even start."""
        return self._folder / "output.log"

    def start(self) -> None:
        """Starts it and waits until it serves. SetupError with its last words when it dies or does not serve in time."""
        self.launch()
        self.await_up()

    def launch(self) -> None:
        """Starts the process only; nothing when it runs already."""
        with self._starting:
            if self.state != "stopped":
                return
            if self._closed:
                raise SetupError(f"broker {self.name} cannot be started: its deployment is closed")
            self.log.touch()
            self._child = self._spawn()

    def await_up(self, *, within: float = UP_WITHIN) -> None:
        """Waits until it answers a metadata request that names itself: it is registered and unfenced."""
        try:
            until(self._up, within=within, what=f"broker {self.name} to answer", every=0.01)
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; {self._last_words()}") from error

    def _up(self) -> bool:
        if self.state == "stopped":
            status = self._child.poll() if self._child is not None else None
            raise SetupError(f"broker {self.name} ended with status {status} while starting; {self._last_words()}")
        return self._id in readiness.seen_brokers(self._client_address)

    def _last_words(self) -> str:
        lines = [line for path in (self.output, self.log) for line in _tail(path)]
        return f"see {self._folder}, whose logs end with: {' | '.join(lines)}" if lines else f"it left no word in {self._folder}"

    def stop(self, *, within: float = STOP_WITHIN) -> None:
        """SIGTERM, and waits; DeadlineExceeded when it does not end in time."""
        if self._child is not None:
            self._child.stop(within=within)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """As `kill`, and it cannot be started again: nothing of a closed deployment may come up behind its back."""
        self._closed = True
        with self._starting:
            self.kill()

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()


def _tail(path: Path, *, lines: int = 4) -> list[str]:
    """The last lines that say something: a stack trace's frames are not among them."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 32768))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")][-lines:]
