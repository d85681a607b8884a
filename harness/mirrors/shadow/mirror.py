"""The shadow mirror of the harness: mirrors into unmodified brokers, with the source's bytes at the
source's offsets, and supports failover and failback (docs/shadow.md).

`ShadowMirror` is a Mirror (`harness.model.protocols`) that controls one shadow process. `stop` is
the failover. It returns once real brokers lead every partition; after that the mirror appends
nothing. If the shadow was killed, or its source is dead, `stop` restarts the shadow for the
failover. `reversed` is the failback: a mirror over the reverse link, whose shadow takes the topics
over at their former source (`takeover`). That mirror can be reversed in turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.mirrors.shadow import settings
from linkflap.harness.mirrors.shadow.canary import remove_canary, write_canary
from linkflap.harness.mirrors.shadow.group_offsets import PATIENCE_SECONDS
from linkflap.harness.mirrors.shadow.lag import source_ends
from linkflap.harness.mirrors.shadow.launched import LaunchedShadow
from linkflap.harness.mirrors.shadow.process import ASK_SECONDS
from linkflap.harness.mirrors.shadow.reversal import truncations
from linkflap.harness.mirrors.topics import create, data_topics
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.events import MirrorCrashed, MirrorStarted, TopicGivenUp
from linkflap.harness.model.protocols import (
    Deployment,
    FailoverKind,
    MirrorStage,
    Recorder,
    is_running,
)
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import CANARY, LinkSpec, hyphen_free, is_data_topic, topic_name
from linkflap.harness.model.wait import until
from linkflap.harness.wire.connection import Unanswered
from linkflap.harness.wire.offsets import Partition, quiet

START_SECONDS: Final = 150.0
HANDING_OVER: Final = ("settling", "ending", "handing-over")
"""The phases of a failover, without its last."""


def make(
    spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
) -> ShadowMirror:
    """The factory. Starts nothing. Raises InputError for an unknown option or value."""
    return ShadowMirror(spec, link, deployment, recorder)


class ShadowMirror(LaunchedShadow):
    """A Mirror. Its methods may be called from several threads. `reverses` is the earlier mirror
    over the reverse link."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: ShadowMirror | None = None,
    ) -> None:
        self.spec, self.link = spec, link
        self._options = settings.options(spec.options)
        self._deployment, self._recorder = deployment, recorder
        self._source, self._destination = (
            deployment.clusters[link.source],
            deployment.clusters[link.destination],
        )
        self._reverses = reverses
        self._generation: int = 0 if reverses is None else reverses._generation + 1
        self._homes: tuple[str, ...] = (
            deployment.topology.homes_over(link) if reverses is None else reverses._homes
        )
        self._truncations_recorded: set[Partition] = set()
        self._given_up: set[str] = set()
        self._settings: dict[str, dict[int, dict[str, str]]] = (
            {} if reverses is None else reverses._settings
        )
        self._there = AdminClient(quiet(self._source.bootstrap))
        nth = f"-{self._generation}" if self._generation else ""
        name = f"shadow-{hyphen_free(link.source)}-{hyphen_free(link.destination)}{nth}"
        super().__init__(
            link.name, settings.folder_at(self._destination) / name, deployment.free_port()
        )
        self._stopping = threading.Lock()
        deployment.at_close(self._close)

    def start(self) -> None:
        """Starts the process, and waits until it leads every partition and has mirrored the canary.

        Raises SetupError when the process ends, InputError when the destination already has topics
        of these names that the mirror does not take over, and DeadlineExceeded.
        """
        if self._generation:
            remove_canary(
                AdminClient(quiet(self._destination.bootstrap)),
                topic_name(self.link.source, CANARY),
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        settings.write(self._config(), self._folder)
        # Kept for the mirror that reverses this one: some source brokers may be down by then.
        self._settings_of(self._source)
        # Explicit replicas: in a chain a shadow is registered at the source too, and the controller
        # would place a replica on it.
        replicas = sorted(self._source.brokers)[:3]
        canary = topic_name(self.link.source, CANARY)
        try:
            create(self._there, [NewTopic(canary, 1, replica_assignment=[replicas])])
        except KafkaException as error:
            raise SetupError(
                f"topic {canary} could not be created on {self.link.source}"
                f" ({error.args[0].str()}); see the brokers' logs"
            ) from error
        self.restart()

    def restart(self) -> None:
        began = time.monotonic()
        self._spawn()
        wanted = write_canary(self._source, topic_name(self.link.source, CANARY))
        patient = began + PATIENCE_SECONDS if self._generation else began
        what = f"{self.link.name} to mirror"
        try:
            until(
                lambda: self._through(wanted, patient),
                within=START_SECONDS,
                every=0.05,
                what=what,
                state=self._state,
            )
        except DeadlineExceeded:
            self._kill()
            raise
        self._record_truncations()
        self._recorder.write(
            MirrorStarted(
                link=self.link.name,
                mirror="shadow",
                options={name: getattr(self._options, name) for name in settings.ABOUT},
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def reversed(self) -> ShadowMirror:
        """See the protocol. Raises InputError before this mirror has failed over."""
        if not self._handed_over():
            raise InputError(
                f"the mirror of {self.link.name} cannot be reversed before it has failed over; stop"
                " it first"
            )
        back = LinkSpec(source=self.link.destination, destination=self.link.source)
        return ShadowMirror(self.spec, back, self._deployment, self._recorder, reverses=self)

    def _record_truncations(self) -> None:
        """Records each truncation that a takeover made in the destination's logs, once."""
        if not self._generation:
            return
        for event in truncations(self.notes(), self.link.name, self._destination.name):
            if (tp := (event.topic, event.partition)) not in self._truncations_recorded:
                self._truncations_recorded.add(tp)
                self._recorder.write(event)

    def _tell_given_up(self, topics: Mapping[str, str]) -> None:
        """Records each topic into which nothing is mirrored any more, with the reason, once."""
        for topic, reason in topics.items():
            if topic not in self._given_up:
                self._given_up.add(topic)
                self._recorder.write(TopicGivenUp(link=self.link.name, topic=topic, reason=reason))

    def _through(self, canary: int, patient: float) -> bool:
        self._raise_if_ended()
        self._record_truncations()
        status = self._ask()
        if status is None or status.fenced:
            return False
        seen = {(p.topic, p.partition): p.replicated for p in status.partitions}
        self._tell_given_up(status.given_up)
        try:
            topics = {
                name: n
                for name, n in data_topics(self._there, self._homes).items()
                if name not in status.given_up
            }
        except KafkaException:
            # A slow source is no reason to abort a mirror that has just started.
            return False
        everything = all(
            seen.get((topic, number), -1) >= 0
            for topic, count in topics.items()
            for number in range(count)
        )
        if not status.synced and time.monotonic() < patient:
            return False
        return everything and seen.get((topic_name(self.link.source, CANARY), 0), -1) >= canary

    def crash(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._recorder.write(MirrorCrashed(link=self.link.name, by="SIGKILL"))

    def stop(self) -> None:
        """Fails over (see the module docstring). Safe to call again, also concurrently. Raises
        DeadlineExceeded when the destination's logs do not settle."""
        with self._stopping:
            self._stop()

    def _stop(self) -> None:
        if self._handed_over():
            self._end()
            return
        drained = self.alive and self.lag() == 0
        if not is_running(self._destination):
            self._kill()
        else:
            self.resume()
            self._fail_over()
        notes = self.notes()
        self._tell_given_up(
            {name: topic.given_up for name, topic in notes.topics.items() if topic.given_up}
        )
        self._recorder.write(notes.stopped(self.link.name, drained=drained))

    def fail_over(self, kind: FailoverKind) -> None:
        """Does the same for both kinds: stops."""
        del kind
        self.stop()

    def promotion(self) -> Mapping[Partition, int]:
        return {
            # The source does not have the markers that the failover appends, so the promotion
            # offset excludes them.
            (topic, number): note.kept
            for topic, partitions in self.notes().partitions.items()
            for number, note in partitions.items()
            if is_data_topic(topic, self._homes)
        }

    def stage(self) -> MirrorStage | None:
        """See the protocol."""
        status = self._ask()
        if status is None:
            return None
        return MirrorStage(held=status.held, handing_over=status.phase in HANDING_OVER)

    def given_up(self) -> Mapping[str, str]:
        """See `ReportsGivenUpTopics`."""
        status = self._ask()
        return {} if status is None else status.given_up

    def lag(self) -> int | None:
        """Offsets that the source has and that some live replica of the destination lacks; all
        offsets of a topic that was given up. Asks the source directly, not over the link. None
        while it is unknown."""
        if not is_running(self._source):
            return None
        try:
            ends = source_ends(
                self._source, self._there, self._homes, self._options, within=ASK_SECONDS
            )
        except (KafkaException, Unanswered):
            return None
        status = self._ask()
        if status is None:
            return None
        self._tell_given_up(status.given_up)
        have = {
            (p.topic, p.partition): p.replicated
            for p in status.partitions
            if p.topic not in status.given_up
        }
        return sum(max(0, end - max(0, have.get(tp, 0))) for tp, end in ends.items())
