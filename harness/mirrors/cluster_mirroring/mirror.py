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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from linkflap.harness.machine.java import java_for
from linkflap.harness.mirrors.base import MirrorBase
from linkflap.harness.mirrors.cluster_mirroring import (
    administration,
    comparison,
    logs,
    settings,
    state_topic,
)
from linkflap.harness.mirrors.cluster_mirroring.admin import (
    ALREADY_EXISTS,
    DescribeRow,
    Describing,
    MirrorAdmin,
    VerbRefused,
    described,
    given_up,
    mirroring,
    summary,
    until_accepted,
)
from linkflap.harness.mirrors.cluster_mirroring.administration import Administration
from linkflap.harness.mirrors.cluster_mirroring.state_topic import LeftAligning, await_loaded
from linkflap.harness.mirrors.topics import Canary, create, data_topics, partitions_of
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, InputError, SetupError
from linkflap.harness.model.events import FailoverRefused, MirrorStopped, VerbAnswer
from linkflap.harness.model.protocols import (
    Cluster,
    Deployment,
    FailoverKind,
    PlayedVerbs,
    Recorder,
    is_running,
)
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import (
    LinkSpec,
    TopicPartition,
    hyphen_free,
)
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution import cluster_mirroring
from linkflap.harness.runtimes.distribution.kafka import kafka
from linkflap.harness.wire.librdkafka import bounds, quiet

STOPPING: Final = "STOPPING"
NEVER_MIRRORED: Final = "NEVER_MIRRORED"
"""The error of a failback whose mirror was started but never mirrored, so that no failover over it
is possible."""
NO_EFFECT: Final = "ACCEPTED_WITHOUT_EFFECT"
"""A stop that was accepted, although partitions are neither STOPPED nor STOPPING after the
deadline."""


def await_stopped(
    link: str,
    destination: Cluster,
    wanted: Collection[TopicPartition],
    *,
    resets: Mapping[TopicPartition, int],
    rows: Callable[[], Sequence[DescribeRow]],
    within: float,
) -> None:
    """Waits until every partition's log has one reset record more than before (`resets`), and then
    until describe reports STOPPED, when it becomes writable.

    `rows` returns describe's answer. Raises DeadlineExceeded.
    """
    left = list(wanted)

    def writable() -> bool:
        return all(row.state == "STOPPED" for row in rows() if (row.topic, row.partition) in wanted)

    def reset() -> bool:
        nonlocal left
        found = logs.every_log(destination, left)
        left = [
            tp for tp in left if tp not in found or logs.reset_count(found[tp]) <= resets.get(tp, 0)
        ]
        return not left

    def states() -> str:
        return summary(rows())

    def state() -> str:
        return f"{', '.join(f'{topic}-{number}' for topic, number in left[:4])} without; {states()}"

    until(reset, within=within, every=0.1, what=f"the resets of {link}", state=state)
    until(
        writable, within=within, every=0.1, what=f"partitions of {link} to be STOPPED", state=states
    )


def not_promoted(
    link: str, kind: FailoverKind, error: VerbRefused, *, seconds: float, states: str
) -> tuple[FailoverRefused, FaultError]:
    """The event and the error of a failover that was refused until the deadline, or accepted
    without effect."""
    event = FailoverRefused(
        link=link,
        mode=kind,
        error=error.name,
        code=error.code,
        message=error.message,
        states=states,
        seconds=seconds,
    )
    what = (
        f"the failover of {link} was refused for {seconds:.0f} s with {error.name} ({error.code})"
    )
    return event, FaultError(f"{what}: {error.message} ({states})")


_ASK_SECONDS: Final = 5.0


START_SECONDS: Final = 120.0


TRUNCATES_WITHIN: Final = 15.0
"""How long a mirror that takes topics over may take to truncate, once all partitions are
MIRRORING."""


STOP_SECONDS: Final = 60.0


class ClusterMirror(MirrorBase):
    """Raises InputError for an unknown option, or a Kafka without the feature. Its methods may be
    called from several threads."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: ClusterMirror | None = None,
    ) -> None:
        super().__init__(spec, link, deployment, recorder, reverses=reverses)
        self._options = settings.options(spec.options)
        self._name = f"{hyphen_free(link.source)}-{hyphen_free(link.destination)}"
        asked = deployment.topology.cluster(link.destination).kafka
        build = kafka(asked)
        found = cluster_mirroring.generation(build)
        if found is None:
            raise InputError(settings.without_feature(link.destination, asked, build))
        self._generation = found
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
        self._administration = Administration(
            self._name,
            link.name,
            self._admin,
            self._here,
            recorder,
            names["bootstrap"],
            self._configs,
            partial(administration.write_to_brokers, self._here, self._destination.bootstrap),
        )
        self._running = self._mirrored = self._promoted = False
        self._resets: dict[TopicPartition, int] = {}
        self._stopping = threading.Lock()
        self._describing: Describing | None = None
        self._watching: logs.TruncationWatch | None = None
        deployment.at_close(self.close)

    # The methods of `Administered`, for the topics that the mirror copies.
    def coordinator(self) -> int | None:
        return self._administration.coordinator()

    def source_addresses(self) -> Sequence[str]:
        return self._administration.source_addresses()

    def move_source(self, addresses: Sequence[str]) -> None:
        self._administration.move_source(addresses)

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        return self._administration.play_verbs(sorted(self._topics()), seed, steps)

    def resume_all(self) -> Sequence[str]:
        return self._administration.resume_all(sorted(self._topics()))

    def _write_described(self, asked: int, rows: Sequence[DescribeRow]) -> None:
        self._recorder.write(described(self.link.name, asked, rows))

    def _rows(self) -> list[DescribeRow]:
        try:
            return self._admin.describe(self._name)
        except VerbRefused:
            return []

    def _states(self) -> str:
        return summary(self._rows())

    def disagreeing(self, topics: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Topic -> differences between the records of `__mirror_state` and describe. Empty for
        generations whose record format is unknown. Raises KafkaException."""
        if self._generation.name != state_topic.GENERATION:
            return {}
        return state_topic.disagreeing(
            self._name, self._here, self._destination.bootstrap, topics, self._rows()
        )

    def given_up(self) -> Mapping[str, str]:
        """See `ReportsGivenUpTopics`: a partition is FAILED, and is not tried again."""
        return given_up(self._rows())

    def _topics(self) -> dict[str, int]:
        """Topic -> partition count of the mirrored topics at their home clusters: in a chain, the
        source may not have all of them yet."""
        found: dict[str, int] = {}
        for home in self._homes:
            cluster = self._deployment.clusters[home]
            asked = (
                self._there
                if home == self.link.source or not is_running(cluster)
                else AdminClient(quiet(cluster.bootstrap))
            )
            found |= data_topics(asked, (home,))
        return found

    def _partitions(self) -> list[TopicPartition]:
        return partitions_of(self._topics())

    def _destination_partitions(self) -> list[TopicPartition]:
        """The partitions of mirrored topics that the destination has."""
        return partitions_of(data_topics(self._here, self._homes))

    def promotion(self) -> Mapping[TopicPartition, int]:
        found = logs.every_log(self._destination, self._destination_partitions())
        return {
            tp: offset
            for tp, headers in found.items()
            if (offset := logs.promotion_offset(headers)) is not None
        }

    def lag(self) -> int | None:
        """Offsets that the source has and the destination lacks, from the high watermarks of both,
        never from describe. None while either does not answer."""
        if not (is_running(self._source) and is_running(self._destination)):
            return None
        try:
            wanted = self._partitions()
            theirs = bounds(self._there, wanted, "high", within=_ASK_SECONDS)
            ours = bounds(self._here, wanted, "high", within=_ASK_SECONDS)
        except KafkaException:
            return None
        return sum(max(0, end - ours[tp]) for tp, end in theirs.items())

    def start(self) -> None:
        """Creates the mirror, starts its topics, and waits until a canary record has arrived.
        Raises DeadlineExceeded with describe's states, SetupError for a verb that is refused for
        good, FaultError for a failback that never mirrors."""
        began = time.monotonic()
        create(self._there, [NewTopic(self._canary, 1, min(3, len(self._source.brokers)))])
        self._create()
        if self._options.first_start == settings.LOADED:
            await_loaded(
                self._admin, self._here, self._destination, in_vain=self._reverses is not None
            )
        topics = [*self._topics(), self._canary]
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
        self._record_start(options, began)

    def _make_acls(self) -> None:
        """Creates ACLs, so that there are some to sync. A source without an authorizer, such as a
        released Kafka, stays without."""
        own = data_topics(self._there, (self.link.source,))
        try:
            comparison.make_acls(self._there, own)
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
        canary = Canary(self._source.bootstrap, self._destination.bootstrap, self._canary)
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
        """See `until_accepted`. Records the refusals before it was accepted, and the time
        that it took."""

        note = self._recorder.write
        return until_accepted(self.link.name, verb, ask, within=within, never=never, note=note)

    def _watch(self) -> logs.TruncationWatch:
        """Records events `truncation` for a mirror that takes topics over: where and when each log
        is truncated."""
        partitions = self._partitions() if self._reverses is not None else []
        return logs.watch_truncations(
            self._source,
            self._destination,
            partitions,
            lambda tp, where: self._record_truncation(tp, where.offset, where.end),
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

    def close(self) -> None:
        """Ends all requests to the build."""
        if self._describing is not None:
            self._describing.end()
        self._admin.close()
        if self._watching is not None:
            self._watching.stop()

    @property
    def alive(self) -> bool:
        """Whether the mirror was started and not stopped. It has no process of its own that could
        end."""
        return self._running

    def crash(self) -> None:
        """Kills nothing: the mirror has no process, and the destination's brokers keep running. It
        is only recorded as crashed."""
        self._running = False
        self._record_crash("nothing: it has no process of its own")

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
            if drained and self._mirrored:
                found = comparison.awaited(
                    self.link.name, self._there, self._here, self._homes, self.disagreeing
                )
                if found is not None:
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
                tp: logs.reset_count(h)
                for tp, h in logs.every_log(self._destination, wanted).items()
            }
            topics = sorted({topic for topic, _ in wanted} | {self._canary})
            answer = self._stop_topics(kind, topics)
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
            rows = logs.journal_rows(logs.every_log(self._destination, wanted))
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
        return self._back()
