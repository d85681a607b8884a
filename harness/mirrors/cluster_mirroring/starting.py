"""Starts a cluster mirror: creates it on the destination, starts its topics, and waits until a
canary record has arrived."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from linkflap.harness.mirrors.canary import Canary
from linkflap.harness.mirrors.cluster_mirroring import acls, settings, truncations
from linkflap.harness.mirrors.cluster_mirroring.admin import Describing
from linkflap.harness.mirrors.cluster_mirroring.answers import (
    ALREADY_EXISTS,
    Answer,
    VerbRefused,
    mirroring,
    until_accepted,
)
from linkflap.harness.mirrors.cluster_mirroring.failover import NEVER_MIRRORED, not_promoted
from linkflap.harness.mirrors.cluster_mirroring.first_start import LeftAligning, await_loaded
from linkflap.harness.mirrors.cluster_mirroring.seen import ObservedMirror
from linkflap.harness.mirrors.topics import create, data_topics
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, SetupError
from linkflap.harness.model.events import MirrorStarted, VerbAnswer
from linkflap.harness.model.protocols import FailoverKind
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import CANARY, topic_name
from linkflap.harness.model.wait import until

START_SECONDS: Final = 120.0


TRUNCATES_WITHIN: Final = 15.0
"""How long a mirror that takes topics over may take to truncate, once all partitions are
MIRRORING."""


class StartingMirror(ObservedMirror):
    """Repeats verbs until they are accepted, and records refusals."""

    spec: MirrorSpec
    _options: settings.ClusterMirroringOptions
    _reverses: StartingMirror | None
    _nth: int
    _configs: dict[str, str]
    _running: bool
    _mirrored: bool
    _describing: Describing | None
    _watching: truncations.TruncationWatch | None

    def start(self) -> None:
        """Creates the mirror, starts its topics, and waits until a canary record has arrived.
        Raises DeadlineExceeded with describe's states, SetupError for a verb that is refused for
        good, FaultError for a failback that never mirrors."""
        began = time.monotonic()
        canary = topic_name(self.link.source, CANARY)
        create(self._there, [NewTopic(canary, 1, min(3, len(self._source.brokers)))])
        self._create()
        if self._options.first_start == settings.LOADED:
            await_loaded(
                self._admin, self._here, self._destination, in_vain=self._reverses is not None
            )
        topics = [*self._topics(), canary]
        if self._reverses is None:
            self._make_acls()
        watch = self._watching = self._watch()
        self._ask_until(
            "start",
            lambda: self._admin.start(self._name, topics, settings.patterns(self._homes)),
            START_SECONDS,
        )
        self._running = True
        try:
            behind = self._await_mirroring(began)
        except DeadlineExceeded as error:
            if self._reverses is None:
                raise
            raise self._not_promoted(
                "planned", VerbRefused("start", NEVER_MIRRORED, 0, str(error)), START_SECONDS
            ) from error
        self._mirrored = True
        # A partition can be MIRRORING, and the canary on another one arrive, before its log is
        # truncated. A log that is never truncated is left to the checks.
        with suppress(DeadlineExceeded):
            until(
                lambda: not watch.not_yet_truncated,
                within=TRUNCATES_WITHIN,
                every=0.05,
                what=f"logs of {self.link.destination} to be truncated",
            )
        self._describing = self._describing or Describing(
            self._admin, self._name, self._write_described
        )
        options: dict[str, object] = asdict(self._options)
        options |= {"generation": self._generation.name}
        if behind:
            options["left_behind"] = behind
        seconds = round(time.monotonic() - began, 3)
        self._recorder.write(
            MirrorStarted(
                link=self.link.name, mirror=self.spec.kind, options=options, seconds=seconds
            )
        )

    def _make_acls(self) -> None:
        """Creates ACLs, so that there are some to sync. A source without an authorizer, such as a
        released Kafka, stays without."""
        own = data_topics(self._there, (self.link.source,))
        try:
            acls.make(self._there, own)
        except KafkaException as error:
            raise SetupError(
                f"cluster {self.link.source} created no ACLs on its topics: {error}"
            ) from error

    def _create(self) -> None:
        """Creates the mirror on the destination. Reuses one that an earlier mirror over this link
        left behind."""
        try:
            self._ask_until(
                "create",
                lambda: self._admin.create(self._name, self._configs),
                START_SECONDS,
                never=ALREADY_EXISTS,
            )
        except VerbRefused as error:
            if error.name != ALREADY_EXISTS or self._nth == 0:
                raise SetupError(
                    f"mirror {self._name} of {self.link.name} could not be created: {error}"
                ) from error

    def _await_mirroring(self, began: float) -> list[str]:
        """Waits for MIRRORING and the canary. Returns the partitions that were stuck and got
        another leader."""
        canary = Canary(
            self._source.bootstrap,
            self._destination.bootstrap,
            topic_name(self.link.source, CANARY),
        )
        left = max(1.0, START_SECONDS - (time.monotonic() - began))
        what = f"every partition of {self.link.name} to be MIRRORING and a record to cross it"
        behind = LeftAligning(self._admin, self._here, self._generation.aligning)
        helped = self._options.first_start == settings.LOADED and self._reverses is None

        def crossed() -> bool:
            rows = self._rows()
            if helped:
                behind.look(rows, time.monotonic())
            return mirroring(rows, self._partitions()) and canary.arrived()

        try:
            until(crossed, within=left, every=0.2, what=what, state=self._states)
        finally:
            canary.close()
        return [f"{topic}-{number}" for topic, number in behind.moved]

    def _ask_until(
        self, verb: str, ask: Callable[[], None], within: float, *, never: str = ""
    ) -> VerbAnswer:
        """See `answers.until_accepted`. Records the refusals before it was accepted, and the time
        that it took."""

        def note(answer: Answer) -> None:
            self._recorder.write(answer.event(self.link.name))

        return until_accepted(verb, ask, within=within, never=never, note=note).written

    def _watch(self) -> truncations.TruncationWatch:
        """Records events `truncation` for a mirror that takes topics over: where and when each log
        is truncated."""
        partitions = self._partitions() if self._reverses is not None else []
        return truncations.watch(
            self.link, self._source, self._destination, partitions, self._recorder
        )

    def _watched(self) -> None:
        """Stops watching for truncations, once all that happened are noted."""
        if self._watching is not None:
            self._watching.close()

    def _not_promoted(self, kind: FailoverKind, error: VerbRefused, seconds: float) -> FaultError:
        """Records a failover that was refused until the deadline, or accepted without effect."""
        event, failed = not_promoted(
            self.link.name, kind, error, seconds=seconds, states=self._states()
        )
        self._recorder.write(event)
        return failed
