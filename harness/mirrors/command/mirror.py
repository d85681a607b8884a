"""The kind `command`: a user's own replicator, run by the commands of a manifest (option
manifest=FILE; docs/own-mirror.md).

The command `start` runs as long as the mirror does, in a process group that is killed as one. The
mirror has started once `ready`, if there is one, has exited with 0 and a canary record has arrived
on the destination. The lag that the mirror itself reports is recorded beside the measured one, and
never used. If a failover reports no promotion offsets, they are the ends of the mirrored
partitions, read after the mirror has ended and before a client writes.

A failback is a mirror over the reverse link. It begins with the command `failback`, which prepares
the old cluster for mirroring. linkflap measures the records that its partitions lose by that, and
records them as truncations.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Final, Literal

from confluent_kafka.admin import AdminClient

from linkflap.harness.machine.children import Child
from linkflap.harness.machine.user_programs import Foreign
from linkflap.harness.mirrors.command import answers
from linkflap.harness.mirrors.command import manifest as manifests
from linkflap.harness.mirrors.command.commands import ManifestCommands
from linkflap.harness.mirrors.command.environment import environment_of
from linkflap.harness.mirrors.command.measured_lag import Behind
from linkflap.harness.mirrors.mirrored_ends import MirroredEnds
from linkflap.harness.mirrors.topics import copy_topics
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, InputError
from linkflap.harness.model.events import (
    MirrorCrashed,
    MirrorLag,
    MirrorStarted,
    MirrorStopped,
    Truncation,
)
from linkflap.harness.model.protocols import Deployment, FailoverKind, Mirror, Recorder, is_running
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import CANARY, LinkSpec, topic_name
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition, quiet

SETTLE_SECONDS: Final = 90.0
_ASK_SECONDS: Final = 5.0


def make(
    spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
) -> CommandMirror:
    """The factory. Starts nothing. Raises InputError for an invalid manifest."""
    return CommandMirror(spec, link, deployment, recorder)


class CommandMirror(ManifestCommands):
    """A Mirror (`harness.model.protocols`). Its methods may be called from several threads."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: CommandMirror | None = None,
    ) -> None:
        self.spec, self.link = spec, link
        self._deployment, self._reverses = deployment, reverses
        path = manifests.path_of(spec.options)
        self._manifest = manifests.read(path)
        self._recorder = recorder
        self._source, self._destination = (
            deployment.clusters[link.source],
            deployment.clusters[link.destination],
        )
        self._homes: tuple[str, ...] = (
            deployment.topology.homes_over(link) if reverses is None else reverses._homes
        )
        # One canary topic for a mirror and its reverse, because both copy the same topics.
        self._canary: str = (
            topic_name(link.source, CANARY) if reverses is None else reverses._canary
        )
        self._there = AdminClient(quiet(self._source.bootstrap))
        self._ends = MirroredEnds(
            admin=AdminClient(quiet(self._destination.bootstrap)),
            destination=link.destination,
            homes=self._homes,
            answers_within=_ASK_SECONDS,
        )
        state = (
            next(iter(self._destination.brokers.values())).log.parent
            / f"{self._manifest.name}-{link.source}-{link.destination}"
        )
        self._foreign = Foreign(
            name=f"mirror {self._manifest.name} of {link.name}",
            folder=path.parent,
            log=state / "output.log",
            environment={
                **environment_of(deployment, link, self._homes, state),
                **manifests.java_of(self._manifest, path),
            },
            secrets=self._manifest.environment,
        )
        self._state = state
        self._behind = Behind(
            self._source.bootstrap,
            self._destination.bootstrap,
            self._homes,
            self._manifest.guarantee.isolation,
        )
        self._child: Child | None = None
        self._lost: frozenset[int] = frozenset()
        self._promoted: dict[Partition, int] = {}
        self._lock = threading.RLock()
        deployment.at_close(self._end)

    def start(self) -> None:
        """Creates the topics, runs `start`, and waits until it mirrors.

        Raises SetupError when it ends, DeadlineExceeded when no record arrives; both with the last
        lines that it printed.
        """
        self._state.mkdir(parents=True, exist_ok=True)
        if self._reverses is not None:
            self._fail_back()
        copy_topics(self._source, self._destination, self._homes, canary=self._canary)
        self._run("start")

    def _fail_back(self) -> None:
        """Runs `failback`, and records what it truncated. Raises EnvironmentFailure if it failed,
        or left a log that this mirror cannot continue."""
        before = self._ends.known(SETTLE_SECONDS)
        self._ask("failback", within=self._manifest.seconds.failback)
        after = self._ends.known(SETTLE_SECONDS)
        for (topic, number), end in sorted(before.items()):
            left = after.get((topic, number), 0)
            if left and not self._manifest.guarantee.offsets_kept:
                raise EnvironmentFailure(
                    f"command failback of {self._foreign.name} left {topic}-{number} of "
                    f"{self.link.destination} ending at {left}; a mirror that changes offsets "
                    "needs an empty log: let it delete the topic, which is created again"
                )
            if left < end:
                self._recorder.write(
                    Truncation(
                        link=self.link.name,
                        cluster=self.link.destination,
                        topic=topic,
                        partition=number,
                        offset=left,
                        end=end,
                    )
                )

    def restart(self) -> None:
        again = self._manifest.commands.restart
        if self._lost and again:  # some processes still run; the command restarts the others
            self._ask("restart", within=self._manifest.seconds.ready)
            self._lost = frozenset()
            self._await_ready(time.monotonic())
            return
        self._end()
        self._run("restart" if again else "start")

    def _run(self, name: Literal["start", "restart"]) -> None:
        began = time.monotonic()
        words = self._manifest.every_command[name]
        with self._lock:
            self._lost = frozenset()
            self._child = self._foreign.start(words)
        self._await_ready(began)
        options = {"manifest": self._manifest.name}
        self._recorder.write(
            MirrorStarted(
                link=self.link.name,
                mirror="command",
                options=options,
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def crash(self) -> None:
        """Kills the process group with SIGKILL, or runs the command `crash`, which kills at least
        one of its processes."""
        child = self._child
        if self._manifest.commands.crash and child is not None:
            before = child.group()
            self._ask("crash", within=self._manifest.seconds.crash)
            with contextlib.suppress(DeadlineExceeded):
                until(
                    lambda: before - child.group(),
                    within=self._manifest.seconds.crash,
                    what="one of its processes to end",
                )
            self._lost = before - child.group()
            by = "its command"
        else:
            self._end()
            by = "SIGKILL"
        self._recorder.write(MirrorCrashed(link=self.link.name, by=by))

    def stop(self) -> None:
        """Ends the mirror. Returns when the destination's mirrored partitions have stopped growing.
        Safe to call twice."""
        with self._lock:
            drained = self.alive and self._compared()
            if self.alive and self._manifest.commands.stop:
                self._command("stop", within=self._manifest.seconds.stop)
            if self._child is not None:
                self._foreign.end(self._child, within=self._manifest.seconds.stop)
            if is_running(self._destination):
                # Also waits for its open transactions, and for requests of a killed process in a
                # broker's socket buffer.
                self._ends.await_unchanged(SETTLE_SECONDS, closed=True)
            self._recorder.write(MirrorStopped(link=self.link.name, drained=drained))

    def fail_over(self, kind: FailoverKind) -> None:
        """Runs the failover command of this kind, if there is one, and ends the remaining
        processes. Raises EnvironmentFailure if it failed."""
        name = f"failover {kind}"
        if name in self._manifest.every_command:
            printed = self._ask(name, within=self._manifest.seconds.failover)
            self._promoted = answers.promoted(printed, self._manifest.name)
        self.stop()

    def _compared(self) -> bool:
        """Whether the measured lag is zero. Records the mirror's own report beside it."""
        measured = self.lag()
        if self._manifest.commands.lag:
            reported: int | None = None
            with contextlib.suppress(EnvironmentFailure):
                reported = answers.lag(self._ask("lag", within=self._manifest.seconds.lag))
            self._recorder.write(
                MirrorLag(link=self.link.name, reported=reported, measured=measured)
            )
        return measured == 0

    def promotion(self) -> Mapping[Partition, int]:
        """The offsets that the failover reported, and log ends for the other partitions. Called
        after `fail_over`, before a client writes. Raises EnvironmentFailure for an impossible
        report, DeadlineExceeded."""
        ends = self._ends.known(SETTLE_SECONDS)
        answers.refuse_impossible(self._foreign.name, self._promoted, ends)
        return {**ends, **self._promoted}

    def reversed(self) -> Mirror:
        if self._manifest.commands.failback is None:
            raise InputError(
                f"mirror {self._manifest.name} has no command failback; give its manifest one, or "
                "use --mirror shadow"
            )
        back = LinkSpec(source=self.link.destination, destination=self.link.source)
        return CommandMirror(self.spec, back, self._deployment, self._recorder, reverses=self)

    def lag(self) -> int | None:
        return self._behind.count() if is_running(self._source) else None

    def _end(self) -> None:
        """Kills the process group with SIGKILL."""
        with self._lock:
            if self._child is not None:
                self._foreign.kill(self._child)
