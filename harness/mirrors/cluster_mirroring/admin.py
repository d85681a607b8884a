"""The verbs of Cluster Mirroring, called on the Java Admin of the build under test; what is refused is a value with its error.

Each verb has an Admin of its own: one that lives through the loss of a broker ends sooner or later with a mismatch of correlation
ids, and refuses all that is asked of it afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from linkflap.harness.jvm.bridge import Bridge, Handle
from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring.answers import Refused, Row
from linkflap.harness.model.clock import now
from linkflap.harness.runtimes.distribution.kafka import Kafka

ASK_SECONDS: Final = 15
DESCRIBE_EVERY: Final = 1.0
T = TypeVar("T")


class MirrorAdmin:
    """The verbs on one cluster. Nothing is started before the first; the JVM dies with this process, or by `close`."""

    def __init__(self, kafka: Kafka, java: Java, folder: Path, bootstrap: str) -> None:
        self._kafka, self._java, self._folder, self._bootstrap = kafka, java, folder, bootstrap
        self._bridge: Bridge | None = None
        self._closed = False
        self._starting = threading.Lock()

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        """Raises Refused, as every verb here."""
        self._do("create", lambda admin, java: admin.createClusterMirror(name, dict(configs), java.CreateClusterMirrorOptions()))

    def start(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Starts these topics, and whatever else the source has or gets that matches the patterns."""

        def call(admin: Handle, java: Handle) -> Handle:
            options = java.StartMirrorTopicsOptions().includePatterns(list(patterns)).excludePatterns([])
            return admin.startMirrorTopics(name, set(topics), options)

        self._do("start", call)

    def stop(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Promotes the destination for these topics."""
        self._do(
            "stop",
            lambda admin, java: admin.stopMirrorTopics(
                name, set(topics), java.StopMirrorTopicsOptions().patterns(list(patterns))
            ),
        )

    def pause(self, name: str, topics: Sequence[str]) -> None:
        self._do("pause", lambda admin, java: admin.pauseMirrorTopics(name, set(topics), java.PauseMirrorTopicsOptions()))

    def resume(self, name: str, topics: Sequence[str]) -> None:
        self._do("resume", lambda admin, java: admin.resumeMirrorTopics(name, set(topics), java.ResumeMirrorTopicsOptions()))

    def delete(self, name: str) -> None:
        self._do("delete", lambda admin, java: admin.deleteClusterMirror(name, java.DeleteClusterMirrorOptions()))

    def describe(self, name: str) -> list[Row]:
        """The rows of a mirror, those that there are: some may be missing, and some be of a moment ago."""

        def read(admin: Handle, jvm: Handle) -> list[Row]:
            asked = admin.describeClusterMirrors([name])
            found = asked.allDescriptions().get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
            if name not in found:
                return []
            try:
                return [_row(row) for rows in found[name].topics().values() for row in rows]
            except (TypeError, ValueError, AttributeError) as error:
                raise Refused("describe", "UNREADABLE", -1, str(error)[:200]) from error

        return self._with("describe", read)

    def _do(self, verb: str, call: Callable[[Handle, Handle], Handle]) -> None:
        def run(admin: Handle, jvm: Handle) -> None:
            asked = call(admin, jvm.org.apache.kafka.clients.admin)
            asked.all().get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)

        self._with(verb, run)

    def _with(self, verb: str, run: Callable[[Handle, Handle], T]) -> T:
        from py4j.protocol import Py4JError, Py4JJavaError

        bridge = self._open()
        jvm = bridge.java
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(bridge.properties(self._settings()))
            try:
                return run(admin, jvm)
            finally:
                admin.close(jvm.java.time.Duration.ofMillis(0))
        except Py4JJavaError as error:
            raise _refused(verb, error.java_exception, jvm) from error
        except (Py4JError, OSError) as error:
            raise Refused(verb, "NO_ANSWER", -1, str(error)[:200]) from error

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
                raise Refused("any verb", "CLOSED", -1, "the deployment has ended")
            if self._bridge is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._bridge = Bridge(self._java, self._kafka.classpath, self._folder, name="mirror-admin")
            return self._bridge

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._bridge is not None:
                self._bridge.close()


class Describing:
    """Asks a mirror all the time what it says of itself, and notes each answer with when it was asked.

    It goes on when the mirror has stopped: what it says then is to be true as well. What is refused says nothing.
    """

    def __init__(self, admin: MirrorAdmin, name: str, note: Callable[[int, Sequence[Row]], None]) -> None:
        self._admin, self._name, self._note = admin, name, note
        self._ended, self._noting = threading.Event(), threading.Lock()
        threading.Thread(target=self._ask, name=f"describe-{name}", daemon=True).start()

    def _ask(self) -> None:
        while not self._ended.wait(DESCRIBE_EVERY):
            asked = now()
            with suppress(Refused):
                rows = self._admin.describe(self._name)
                with self._noting:
                    if not self._ended.is_set():
                        self._note(asked, rows)

    def end(self) -> None:
        """Nothing more is noted; an answer that is under way is not waited for."""
        with self._noting:
            self._ended.set()


def _row(row: Handle) -> Row:
    return Row(
        topic=str(row.topicPartition().topic()),
        partition=int(row.topicPartition().partition()),
        state=str(row.state()),
        source_offset=int(row.sourceOffset()),
        destination_offset=int(row.destinationOffset()),
        lag=int(row.lag()),
        retries=int(row.retryAttempt()),
        error=str(row.errorMessage() or ""),
    )


def _refused(verb: str, thrown: Handle, jvm: Handle) -> Refused:
    """Kafka's own error behind the exception of a future, by the table of the build (`Errors`)."""
    while thrown.getClass().getSimpleName() == "ExecutionException" and thrown.getCause() is not None:
        thrown = thrown.getCause()
    error = jvm.org.apache.kafka.common.protocol.Errors.forException(thrown)
    said = str(thrown.getMessage() or thrown.getClass().getSimpleName())
    return Refused(verb, str(error.name()), int(error.code()), said)
