"""Calls the verbs of Cluster Mirroring on the Java Admin of the build under test. Answers, refusals
and the rows of describe are values.

Each call uses a new Admin. One that survives the loss of a broker sooner or later fails with a
mismatch of correlation ids, and then fails all later calls.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from linkflap.harness.jvm import Bridge, Handle
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.events import (
    DescribedPartition,
    MirrorDescribed,
    MirrorVerb,
    VerbAnswer,
)
from linkflap.harness.model.topology import CANARY, TopicPartition
from linkflap.harness.model.wait import now, until
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation
from linkflap.harness.runtimes.distribution.kafka import Kafka

MIRRORING: Final = "MIRRORING"
FAILED: Final = "FAILED"
PROMOTED: Final = frozenset({"STOPPING", "STOPPED"})
NEVER_AGAIN: Final = -1
"""The retry count that describe reports for a partition that is not retried any more."""
ALREADY_EXISTS: Final = "CLUSTER_MIRROR_ALREADY_EXISTS"
_EVERY: Final = 0.25
_SHOWN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeRow:
    """One partition in describe's answer. The lag is a cached value, -1 outside of MIRRORING."""

    topic: str
    partition: int
    state: str
    lag: int
    retries: int
    error: str


class VerbRefused(Exception):
    """A verb that was refused or not answered: Kafka's name of the error, its code, and its
    message."""

    def __init__(self, verb: str, name: str, code: int, message: str) -> None:
        super().__init__(f"{verb} was refused with {name} ({code}): {message}")
        self.verb, self.name, self.code, self.message = verb, name, code, message


def until_accepted(
    link: str,
    verb: str,
    ask: Callable[[], None],
    *,
    within: float,
    note: Callable[[MirrorVerb], object],
    never: str = "",
) -> VerbAnswer:
    """Repeats a verb until it is accepted, and passes the answer to `note`. Raises the last
    VerbRefused at the deadline, or at once for the error `never`."""
    began, tries = time.monotonic(), 0
    errors: Counter[str] = Counter()
    last = VerbRefused(verb, "NO_ANSWER", -1, "it was never answered")

    def accepted() -> bool:
        nonlocal last, tries
        tries += 1
        try:
            ask()
        except VerbRefused as error:
            last = error
            errors[f"{error.name} ({error.code})"] += 1
            if error.name == never:
                raise
            return False
        return True

    def answered(*, yes: bool) -> VerbAnswer:
        seconds = round(time.monotonic() - began, 3)
        refused = dict(errors)
        note(
            MirrorVerb(
                link=link, verb=verb, accepted=yes, tries=tries, refused=refused, seconds=seconds
            )
        )
        return VerbAnswer(verb=verb, accepted=yes, tries=tries, refused=refused, seconds=seconds)

    try:
        until(accepted, within=within, every=_EVERY, what=f"{verb} to be accepted")
    except DeadlineExceeded as error:
        answered(yes=False)
        raise last from error
    return answered(yes=True)


def given_up(rows: Sequence[DescribeRow]) -> dict[str, str]:
    """Topic -> why it is no longer mirrored, for topics with a partition that has failed for
    good."""
    return {
        row.topic: row.error or FAILED
        for row in rows
        if row.state == FAILED and row.retries == NEVER_AGAIN
    }


def mirroring(rows: Sequence[DescribeRow], partitions: Collection[TopicPartition]) -> bool:
    """Whether every partition is MIRRORING; one without a row is not."""
    states = {(row.topic, row.partition): row.state for row in rows}
    return bool(partitions) and all(states.get(tp) == MIRRORING for tp in partitions)


def described(link: str, asked: int, rows: Sequence[DescribeRow]) -> MirrorDescribed:
    """Describe's answer as an event, without the canary topic. `asked` is the time of the
    request."""
    named = tuple(
        DescribedPartition(
            topic=r.topic,
            partition=r.partition,
            state=r.state,
            mirrors=r.state == MIRRORING,
            lag=r.lag,
            promoted=r.state in PROMOTED,
        )
        for r in rows
        if not r.topic.endswith(f".{CANARY}")
    )
    return MirrorDescribed(link=link, asked=asked, rows=named)


def summary(rows: Sequence[DescribeRow]) -> str:
    """The number of partitions in each state, and the first error messages, in words."""
    counted = ", ".join(
        f"{count} {state}" for state, count in Counter(row.state for row in rows).most_common()
    )
    errors = sorted({row.error for row in rows if row.error})[:_SHOWN]
    return "; ".join([counted or "no rows", *errors])


def settings_of(jvm: Handle, name: str) -> Handle:
    """A mirror as a ConfigResource."""
    kinds = jvm.org.apache.kafka.common.config
    return kinds.ConfigResource(
        getattr(kinds, "ConfigResource$Type").valueOf("CLUSTER_MIRROR"), name
    )


def row_of(row: Handle) -> DescribeRow:
    return DescribeRow(
        topic=str(row.topicPartition().topic()),
        partition=int(row.topicPartition().partition()),
        state=str(row.state()),
        lag=int(row.lag()),
        retries=int(row.retryAttempt()),
        error=str(row.errorMessage() or ""),
    )


def _with_states(jvm: Handle) -> Handle:
    """Options of a describe that answers with states and offsets."""
    options = jvm.org.apache.kafka.clients.admin.DescribeClusterMirrorsOptions()
    return options.includeMirrorState(True).includeMirrorOffset(True)


def refused_by(verb: str, thrown: Handle, jvm: Handle) -> VerbRefused:
    """The Kafka error inside a future's exception, looked up in the build's own table
    (`Errors`)."""
    while (
        thrown.getClass().getSimpleName() == "ExecutionException" and thrown.getCause() is not None
    ):
        thrown = thrown.getCause()
    error = jvm.org.apache.kafka.common.protocol.Errors.forException(thrown)
    message = str(thrown.getMessage() or thrown.getClass().getSimpleName())
    return VerbRefused(verb, str(error.name()), int(error.code()), message)


ASK_SECONDS: Final = 15
DESCRIBE_EVERY: Final = 1.0
T = TypeVar("T")


def _answer(future: Handle, jvm: Handle) -> Handle:
    return future.get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)


def _lacks(verb: str, error: Exception) -> SetupError:
    return SetupError(
        f"the Java Admin of this build has no verb {verb}, or has it with other arguments"
        f" ({str(error)[:200]}); use a build whose Admin has it (linkflap docs cluster-mirroring)"
    )


class MirrorAdmin:
    """The verbs on one cluster. The JVM starts at the first verb. It ends at `close`, or with this
    process."""

    def __init__(self, kafka: Kafka, java: Java, folder: Path, bootstrap: str) -> None:
        self._kafka, self._java, self._folder, self._bootstrap = kafka, java, folder, bootstrap
        self._bridge: Bridge | None = None
        self._closed = False
        self._starting = threading.Lock()

    @property
    def _asks_for_states(self) -> bool:
        found = generation(self._kafka)
        return found is not None and found.asks_for_states

    def _named(self, topics: Sequence[str]) -> Collection[str]:
        """Topics as the generation's verbs take them."""
        return list(topics) if self._asks_for_states else set(topics)

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        """Raises VerbRefused, like every verb here."""
        self._do(
            "create",
            lambda admin, java: admin.createClusterMirror(
                name, dict(configs), java.CreateClusterMirrorOptions()
            ),
        )

    def start(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Starts these topics, and all existing and future topics of the source that match the
        patterns."""

        def call(admin: Handle, java: Handle) -> Handle:
            options = java.StartMirrorTopicsOptions().includePatterns(list(patterns))
            return admin.startMirrorTopics(name, self._named(topics), options.excludePatterns([]))

        self._do("start", call)

    def stop(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Promotes the destination for these topics."""

        def call(admin: Handle, java: Handle) -> Handle:
            options = java.StopMirrorTopicsOptions().patterns(list(patterns))
            return admin.stopMirrorTopics(name, self._named(topics), options)

        self._do("stop", call)

    def pause(self, name: str, topics: Sequence[str]) -> None:
        self._do(
            "pause",
            lambda admin, java: admin.pauseMirrorTopics(
                name, self._named(topics), java.PauseMirrorTopicsOptions()
            ),
        )

    def resume(self, name: str, topics: Sequence[str]) -> None:
        self._do(
            "resume",
            lambda admin, java: admin.resumeMirrorTopics(
                name, self._named(topics), java.ResumeMirrorTopicsOptions()
            ),
        )

    def delete(self, name: str) -> None:
        self._do(
            "delete",
            lambda admin, java: admin.deleteClusterMirror(name, java.DeleteClusterMirrorOptions()),
        )

    def setting(self, name: str, setting: str) -> str:
        """The value of one config of a mirror. Raises VerbRefused."""

        def read(admin: Handle, jvm: Handle) -> str:
            resource = settings_of(jvm, name)
            found = _answer(admin.describeConfigs([resource]).all(), jvm)
            entry = found[resource].get(setting)
            return "" if entry is None else str(entry.value())

        return self._with("describe-configs", read)

    def change(self, name: str, setting: str, value: str) -> None:
        """Changes one config of a mirror. Raises VerbRefused."""

        def write(admin: Handle, jvm: Handle) -> None:
            kinds = jvm.org.apache.kafka.clients.admin
            set_ = getattr(kinds, "AlterConfigOp$OpType").valueOf("SET")
            changes = [kinds.AlterConfigOp(kinds.ConfigEntry(setting, value), set_)]
            _answer(admin.incrementalAlterConfigs({settings_of(jvm, name): changes}).all(), jvm)

        self._with("alter-configs", write)

    def replicas(self, brokers: Collection[int]) -> dict[int, set[TopicPartition]]:
        """Broker -> its replicas, as it reports them itself (DescribeLogDirs). Raises
        VerbRefused."""

        def read(admin: Handle, jvm: Handle) -> dict[int, set[TopicPartition]]:
            found = _answer(admin.describeLogDirs(list(brokers)).allDescriptions(), jvm)
            return {
                int(broker): {
                    (str(tp.topic()), int(tp.partition()))
                    for each in folders.values()
                    for tp in each.replicaInfos().keySet()
                }
                for broker, folders in found.items()
            }

        return self._with("describe-log-dirs", read)

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Makes the first broker of each order the leader of its partition. Raises VerbRefused."""

        def move(admin: Handle, jvm: Handle) -> None:
            common, kinds = jvm.org.apache.kafka.common, jvm.org.apache.kafka.clients.admin
            moves = {
                common.TopicPartition(topic, number): jvm.java.util.Optional.of(
                    kinds.NewPartitionReassignment(list(order))
                )
                for (topic, number), order in orders.items()
            }
            _answer(admin.alterPartitionReassignments(moves).all(), jvm)
            _answer(admin.electLeaders(common.ElectionType.PREFERRED, set(moves)).all(), jvm)

        self._with("elect-leaders", move)

    def describe(self, name: str) -> list[DescribeRow]:
        """The rows of a mirror. Some may be missing, and some slightly outdated."""

        def read(admin: Handle, jvm: Handle) -> list[DescribeRow]:
            asked = (
                admin.describeClusterMirrors([name], None, _with_states(jvm))
                if self._asks_for_states
                else admin.describeClusterMirrors([name])
            )
            found = _answer(asked.allDescriptions(), jvm)
            if name not in found:
                return []
            description = found[name]
            states = description.leaderStates() if self._asks_for_states else description.topics()
            return [row_of(row) for rows in states.values() for row in rows]

        return self._with("describe", read)

    def _do(self, verb: str, call: Callable[[Handle, Handle], Handle]) -> None:
        def run(admin: Handle, jvm: Handle) -> None:
            _answer(call(admin, jvm.org.apache.kafka.clients.admin).all(), jvm)

        self._with(verb, run)

    def _with(self, verb: str, run: Callable[[Handle, Handle], T]) -> T:
        from py4j.protocol import Py4JError, Py4JJavaError

        bridge = self._open()
        jvm = bridge.java
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(
                bridge.properties(self._settings())
            )
            try:
                return run(admin, jvm)
            finally:
                admin.close(jvm.java.time.Duration.ofMillis(0))
        except Py4JJavaError as error:
            raise refused_by(verb, error.java_exception, jvm) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise _lacks(verb, error) from error
        except (Py4JError, OSError) as error:
            if isinstance(error, Py4JError) and "does not exist" in str(error):
                raise _lacks(verb, error) from error
            raise VerbRefused(verb, "NO_ANSWER", -1, str(error)[:200]) from error

    def _settings(self) -> dict[str, object]:
        milliseconds = ASK_SECONDS * 1000
        return {
            "bootstrap.servers": self._bootstrap,
            "request.timeout.ms": milliseconds // 2,
            "default.api.timeout.ms": milliseconds,
            "reconnect.backoff.max.ms": 200,
        }

    def _open(self) -> Bridge:
        with self._starting:
            if self._closed:
                raise VerbRefused("any verb", "CLOSED", -1, "the deployment has ended")
            if self._bridge is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._bridge = Bridge(
                    self._java, self._kafka.classpath, self._folder, name="mirror-admin"
                )
            return self._bridge

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._bridge is not None:
                self._bridge.close()


class Describing:
    """Describes a mirror every second, and passes each answer to `note` with the time of the
    request.

    Continues after the mirror has stopped, because its states must be right then too. Refused
    requests are skipped.
    """

    def __init__(
        self, admin: MirrorAdmin, name: str, note: Callable[[int, Sequence[DescribeRow]], None]
    ) -> None:
        self._admin, self._name, self._note = admin, name, note
        self._ended, self._noting = threading.Event(), threading.Lock()
        threading.Thread(target=self._ask, name=f"describe-{name}", daemon=True).start()

    def _ask(self) -> None:
        while not self._ended.wait(DESCRIBE_EVERY):
            asked = now()
            with suppress(VerbRefused):
                rows = self._admin.describe(self._name)
                with self._noting:
                    if not self._ended.is_set():
                        self._note(asked, rows)

    def end(self) -> None:
        """Nothing is noted after this returns. Does not wait for a request in progress."""
        with self._noting:
            self._ended.set()
