"""Runs the commands of a manifest, and reads their output and exit status."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import Foreign
from linkflap.harness.mirrors.canary import Canary
from linkflap.harness.mirrors.command import manifest as manifests
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, SetupError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import until

_READY_EVERY: Final = 0.2


class ManifestCommands:
    """The commands of one link's mirror, and its running process."""

    link: LinkSpec
    _manifest: manifests.MirrorManifest
    _foreign: Foreign
    _child: Child | None
    _canary: str
    _lost: frozenset[int]
    _source: Cluster
    _destination: Cluster

    @property
    def alive(self) -> bool:
        """Whether it runs, and none of its processes crashed since its last start."""
        child = self._child
        return child is not None and child.end_group() is None and not self._lost

    def _await_ready(self, began: float) -> None:
        seconds = self._manifest.seconds.ready
        left = max(1.0, seconds - (time.monotonic() - began))
        canary = Canary(self._source.bootstrap, self._destination.bootstrap, self._canary)
        said_so = self._manifest.commands.ready is None

        def through() -> bool:
            nonlocal said_so
            if not self.alive:
                raise SetupError(
                    f"{self._foreign.name} ended while it started; it "
                    f"printed:\n{self._foreign.last_words()}"
                )
            said_so = said_so or self._command("ready", within=seconds) == 0
            return said_so and canary.arrived()

        try:
            what = f"{self._foreign.name} to be ready and a record to cross {self.link.name}"
            until(
                through,
                within=left,
                every=_READY_EVERY,
                what=what,
                state=lambda: "ready" if said_so else "its command ready has not succeeded",
            )
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"{error}; it printed:\n{self._foreign.last_words()}") from error
        finally:
            canary.close()

    def _command(self, name: str, *, within: float) -> int:
        """The exit status of a command. A command that does not end in time is killed and counts as
        failed (-1)."""
        with contextlib.suppress(DeadlineExceeded):
            return self._foreign.run(
                self._manifest.every_command[name],
                what=name,
                within=within,
                **self._variables(name),
            ).status
        return -1

    def _variables(self, name: str) -> dict[str, str]:
        child = self._child
        return {"LINKFLAP_COMMAND": name, "LINKFLAP_PID": str(child.pid if child else 0)}

    def _ask(self, name: str, *, within: float) -> str:
        """The output of a command. Raises EnvironmentFailure if the command failed."""
        words = self._manifest.every_command[name]
        ran = self._foreign.run(words, what=name, within=within, **self._variables(name))
        if ran.status:
            what = f"command {name} of {self._foreign.name} ended with status {ran.status}"
            raise EnvironmentFailure(f"{what}; it printed:\n{self._foreign.last_words()}")
        return ran.output
