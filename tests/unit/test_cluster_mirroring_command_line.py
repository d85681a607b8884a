"""Cluster Mirroring by its command line: a build's printed answers, parsed into what its Java Admin
would return."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.machine import children
from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring import admin, command_line
from linkflap.harness.mirrors.cluster_mirroring.answers import VerbRefused
from linkflap.harness.runtimes.distribution.kafka import Kafka

DESCRIBED = (
    '[{"mirror":"m","topic":"A.orders-x","partition":0,"sourceOffset":7,"destinationOffset":5,"lag":2,"state":"MIRRORING","retryAttempt":0,"errorMessage":null},{"mirror":"m","topic":"A.orders-x","partition":1,"sourceOffset":-1,"destinationOffset":-1,"lag":-1,"state":"FAILED","retryAttempt":3,"errorMessage":"Truncation'
    ' requires source metadata refresh"}]'
)
DELETE_REFUSED = """\
[AdminClient clientId=adminclient-1] Delete mirror m failed: \
partition states are not in the expected states.
org.apache.kafka.common.errors.InvalidMirrorStateException: \
Cluster mirror partition states are not in the expected states.
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
"""
CREATE_REFUSED = (
    "org.apache.kafka.common.errors.ClusterMirrorAlreadyExistsException: Mirror 'm' already "
    "exists\n"
)


def test_rows_are_read_from_what_describe_prints() -> None:
    rows = command_line.rows_of(f"a line of its log\n{DESCRIBED}", "m")
    assert [(row.topic, row.partition, row.state, row.lag, row.retries) for row in rows] == [
        ("A.orders-x", 0, "MIRRORING", 2, 0),
        ("A.orders-x", 1, "FAILED", -1, 3),
    ]
    assert [row.error for row in rows] == ["", "Truncation requires source metadata refresh"]
    assert command_line.rows_of("[]", "m") == command_line.rows_of(DESCRIBED, "another") == []


@pytest.mark.parametrize("said", ["", "No mirror partitions found", '[{"mirror":"m"}]', "[{"])
def test_what_cannot_be_read_is_no_description(said: str) -> None:
    with pytest.raises(VerbRefused, match="describe was refused with UNREADABLE"):
        command_line.rows_of(said, "m")


@pytest.mark.parametrize(
    ("said", "name", "code"),
    [
        (DELETE_REFUSED, "INVALID_CLUSTER_MIRROR_STATES", 145),
        (CREATE_REFUSED, "CLUSTER_MIRROR_ALREADY_EXISTS", 136),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out", "Timeout", -1),
        ("Exception in thread main", "UNREADABLE", -1),
        ("", "UNREADABLE", -1),
    ],
)
def test_a_refusal_has_the_name_and_the_code_that_the_java_admin_gives_it(
    said: str, name: str, code: int
) -> None:
    found = command_line.refusal("delete", said)
    assert (found.verb, found.name, found.code) == ("delete", name, code)


def test_topics_are_patterns_on_the_command_line() -> None:
    assert command_line.listed(["A.orders-x"], ["A[.].*"]) == r"A\.orders-x,A[.].*"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A command line that prints `ran.said` and ends with `ran.status`; `ran.words` are the
    arguments of its last call."""
    seen = SimpleNamespace(said="", status=0, words=())

    def run(command: list[str], *, name: str, folder: Path, output: Path, within: float) -> int:
        output.write_text(seen.said)
        seen.words = command[command.index(command_line.TOOL) + 1 :]
        status: int = seen.status
        return status

    monkeypatch.setattr(children, "run", run)
    kafka = cast(Kafka, SimpleNamespace(classpath="libs/*"))
    java = cast(Java, SimpleNamespace(path="/bin/java"))
    seen.command = command_line.MirrorCommand(kafka, java, tmp_path / "admin", "127.0.0.1:1")
    seen.admin = admin.MirrorAdmin(kafka, java, tmp_path / "admin", "127.0.0.1:1")
    return seen


def test_every_verb_has_its_words(ran: SimpleNamespace, tmp_path: Path) -> None:
    ran.said = "Created mirror m"
    ran.command.create("m", {"bootstrap.servers": "127.0.0.1:2", "mirror.groups.include": r"a\.b"})
    assert ran.words[2:] == [
        "--create",
        "--mirror",
        "m",
        "--mirror-config",
        str(tmp_path / "admin" / "m.properties"),
    ]
    assert (
        tmp_path / "admin" / "m.properties"
    ).read_text() == "bootstrap.servers=127.0.0.1:2\nmirror.groups.include=a\\\\.b\n", (
        "a backslash of a properties file stands for itself only twice"
    )
    ran.command.start("m", ["A.x"], ["A[.].*"])
    assert ran.words == [
        "--bootstrap-server",
        "127.0.0.1:1",
        "--start",
        "--mirror",
        "m",
        "--topics",
        r"A\.x,A[.].*",
    ]
    ran.command.delete("m")
    assert ran.words[2:] == ["--delete", "--mirror", "m"]


@pytest.mark.parametrize(
    "said",
    [
        "Stopped mirroring for topics [] in mirror m\n",
        "Paused mirroring for 0 topic(s) in mirror m: []\n",
    ],
)
def test_a_verb_that_was_accepted_for_no_topic_took_no_effect(
    ran: SimpleNamespace, said: str
) -> None:
    ran.said = said
    with pytest.raises(VerbRefused, match="NO_TOPICS"):
        ran.command.stop("m", ["A.x"], [])


def test_a_refused_verb_says_with_what(ran: SimpleNamespace) -> None:
    ran.said, ran.status = DELETE_REFUSED, 1
    with pytest.raises(VerbRefused, match=r"INVALID_CLUSTER_MIRROR_STATES \(145\)"):
        ran.command.delete("m")


def test_what_the_java_admin_has_not_is_asked_of_the_command_line_from_then_on(
    ran: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def lacks(verb: str, run: object) -> None:
        asked.append(verb)
        raise admin.NotThere("Method resumeMirrorTopics does not exist")

    monkeypatch.setattr(ran.admin, "_with", lacks)
    ran.said = "Resumed mirroring for 1 topic(s) in mirror m: [A.x]"
    ran.admin.resume("m", ["A.x"])
    ran.admin.resume("m", ["A.x"])
    assert asked == ["resume"]
    assert ran.words[2:] == ["--resume", "--mirror", "m", "--topics", r"A\.x"]
    ran.said = DESCRIBED
    assert [row.state for row in ran.admin.describe("m")] == ["MIRRORING", "FAILED"]
    assert ran.admin.by_command == {"resume", "describe"}
