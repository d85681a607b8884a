"""One broker: KRaft combined mode, on a log directory that survives every restart; and other JVMs
besides the brokers, for instance a MirrorMaker worker, each with its own folder."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.protocols import BrokerState, Confines, Running, Spawn
from linkflap.harness.model.wait import until
from linkflap.harness.rundir.files import write_whole
from linkflap.harness.runtimes import probe
from linkflap.harness.runtimes.kraft.configuration import CLIENT, CONTROLLER, INTERNAL, BrokerPorts

STOP_WITHIN: Final = 60.0
_LONGEST_LINE: Final = 400


class ServiceProgram:
    """Not started when made. `folder` has its input and output files, `log` is its log file
    there."""

    def __init__(self, name: str, *, folder: Path, log: str, spawn: Spawn) -> None:
        self._name, self._folder, self._log, self._spawn = name, folder, log, spawn
        self._child: Running | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """The process id; None when it does not run."""
        return self._child.pid if self._child is not None and self._child.alive else None

    @property
    def log(self) -> Path:
        return self._folder / self._log

    @property
    def output(self) -> Path:
        """The JVM's output besides its log: its only messages if it could not start."""
        return self._folder / "output.log"

    def last_words(self, *, lines: int) -> list[str]:
        """The last lines of its output and of its log, this many of each at most, and the beginning
        of those that are longer than a sentence can be."""
        return [
            line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
            for path in dict.fromkeys((self.output, self.log))
            for line in _tail(path, lines=lines)
        ]

    def launch(self) -> None:
        """Starts it without waiting, unless it runs already. Raises SetupError once it is
        closed."""
        with self._starting:
            if self.alive:
                return
            if self._closed:
                raise SetupError(f"{self._name} cannot be started: its deployment is closed")
            self.log.touch()
            self._child = self._spawn()

    def run_by(self, spawn: Spawn) -> None:
        """Uses this to start it from the next start on."""
        with self._starting:
            self._spawn = spawn

    def stop(self, *, within: float = STOP_WITHIN) -> None:
        """SIGTERM, and waits. Raises DeadlineExceeded when it does not end in time."""
        if self._child is not None:
            self._child.stop(within=within)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """Like `kill`, and it cannot be started again: a closed deployment must not start
        anything."""
        self._closed = True
        with self._starting:
            self.kill()

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()


READY_WITHIN: Final = 60.0
END_WITHIN: Final = 10.0


class ClusterProgram(ServiceProgram):
    """A program of linkflap's own before the brokers of a cluster: module `module`, run in
    `folder`, which is made and has `settings` in a file of this name. It logs `ready` when it
    listens. Not started when made."""

    def __init__(
        self, name: str, module: str, *, folder: Path, settings: tuple[str, bytes], ready: str
    ) -> None:
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / settings[0], settings[1])
        command, environment = children.module(module, str(folder))
        log = f"{module.rpartition('.')[2]}.log"
        spawn = partial(
            children.spawn,
            command,
            name=name,
            folder=folder,
            output=folder / log,
            environment=environment,
        )
        super().__init__(name, folder=folder, log=log, spawn=spawn)
        self._says_ready = ready

    def start(self) -> None:
        """Returns when it listens. Raises SetupError."""
        self.launch()
        try:
            until(self._ready, within=READY_WITHIN, what=f"the {self._name} to listen")
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; see {self.log}") from error

    def _ready(self) -> bool:
        if not self.alive:
            raise SetupError(f"the {self._name} ended while starting; see {self.log}")
        return self._says_ready in self.log.read_text(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """A JVM besides the brokers: class `main` with `arguments`, run in `folder`, which holds
    `files` (name -> text). `jvm_options` replace the use of a class archive."""

    name: str
    main: str
    folder: Path
    files: Mapping[str, str]
    arguments: Sequence[str]
    jvm_options: Sequence[str] = ()


class KafkaService(ServiceProgram):
    """`harness.model.protocols.Service`. Not started when made."""

    def __init__(self, plan: ServicePlan, spawn: Spawn) -> None:
        super().__init__(plan.name, folder=plan.folder, log="service.log", spawn=spawn)
        self._folder.mkdir(parents=True, exist_ok=True)
        for file, text in plan.files.items():
            (self._folder / file).write_text(text)

    @property
    def folder(self) -> Path:
        """The folder with its files, which is its working directory."""
        return self._folder

    def start(self) -> None:
        """Starts it unless it runs already. The owner waits until it is ready."""
        self.launch()


UP_WITHIN: Final = 120.0
_ERROR: Final = re.compile(r"\[[^\]]*\] (?:ERROR|FATAL) ")
_MOST_LINES: Final = 1000


class KraftBroker(ServiceProgram):
    """`harness.model.protocols.Broker`. Not started when made; `folder` holds its data,
    configuration and logs."""

    confines: Confines | None = None
    """Set by a runtime that supports such faults, after it has made the broker."""

    def __init__(
        self,
        cluster: str,
        node: int,
        *,
        folder: Path,
        spawn: Spawn,
        ports: BrokerPorts,
        entry: Callable[[str], str] = str,
        inner: Callable[[str], str] = str,
    ) -> None:
        """`entry`: an address of clients, with the harness's credentials; `inner`: one of brokers,
        with theirs."""
        super().__init__(f"broker {cluster}/{node}", folder=folder, log="server.log", spawn=spawn)
        self._cluster, self._id, self._ports, self._entry, self._inner = (
            cluster,
            node,
            ports,
            entry,
            inner,
        )

    @property
    def name(self) -> str:
        """The broker's name in faults: `A/1`."""
        return f"{self._cluster}/{self._id}"

    @property
    def cluster(self) -> str:
        return self._cluster

    @property
    def id(self) -> int:
        return self._id

    @property
    def state(self) -> BrokerState:
        if self._child is None or not self._child.alive:
            return "stopped"
        return "paused" if self._child.paused else "running"

    @property
    def exit_status(self) -> int | None:
        """The last exit status of the broker, negative for a signal; None while the broker runs,
        and before its first start."""
        return self._child.poll() if self._child is not None else None

    @property
    def client_address(self) -> str:
        return self._entry(self._ports.advertised_address(CLIENT))

    def give_up(self) -> None:
        """Kills it."""
        self.kill()

    @property
    def inner_addresses(self) -> tuple[str, ...]:
        return self._inner(self._ports.at(INTERNAL)), self._inner(self._ports.at(CONTROLLER))

    @property
    def log_dir(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Starts it and waits until it serves. Raises SetupError with its last output when it ends
        or does not serve in time."""
        self.launch()
        self.await_up()

    def await_up(self) -> None:
        """Waits until it answers a metadata request with itself in the list: it is registered and
        unfenced."""
        try:
            until(self._up, within=UP_WITHIN, what=f"broker {self.name} to answer", every=0.01)
        except DeadlineExceeded as error:
            raise SetupError(f"{error}; {self._last_words()}") from error

    def _up(self) -> bool:
        if self.state == "stopped":
            raise SetupError(
                f"broker {self.name} ended with status {self.exit_status} while starting; "
                f"{self._last_words()}"
            )
        return self._id in probe.seen_brokers(self.client_address)

    def _last_words(self) -> str:
        error, lines = " | ".join(last_error(self.log)), " | ".join(self.last_words(lines=4))
        sentence = (
            f"the last error in its log is: {error}"
            if error
            else f"its logs end with: {lines}"
            if lines
            else "it has no output"
        )
        return sentence if cache.is_partial(self._folder) else f"{sentence}; see {self._folder}"


def last_error(log: Path) -> list[str]:
    """The last line of a broker's log with an error, and the exceptions of its stack trace; empty
    where there is none."""
    lines = _tail(log, lines=_MOST_LINES)
    at = max((n for n, line in enumerate(lines) if _ERROR.match(line)), default=len(lines))
    return [
        *lines[at : at + 1],
        *itertools.takewhile(lambda line: not line.startswith("["), lines[at + 1 : at + 4]),
    ]


def _tail(path: Path, *, lines: int) -> list[str]:
    """The last informative lines: without a stack trace's frames."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 32768))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith(("\tat ", "\t... "))
    ][-lines:]
