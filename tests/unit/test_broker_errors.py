"""The error about a broker that ended while it started."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.machine import cache
from linkflap.harness.runtimes.kraft.broker import last_error

START = "[2026-11-25 18:59:04,100] INFO Starting (kafka.server.BrokerServer)\n"
FATAL = "[2026-11-25 18:59:04,700] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n"
MISSING = "java.lang.NoClassDefFoundError: org/apache/kafka/coordinator/mirror/Mirror\n"
FRAME = "\tat kafka.server.BrokerServer.startup(BrokerServer.scala:300)\n"
CAUSE = "Caused by: java.lang.ClassNotFoundException: org.apache.kafka.coordinator.mirror.Mirror\n"
SHUTDOWN = "[2026-11-25 18:59:04,795] INFO registration shutdown (NodeToController)\n" * 4


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (START + SHUTDOWN, []),
        (START + FATAL + SHUTDOWN, [FATAL]),
        (START + FATAL + MISSING + FRAME + CAUSE + FRAME + SHUTDOWN, [FATAL, MISSING, CAUSE]),
        (FATAL + MISSING + START + FATAL + CAUSE + SHUTDOWN, [FATAL, CAUSE]),
        ("", []),
    ],
    ids=["none", "one", "with its exceptions", "the last", "empty"],
)
def test_the_last_error_and_its_exceptions(tmp_path: Path, log: str, error: list[str]) -> None:
    (tmp_path / "server.log").write_text(log)
    assert last_error(tmp_path / "server.log") == [line.strip() for line in error]


def test_without_a_log_there_is_no_error(tmp_path: Path) -> None:
    assert last_error(tmp_path / "server.log") == []


def test_a_folder_that_is_being_made_is_partial(tmp_path: Path) -> None:
    assert not cache.is_partial(tmp_path / "archives" / "java17" / "run" / "1")
    assert cache.is_partial(tmp_path / "archives" / ".java17.partial-ozy63tqh" / "run" / "1")
