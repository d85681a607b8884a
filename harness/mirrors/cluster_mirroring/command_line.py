"""Calls the verbs of Cluster Mirroring through the build's own command line. For builds whose Java
Admin lacks a verb, or has it in another form.

A call starts a JVM, which takes a second or more. A refusal is recognised by its output: the class
of Kafka's exception and its message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from linkflap.harness.jvm.bridge import OPTIONS
from linkflap.harness.machine import children
from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.runtimes.distribution.kafka import Kafka

TOOL: Final = "org.apache.kafka.tools.ClusterMirrorCommand"
WITHIN: Final = 60.0
ERRORS: Final[Mapping[str, tuple[str, int]]] = {
    "ReadOnlyTopic": ("READ_ONLY_TOPIC", 134),
    "ClusterMirrorAlreadyExists": ("CLUSTER_MIRROR_ALREADY_EXISTS", 136),
    "UnknownClusterMirror": ("UNKNOWN_CLUSTER_MIRROR", 137),
    "TopicAlreadyInClusterMirror": ("TOPIC_ALREADY_IN_CLUSTER_MIRROR", 138),
    "TopicNotInClusterMirror": ("TOPIC_NOT_IN_CLUSTER_MIRROR", 139),
    "MirrorTopicAlreadyPaused": ("MIRROR_TOPIC_ALREADY_PAUSED", 140),
    "MirrorTopicNotPaused": ("MIRROR_TOPIC_NOT_PAUSED", 141),
    "MirrorTopicBeingStopped": ("MIRROR_TOPIC_BEING_STOPPED", 142),
    "ClusterMirrorNotEmpty": ("CLUSTER_MIRROR_NOT_EMPTY", 143),
    "ClusterMirrorAuthorization": ("CLUSTER_MIRROR_AUTHORIZATION_FAILED", 144),
    "InvalidMirrorState": ("INVALID_CLUSTER_MIRROR_STATES", 145),
    "MirrorTopicNotStopped": ("MIRROR_TOPIC_NOT_STOPPED", 146),
}
"""Exception name, without "Exception" -> the error's name and code. The command line prints only
the exception."""
_THROWN: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+?)Exception: (.*)")
NO_TOPICS: Final = "NO_TOPICS"
"""The name for an accepted command that matched no topic, so that it had no effect."""


class MirrorCommand:
    """The command line for one cluster. Has the verbs of `MirrorAdmin`, which raise Refused in the
    same cases."""

    def __init__(self, kafka: Kafka, java: Java, folder: Path, bootstrap: str) -> None:
        self._kafka, self._java, self._folder, self._bootstrap = kafka, java, folder, bootstrap
        self._calls = 0

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in configs.items()))
        self._run("create", "--create", "--mirror", name, "--mirror-config", str(path))

    def start(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        self._run("start", "--start", "--mirror", name, "--topics", listed(topics, patterns))

    def stop(self, name: str, topics: Sequence[str], patterns: Sequence[str]) -> None:
        self._run("stop", "--stop", "--mirror", name, "--topics", listed(topics, patterns))

    def pause(self, name: str, topics: Sequence[str]) -> None:
        self._run("pause", "--pause", "--mirror", name, "--topics", listed(topics))

    def resume(self, name: str, topics: Sequence[str]) -> None:
        self._run("resume", "--resume", "--mirror", name, "--topics", listed(topics))

    def delete(self, name: str) -> None:
        self._run("delete", "--delete", "--mirror", name)

    def describe(self, name: str) -> list[DescribeRow]:
        return rows_of(self._run("describe", "--describe", "--json", "--mirror", name), name)

    def _run(self, verb: str, *words: str) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._calls += 1
        output = self._folder / f"command-{self._calls}-{verb}.log"
        command = [
            str(self._java.path),
            *OPTIONS,
            "-cp",
            self._kafka.classpath,
            TOOL,
            "--bootstrap-server",
            self._bootstrap,
            *words,
        ]
        try:
            status = children.run(
                command, name=f"mirror-{verb}", folder=self._folder, output=output, within=WITHIN
            )
        except DeadlineExceeded as error:
            raise VerbRefused(verb, "NO_ANSWER", -1, str(error)) from error
        printed = output.read_text(errors="replace")
        output.unlink()
        if status:
            raise refusal(verb, printed)
        if printed.rstrip().endswith(": []") or "for topics [] in" in printed:
            raise VerbRefused(verb, NO_TOPICS, -1, printed.strip())
        return printed


def listed(topics: Sequence[str], patterns: Sequence[str] = ()) -> str:
    """Topics as the command line expects them: patterns, separated by commas."""
    return ",".join([*(re.escape(topic).replace("\\-", "-") for topic in topics), *patterns])


def refusal(verb: str, printed: str) -> VerbRefused:
    """The refusal that the output describes; UNREADABLE when it names no error of Kafka's."""
    if found := _THROWN.search(printed):
        name, code = ERRORS.get(found[1], (found[1], -1))
        return VerbRefused(verb, name, code, found[2].strip())
    return VerbRefused(
        verb, "UNREADABLE", -1, (printed.strip().splitlines() or ["it printed nothing"])[0][:200]
    )


def rows_of(printed: str, name: str) -> list[DescribeRow]:
    """The rows in the output of `--describe --json`, where other lines may come first. Raises
    Refused when there is no JSON."""
    try:
        every = json.loads(
            printed[printed.index("[{") :] if "[{" in printed else printed[printed.index("[]") :]
        )
        return [
            DescribeRow(
                topic=str(row["topic"]),
                partition=int(row["partition"]),
                state=str(row["state"]),
                source_offset=int(row["sourceOffset"]),
                destination_offset=int(row["destinationOffset"]),
                lag=int(row["lag"]),
                retries=int(row["retryAttempt"]),
                error=str(row["errorMessage"] or ""),
            )
            for row in every
            if row["mirror"] == name
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise VerbRefused("describe", "UNREADABLE", -1, f"{error!r}: {printed[:150]}") from error


def _escaped(value: str) -> str:
    """Escapes a value for a properties file."""
    return value.replace("\\", "\\\\")
