"""Calls the verbs of Cluster Mirroring on the Java Admin of the build under test. Refusals are
values with their errors.

If this Admin lacks a verb, or has it with other arguments, the build's command line
(`command_line`) is called instead.

Each call uses a new Admin. One that survives the loss of a broker sooner or later fails with a
mismatch of correlation ids, and then fails all later calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from linkflap.harness.jvm.bridge import Bridge, Handle
from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.command_line import MirrorCommand
from linkflap.harness.mirrors.cluster_mirroring.java_objects import refused_by, row_of, settings_of
from linkflap.harness.model.clock import now
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.runtimes.distribution.kafka import Kafka

ASK_SECONDS: Final = 15
DESCRIBE_EVERY: Final = 1.0
T = TypeVar("T")


class NotThere(Exception):
    """The Java Admin of this build has no such method, or not with these arguments."""


class MirrorAdmin:
    """The verbs on one cluster. The JVM starts at the first verb. It ends at `close`, or with this
    process.

    `by_command` are the verbs that use the command line, because the Java Admin lacks them.
    """

    def __init__(self, kafka: Kafka, java: Java, folder: Path, bootstrap: str) -> None:
        self._kafka, self._java, self._folder, self._bootstrap = kafka, java, folder, bootstrap
        self._bridge: Bridge | None = None
        self._closed = False
        self._starting = threading.Lock()
        self._command = MirrorCommand(kafka, java, folder, bootstrap)
        self.by_command: set[str] = set()

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        """Raises VerbRefused, like every verb here."""

        def call(admin: Handle, java: Handle) -> Handle:
            return admin.createClusterMirror(name, dict(configs), java.CreateClusterMirrorOptions())

        self._do("create", call, lambda: self._command.create(name, configs))

    def start(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Starts these topics, and all existing and future topics of the source that match the
        patterns."""

        def call(admin: Handle, java: Handle) -> Handle:
            options = (
                java.StartMirrorTopicsOptions().includePatterns(list(patterns)).excludePatterns([])
            )
            return admin.startMirrorTopics(name, set(topics), options)

        self._do("start", call, lambda: self._command.start(name, topics, patterns))

    def stop(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        """Promotes the destination for these topics."""

        def call(admin: Handle, java: Handle) -> Handle:
            return admin.stopMirrorTopics(
                name, set(topics), java.StopMirrorTopicsOptions().patterns(list(patterns))
            )

        self._do("stop", call, lambda: self._command.stop(name, topics, patterns))

    def pause(self, name: str, topics: Sequence[str]) -> None:
        def call(admin: Handle, java: Handle) -> Handle:
            return admin.pauseMirrorTopics(name, set(topics), java.PauseMirrorTopicsOptions())

        self._do("pause", call, lambda: self._command.pause(name, topics))

    def resume(self, name: str, topics: Sequence[str]) -> None:
        def call(admin: Handle, java: Handle) -> Handle:
            return admin.resumeMirrorTopics(name, set(topics), java.ResumeMirrorTopicsOptions())

        self._do("resume", call, lambda: self._command.resume(name, topics))

    def delete(self, name: str) -> None:
        def call(admin: Handle, java: Handle) -> Handle:
            return admin.deleteClusterMirror(name, java.DeleteClusterMirrorOptions())

        self._do("delete", call, lambda: self._command.delete(name))

    def setting(self, name: str, setting: str) -> str:
        """The value of one config of a mirror. Raises VerbRefused."""

        def read(admin: Handle, jvm: Handle) -> str:
            resource = settings_of(jvm, name)
            found = (
                admin.describeConfigs([resource])
                .all()
                .get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
            )
            entry = found[resource].get(setting)
            return "" if entry is None else str(entry.value())

        return self._with("describe-configs", read)

    def change(self, name: str, setting: str, value: str) -> None:
        """Changes one config of a mirror. Raises VerbRefused."""

        def write(admin: Handle, jvm: Handle) -> None:
            kinds = jvm.org.apache.kafka.clients.admin
            set_ = getattr(kinds, "AlterConfigOp$OpType").valueOf("SET")
            changes = [kinds.AlterConfigOp(kinds.ConfigEntry(setting, value), set_)]
            asked = admin.incrementalAlterConfigs({settings_of(jvm, name): changes})
            asked.all().get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)

        self._with("alter-configs", write)

    def replicas(self, brokers: Collection[int]) -> dict[int, set[TopicPartition]]:
        """Broker -> its replicas, as it reports them itself (DescribeLogDirs). Raises
        VerbRefused."""

        def read(admin: Handle, jvm: Handle) -> dict[int, set[TopicPartition]]:
            asked = admin.describeLogDirs(list(brokers)).allDescriptions()
            found = asked.get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
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
            seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
            admin.alterPartitionReassignments(moves).all().get(ASK_SECONDS, seconds)
            preferred = common.ElectionType.PREFERRED
            admin.electLeaders(preferred, set(moves)).all().get(ASK_SECONDS, seconds)

        self._with("elect-leaders", move)

    def describe(self, name: str) -> list[DescribeRow]:
        """The rows of a mirror. Some may be missing, and some slightly outdated."""

        def read(admin: Handle, jvm: Handle) -> list[DescribeRow]:
            asked = admin.describeClusterMirrors([name])
            found = asked.allDescriptions().get(
                ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS
            )
            if name not in found:
                return []
            return [row_of(row) for rows in found[name].topics().values() for row in rows]

        return self._asked("describe", read, lambda: self._command.describe(name))

    def _do(
        self, verb: str, call: Callable[[Handle, Handle], Handle], by_command: Callable[[], None]
    ) -> None:
        def run(admin: Handle, jvm: Handle) -> None:
            asked = call(admin, jvm.org.apache.kafka.clients.admin)
            asked.all().get(ASK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)

        self._asked(verb, run, by_command)

    def _asked(
        self, verb: str, run: Callable[[Handle, Handle], T], by_command: Callable[[], T]
    ) -> T:
        if verb not in self.by_command:
            try:
                return self._with(verb, run)
            except NotThere:
                self.by_command.add(verb)
        return by_command()

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
            raise NotThere(str(error)) from error
        except (Py4JError, OSError) as error:
            if isinstance(error, Py4JError) and "does not exist" in str(error):
                raise NotThere(str(error)) from error
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
