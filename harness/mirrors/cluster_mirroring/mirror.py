"""The kind `cluster-mirroring`: KIP-1279 itself, on clusters that run a build of its branch
(docs/cluster-mirroring.md).

The destination's own brokers are the mirror: it has no process to kill. It has started when every
partition is MIRRORING and a canary record has arrived. A failover is the verb stop. linkflap does
not override a refusal of the build: it repeats the verb until it is accepted or the deadline
passes, and records each answer. The promotion offset is read from the log files, never from
describe.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from linkflap.harness.machine.java import java_for
from linkflap.harness.mirrors.cluster_mirroring import (
    compared,
    from_bytes,
    read_only,
    settings,
    truncations,
)
from linkflap.harness.mirrors.cluster_mirroring.admin import Describing, MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.failover import NO_EFFECT, STOPPING, await_stopped
from linkflap.harness.mirrors.cluster_mirroring.rule import Rule
from linkflap.harness.mirrors.cluster_mirroring.starting import StartingMirror
from linkflap.harness.model.errors import DeadlineExceeded, InputError
from linkflap.harness.model.events import MirrorCrashed, MirrorStopped, VerbAnswer
from linkflap.harness.model.protocols import Deployment, FailoverKind, Recorder, is_running
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import (
    CANARY,
    LinkSpec,
    TopicPartition,
    hyphen_free,
    topic_name,
)
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.wire.offsets import quiet

STOP_SECONDS: Final = 60.0


def make(
    spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
) -> ClusterMirror:
    """The factory. Starts nothing. Raises InputError for an unknown option, or a Kafka without the
    feature."""
    return ClusterMirror(spec, link, deployment, recorder)


class ClusterMirror(StartingMirror):
    """A Mirror (`harness.model.protocols`). Its methods may be called from several threads."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: ClusterMirror | None = None,
    ) -> None:
        self.spec, self.link = spec, link
        self._options = settings.options(spec.options)
        self._deployment, self._recorder = deployment, recorder
        self._source, self._destination = (
            deployment.clusters[link.source],
            deployment.clusters[link.destination],
        )
        self._homes: tuple[str, ...] = (
            deployment.topology.homes_over(link) if reverses is None else reverses._homes
        )
        self._reverses = reverses
        self._name = f"{hyphen_free(link.source)}-{hyphen_free(link.destination)}"
        self._here, self._there = (
            AdminClient(quiet(self._destination.bootstrap)),
            AdminClient(quiet(self._source.bootstrap)),
        )
        asked = deployment.topology.cluster(link.destination).kafka
        build = kafka(asked)
        found = cluster_mirroring.generation(build)
        if found is None:
            raise InputError(settings.without_feature(link.destination, asked, build))
        self._generation = found
        self._nth: int = 0 if reverses is None else reverses._nth + 1
        folder = (
            next(iter(self._destination.brokers.values())).log.parent
            / f"cluster-mirroring-{self._name}-{self._nth}"
        )
        self._admin = MirrorAdmin(
            build, java_for(build.version), Path(folder), self._destination.bootstrap
        )
        names = found.mirror
        self._configs = {
            names["bootstrap"]: deployment.links[link.name].bootstrap,
            names["groups"]: self._options.groups or "(?!)",
        }
        self._rule = Rule(
            self._name,
            link.name,
            self._admin,
            self._here,
            recorder,
            names["bootstrap"],
            self._configs,
            partial(read_only.written, self._here, self._destination.bootstrap),
        )
        self._running = self._mirrored = self._promoted = False
        self._resets: dict[TopicPartition, int] = {}
        self._stopping = threading.Lock()
        self._describing: Describing | None = None
        self._watching: truncations.TruncationWatch | None = None
        deployment.at_close(self.close)

    def close(self) -> None:
        """Ends all requests to the build."""
        if self._describing is not None:
            self._describing.end()
        if self._watching is not None:
            self._watching.end()
        self._admin.close()

    @property
    def alive(self) -> bool:
        """Whether it was started and not stopped. It has no process of its own that could end."""
        return self._running

    def crash(self) -> None:
        """Kills nothing: the mirror has no process, and the destination's brokers keep running. It
        is only recorded as crashed."""
        self._running = False
        self._recorder.write(
            MirrorCrashed(link=self.link.name, by="nothing: it has no process of its own")
        )

    def restart(self) -> None:
        raise InputError(settings.NO_PROCESS)

    def stop(self) -> None:
        """Pauses the mirror: nothing is appended any more, and nothing is promoted. Safe to call
        twice."""
        with self._stopping:
            if not self._running:
                return
            drained = self.lag() == 0
            self._watched()
            if (
                drained
                and self._mirrored
                and (
                    found := compared.awaited(
                        self.link.name, self._there, self._here, self._homes, self.disagreeing
                    )
                )
                is not None
            ):
                self._recorder.write(found)
            answer = VerbAnswer()
            if is_running(self._destination):
                try:
                    answer = self._ask_until(
                        "pause",
                        lambda: self._admin.pause(self._name, list(self._topics())),
                        STOP_SECONDS,
                    )
                except VerbRefused as error:
                    answer = VerbAnswer(error=str(error))
            self._running = False
            if self._mirrored:
                self._recorder.write(
                    MirrorStopped(link=self.link.name, drained=drained, paused=answer)
                )

    def fail_over(self, kind: FailoverKind) -> None:
        """Promotes the destination. Repeats the verb stop until it is accepted, and waits until
        every partition's log has its reset record.

        Raises FaultError when stop is refused until the deadline, for example because it needs the
        source and that is dead.
        """
        with self._stopping:
            if self._promoted:
                return
            drained = self.lag() == 0
            self._watched()
            wanted = self._destination_partitions()
            self._resets = {
                tp: from_bytes.resets(h)
                for tp, h in from_bytes.every(self._destination, wanted).items()
            }
            answer = self._stop_topics(
                kind,
                sorted({topic for topic, _ in wanted} | {topic_name(self.link.source, CANARY)}),
            )
            try:
                await_stopped(
                    self.link.name,
                    self._destination,
                    wanted,
                    resets=self._resets,
                    rows=self._rows,
                    within=STOP_SECONDS,
                )
            except DeadlineExceeded as error:
                if any(row.state == STOPPING for row in self._rows()):
                    raise  # still in progress, on a slow machine: proves nothing
                raise self._not_promoted(
                    kind, VerbRefused("stop", NO_EFFECT, 0, str(error)), STOP_SECONDS
                ) from error
            self._running, self._promoted = False, True
            rows = from_bytes.journals(from_bytes.every(self._destination, wanted))
            self._recorder.write(
                MirrorStopped(link=self.link.name, drained=drained, stopped=answer, partitions=rows)
            )

    def _stop_topics(self, kind: FailoverKind, topics: list[str]) -> VerbAnswer:
        try:
            return self._ask_until(
                "stop",
                lambda: self._admin.stop(self._name, topics, settings.patterns(self._homes)),
                STOP_SECONDS,
            )
        except VerbRefused as error:
            raise self._not_promoted(kind, error, STOP_SECONDS) from error

    def reversed(self) -> ClusterMirror:
        if not self._promoted:
            raise InputError(
                f"the mirror of {self.link.name} cannot be reversed before it has failed over; stop"
                " it first"
            )
        back = LinkSpec(source=self.link.destination, destination=self.link.source)
        return ClusterMirror(self.spec, back, self._deployment, self._recorder, reverses=self)
