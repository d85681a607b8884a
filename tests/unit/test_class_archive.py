"""Spark's class archive is optional: if Java fails to create one, Spark runs without it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from linkflap.harness.machine import children
from linkflap.harness.machine.java import Java
from linkflap.spark_verify.spark import class_archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """One that fails."""
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "bin" / "java"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho 'Error: no room for a heap' >&2\nexit 1\n")
    path.chmod(0o755)
    return Java(path=path, major=17)


def archives(tmp_path: Path) -> list[Path]:
    return [
        path
        for path in (tmp_path / "cache" / "archives").iterdir()
        if not path.name.startswith(".")
    ]


def test_a_java_that_fails_is_named_and_leaves_nothing(
    java: Java, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="linkflap"):
        assert class_archive.options(java) == []
    assert any(
        "without a class archive" in said and "no room for a heap" in said
        for said in caplog.messages
    ), caplog.messages
    assert archives(tmp_path) == []


def test_a_java_that_writes_none_is_not_asked_again(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def nothing(command: list[str], **_: object) -> int:
        asked.append(command)
        return 0

    monkeypatch.setattr(children, "run", nothing)
    assert class_archive.options(java) == class_archive.options(java) == []
    assert len(asked) == 1
    assert len(archives(tmp_path)) == 1


def test_a_written_archive_is_used(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(command: list[str], *, output: Path, **_: object) -> int:
        (wanted,) = (
            word.partition("=")[2]
            for word in command
            if word.startswith("-XX:ArchiveClassesAtExit=")
        )
        Path(wanted).write_bytes(b"classes")
        output.touch()
        return 0

    monkeypatch.setattr(children, "run", write)
    (folder,) = {
        Path(word.partition("=")[2]).parent
        for word in class_archive.options(java)
        if "SharedArchiveFile" in word
    }
    assert [path.name for path in folder.iterdir()] == ["spark"]
    assert folder in archives(tmp_path)


def test_another_java_and_a_reinstalled_pyspark_have_other_archives(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {class_archive._name(java)}
    java.path.touch()
    names.add(class_archive._name(java))
    jar = tmp_path / "spark.jar"
    jar.touch()
    monkeypatch.setattr(class_archive, "class_path", lambda: str(jar))
    names.add(class_archive._name(java))
    assert len(names) == 3
