"""The doctor on machines that lack something: this machine, with the thing removed."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from linkflap.cli import doctor
from linkflap.cli.doctor import Finding, complete, examine, show
from linkflap.harness.machine import ledger, process_identity, wheels
from linkflap.harness.model.errors import FAILED
from linkflap.harness.runtimes.distribution import toxiproxy_server


def found(name: str) -> Finding:
    return next(finding for finding in examine() if finding.name == name)


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing installed or cached; returns the only folder on PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    return tools


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_every_look_has_its_finding_and_every_lack_its_fix(bare: Path) -> None:
    findings = examine()
    assert len({finding.name for finding in findings}) == len(doctor.LOOKS)
    for finding in findings:
        assert finding.says
        assert finding.ok or finding.fix or finding.name in ("spark", "toxiproxy", "kafka", "java")


def test_a_bare_machine_completes_itself(bare: Path) -> None:
    findings = {finding.name: finding for finding in examine()}
    for name, says in (
        ("java", f"none in JAVA_HOME or PATH; {wheels.JAVA} comes from PyPI on first use"),
        ("spark", "gets its Java on first use"),
        ("kafka", "4.3.1 is fetched on first use with jgo, as there is no mvn"),
        (
            "toxiproxy",
            f"toxiproxy-server {toxiproxy_server.VERSION} is built on first use with Go from PyPI",
        ),
    ):
        assert findings[name].ok is None
        assert says in findings[name].says
    assert list((bare.parent / "cache").rglob("*.jar")) == [], "looking must not fetch"


def test_without_pip_nothing_can_be_fetched(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_has_pip", lambda: False)
    findings = examine()
    assert [f.name for f in findings if f.ok is False and not f.needed_by] == [
        "java",
        "spark",
        "toxiproxy",
    ]
    assert not complete(findings, "process")
    stream = io.StringIO()
    assert show(stream) == FAILED
    assert "runtime process: lacks java, spark, toxiproxy" in stream.getvalue()


@pytest.mark.parametrize(
    ("printed", "ok", "says"),
    [
        ('openjdk version "17.0.9" 2023-10-17', True, "Java 17 at"),
        ('openjdk version "25" 2025-09-16', True, "Kafka 3 gets another from PyPI"),
        ('java version "1.8.0_392"', None, "Java 8 at"),
        ("Unable to locate a Java Runtime.", None, "none in JAVA_HOME or PATH"),
    ],
)
def test_java(bare: Path, printed: str, ok: bool | None, says: str) -> None:
    executable(bare / "java", f"echo '{printed}' >&2")
    finding = found("java")
    assert finding.ok is ok
    assert says in finding.says


def test_java_home_comes_first_unless_it_is_broken(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(bare / "java", "echo 'version \"17.0.1\"' >&2")
    executable(tmp_path / "home" / "bin" / "java", "echo 'version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert "Java 21" in found("java").says
    executable(tmp_path / "home" / "bin" / "java", "exit 1")
    assert "Java 17" in found("java").says


def test_cached_files_are_found(bare: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "java" / wheels.JAVA).mkdir(parents=True)
    (cache / "kafka" / "4.3.1").mkdir(parents=True)
    executable(cache / f"toxiproxy-{toxiproxy_server.VERSION}" / "toxiproxy-server", "exit 0")
    findings = {finding.name: finding for finding in examine()}
    assert findings["java"].ok
    assert findings["kafka"].ok
    assert findings["toxiproxy"].ok


@pytest.mark.parametrize(
    ("version", "says"),
    [("go1.27.0", "with /"), ("go1.19", "with Go from PyPI"), ("", "with Go from PyPI")],
)
def test_go(bare: Path, version: str, says: str) -> None:
    executable(bare / "go", f"echo {version}")
    assert says in found("toxiproxy").says


def test_a_cache_that_cannot_be_made(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "file" / "cache"))
    finding = found("cache")
    assert finding.ok is False
    assert "set LINKFLAP_CACHE to a folder that can be written" in finding.says


def test_ports(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKFLAP_PORTS", "20000-20009")
    assert found("ports").says == "20000-20009, 10 ports for brokers and proxies"
    assert found("ports").ok is None
    monkeypatch.setenv("LINKFLAP_PORTS", "30000-40000")
    assert "overlapping the kernel's" in found("ports").says
    monkeypatch.setenv("LINKFLAP_PORTS", "many")
    assert found("ports").ok is False
    assert "give a range such as 17000-32767" in found("ports").says


def test_leftovers_of_a_dead_run(bare: Path) -> None:
    assert found("leftovers").ok
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = process_identity.identify(child.pid)
    assert owner is not None
    entry = ledger.OwnerEntry(
        owner=owner, folders=("/nonexistent/folder",), engines=("",), contained=(owner,)
    )
    (ledger.folder() / f"{owner.pid}-{owner.born.rpartition('/')[2]}.json").write_bytes(
        msgspec.json.encode(entry)
    )
    assert found("leftovers").ok, "its owner is alive"
    child.communicate(b"\n", timeout=60)
    finding = found("leftovers")
    assert (finding.ok, finding.fix) == (None, "linkflap clean")
    assert finding.says == "of 1 dead runs, 2 things, and what is in the Docker engine"


def test_no_docker(bare: Path) -> None:
    finding = found("docker")
    assert finding.ok is False
    assert finding.needed_by == "docker"
    assert complete([finding], "process")
    assert not complete([finding], "docker")


def test_a_docker_engine_that_does_not_answer(
    bare: Path, deaf: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{deaf}")
    began = time.monotonic()
    assert found("docker").ok is False
    assert time.monotonic() - began < 60


def test_shown_without_a_terminal(bare: Path) -> None:
    executable(bare / "java", "echo 'version \"17.0.1\"' >&2")
    stream = io.StringIO()
    assert show(stream) == 0
    text = stream.getvalue()
    assert "runtime process: complete, or completes itself on first use" in text
    assert "\x1b" not in text
    assert os.linesep.join(text.splitlines()[:1]).split() == [
        "what",
        "found",
        "how",
        "to",
        "fix",
        "it",
    ]
