"""Machines that lack something: the doctor, no docker packages, no writable home; and what a run
records of its machine."""

from __future__ import annotations

import io
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import confluent_kafka
import msgspec
import pytest

import linkflap
from linkflap.cli import doctor
from linkflap.cli.doctor import Finding, complete, examine, show
from linkflap.harness.machine import cache, docker_package, java, ledger, process_identity, wheels
from linkflap.harness.machine.cache import OFFLINE
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import FAILED, SetupError
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.harness.runtimes.distribution import toxiproxy_server
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.kraft.deployment import DeploymentParts
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.recording import surroundings as module
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.report import html
from tests.command_line import ran, unprivileged
from tests.unit.recorded_run import Recorded, run
from tests.unit.recorded_verdict import document


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


def test_offline_an_empty_cache_is_a_lack(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    lacking = {finding.name for finding in examine() if finding.ok is False}
    assert lacking >= {"java", "spark", "kafka", "toxiproxy"}


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
    assert " ".join(text.splitlines()[0].split()) == "what found how to fix it"


# Without the packages of the docker runtime (`linkflap[docker]`) everything else works, and
# what needs them names what to install.


_ROOT = Path(__file__).resolve().parents[2]
_FIX = "pip install 'linkflap[docker]'"
_WITHOUT = """
import sys
for name in ("docker", "testcontainers", "pandas"):
    sys.modules[name] = None
from linkflap.cli import main
main()
"""


_THEIRS = """
import sys
import docker as theirs
from linkflap.harness import runtimes
from linkflap.harness.machine import docker_package
from linkflap.topologies import parse

for _ in range(2):
    runtimes.check("docker", parse("A->B"))
    with docker_package.importable():
        import docker as installed
        from docker.errors import NotFound
    import docker
    assert docker is theirs and docker.theirs, docker
from linkflap.harness.runtimes.docker import container
assert installed.from_env and container.NotFound is NotFound
assert [name for name in sys.modules if name.startswith(("docker.", "testcontainers"))] == []
assert not any("site-packages" in path for path in sys.path[:1])
"""


def without(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, *words]
    return ran(command, within=300, cwd=cwd)


@pytest.mark.parametrize(
    "words", [["run", "baseline", "--dry-run", "--runtime", "docker"], ["images", "check"]]
)
def test_errors_without_them_name_what_to_install(words: list[str], tmp_path: Path) -> None:
    done = without(*words, cwd=tmp_path)
    said = (
        f"linkflap: the docker runtime needs the package docker, which is not installed: {_FIX}; "
        "--runtime process needs none\n"
    )
    assert (done.returncode, done.stderr) == (255, said)


def test_commands_work_without_the_docker_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "ledger"))
    dry = ["run", "baseline", "--dry-run", "--runtime", "process"]
    assert without(*dry, cwd=tmp_path).returncode == 0
    assert without("clean", cwd=tmp_path).returncode == 0
    done = without("doctor", cwd=tmp_path)
    assert "the package docker is not installed" in done.stdout
    assert "linkflap[docker]" in done.stdout
    assert "runtime docker: lacks docker" in done.stdout


def test_docker_packages_are_an_extra_that_the_demo_does_not_install() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    names = {each.partition(">")[0].partition("<")[0].strip() for each in project["dependencies"]}
    assert not names & {"docker", "testcontainers", "pandas", "matplotlib"}
    assert {each.partition(">")[0] for each in project["optional-dependencies"]["docker"]} == {
        "docker",
        "testcontainers",
    }
    tox = (_ROOT / "tox.ini").read_text()
    demo = tox.partition("[testenv:demo]")[2].partition("\n[")[0]
    assert "\ndeps =\n" in demo
    assert "\nextras =\n" in demo


def test_a_folder_of_the_projects_own_called_docker_is_left_to_it(tmp_path: Path) -> None:
    pytest.importorskip("testcontainers")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "__init__.py").write_text("theirs = True\n")
    done = ran([sys.executable, "-c", _THEIRS], within=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_folder_called_docker_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_installed(name: str) -> None:
        raise PackageNotFoundError(name)

    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(docker_package, "distribution", none_installed)
    assert docker_package.lacking() == "docker"
    with docker_package.importable():  # nothing to import instead
        assert str(tmp_path) == sys.path[0]


# A user of a container whose home is not writable, and whose site-packages belong to root.
# linkflap needs neither.


_NOWHERE = "/proc/none"
"""A home that nobody can create, not even root."""


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No home, and a temporary directory, which it returns."""
    monkeypatch.setenv("HOME", _NOWHERE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LINKFLAP_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_the_cache_is_a_folder_of_ones_own_in_the_temporary_directory(
    homeless: Path,
) -> None:
    own = homeless / f"linkflap-cache-{os.getuid()}"
    assert cache.folder() == cache.folder() == own
    assert own.stat().st_mode & 0o777 == 0o700
    assert not cache.home_is_writable()
    said = doctor.look_at_cache()
    assert said.ok is not False
    assert str(own) in said.says
    assert f"{_NOWHERE}/.cache/linkflap cannot be written" in said.says


def test_a_folder_that_others_may_write_is_no_cache(homeless: Path) -> None:
    own = homeless / f"linkflap-cache-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(SetupError, match=r"set LINKFLAP_CACHE to a folder that can"):
        cache.folder()
    own.rmdir()
    homeless.chmod(0o1777)
    (homeless / "theirs").mkdir()
    own.symlink_to(homeless / "theirs")
    with pytest.raises(SetupError, match=r"set LINKFLAP_CACHE"):
        cache.folder()


def test_commands_work_for_a_user_who_can_write_neither_home_nor_site_packages(
    tmp_path: Path,
) -> None:
    """As root without root's capabilities, which cannot write a read-only copy of the package."""
    package = tmp_path / "site" / "linkflap"
    shutil.copytree(
        Path(linkflap.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in (package, *package.rglob("*")):
        path.chmod(0o555)
    own = {"HOME": _NOWHERE, "PYTHONPATH": str(package.parent), "TMPDIR": str(tmp_path)}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "LINKFLAP_CACHE", "XDG_CACHE_HOME")
    }
    script = """
import linkflap.harness, os, sys
from linkflap.harness.log import record_loops, records, segments
from linkflap.harness.machine import cache
assert not os.access(os.path.dirname(records.__file__), os.W_OK)
print(linkflap.harness.__file__, os.environ["NUMBA_CACHE_DIR"])
from linkflap.cli import main
sys.argv = ["linkflap", "list"]
main()
"""
    try:
        done = ran(
            [*unprivileged(), sys.executable, "-c", script],
            within=300,
            env=kept | own,
            cwd=tmp_path,
        )
    finally:
        for path in (package, *package.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"{package}/harness/__init__.py {tmp_path}/linkflap-cache-{os.getuid()}/numba"
    )
    assert "link-flap" in done.stdout


# What a run records of its machine: in run.json, as text for a person, and left out where the
# machine does not report it.


TWO = Topology(
    clusters=(ClusterSpec(name="A", kafka="3.9.2"), ClusterSpec(name="B", kafka="4.3.1")), links=()
)


@pytest.fixture
def one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


@pytest.mark.usefixtures("one_java")
def test_clients_python_processors_and_the_java_of_every_kafka() -> None:
    said = surroundings(TWO, "process")
    assert said["Python"] == platform.python_version()
    assert said["librdkafka"] == confluent_kafka.libversion()[0]
    assert said["confluent-kafka"] == str(confluent_kafka.__version__)
    assert int(said["processors"].split(" ")[0]) == len(os.sched_getaffinity(0))
    assert (said["Java for Kafka 3.9.2"], said["Java for Kafka 4.3.1"]) == ("21.0.8", "21.0.8")


@pytest.mark.usefixtures("one_java")
def test_settings_of_brokers_are_described_by_size_of_cluster() -> None:
    three = replace(TWO.clusters[0], brokers=3)
    said = surroundings(replace(TWO, clusters=(three, TWO.clusters[1])), "docker")
    assert "min.insync.replicas=2, " in said["set by linkflap on A"]
    assert "min.insync.replicas=1, " in said["set by linkflap on B"]
    assert "broker.session.timeout.ms=3000" in said["set by linkflap on B"]
    assert "set by linkflap on A, B" in surroundings(TWO, "docker")


class InContainers:
    """A deployment whose brokers run in images with a Java of their own."""

    javas: Mapping[str, str] = {"4.3.1": "21", "3.9.2": "17"}


@pytest.mark.usefixtures("one_java")
def test_brokers_in_containers_have_the_java_of_their_image() -> None:
    assert not [name for name in surroundings(TWO, "docker") if name.startswith("Java")], (
        "this machine's says nothing"
    )
    assert java_inside(cast(Deployment, InContainers())) == {
        "Java for Kafka 3.9.2": "17",
        "Java for Kafka 4.3.1": "21",
    }


@pytest.mark.usefixtures("one_java")
def test_java_of_the_runtime_is_added_to_run_json(tmp_path: Path) -> None:
    writer = RunWriter(
        tmp_path / "run",
        replace(run(), environment={"system": "x", "Java for Kafka 4.3.1": "21.0.8"}),
    )
    writer.describe(java_inside(cast(Deployment, InContainers())))
    said = {"Java for Kafka 3.9.2": "17", "Java for Kafka 4.3.1": "21.0.8", "system": "x"}
    assert RunReader(writer.root).run.environment == said
    writer.close("finished")
    assert RunReader(writer.root).run.environment == said


@pytest.mark.usefixtures("one_java")
def test_a_deployment_says_the_java_of_each_kafka_that_it_installed(tmp_path: Path) -> None:
    """For an image, the Java that the image itself reported when it was first used (`java_inside`
    of docker's images)."""
    installed = {
        asked: Installation(
            kafka=Kafka(version=asked, jars=(), key=asked),
            java=Java(path=Path("java"), major=major),
            template=tmp_path,
            archives=None,
            image="some",
        )
        for asked, major in (("3.9.2", 17), ("4.3.1", 21))
    }
    javas = vars(DeploymentParts)["javas"].fget
    assert javas(SimpleNamespace(_installations=installed)) == {"3.9.2": "17", "4.3.1": "21"}


@pytest.mark.usefixtures("one_java")
def test_unsuitable_java_names_the_package_without_installing_it(
    one_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one_java / "release").write_text('JAVA_VERSION="11.0.1"\n')
    monkeypatch.setenv("PATH", str(one_java))
    assert java.described("4.3.1") == wheels.JAVA
    assert java.described("3.9.2") == wheels.JAVA_FOR_KAFKA_3


@pytest.mark.usefixtures("one_java")
def test_a_machine_that_does_not_name_its_processors_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROCESSORS", tmp_path / "none")
    assert surroundings(TWO, "docker")["processors"].isdigit()


@pytest.mark.usefixtures("one_java")
def test_the_report_has_it_and_an_older_run_is_read_without(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run").write().close()
    path = folder / "run.json"
    content = msgspec.json.decode(path.read_bytes())
    path.write_bytes(
        msgspec.json.encode(content | {"environment": {"processors": "2 x <Best> CPU"}})
    )
    assert "<dt>processors</dt><dd>2 x &lt;Best&gt; CPU</dd>" in html.page(folder, document(folder))
    del content["environment"]
    path.write_bytes(msgspec.json.encode(content))
    assert RunReader(folder).run.environment == {}
    shown = html.page(folder, document(folder))
    assert "<dt>processors</dt>" not in shown
    assert (
        "<dt>topics</dt><dd>2 partitions, 3 replicas at most, no settings but those of "
        "linkflap</dd>" in shown
    )
    assert (
        "<dt>workload 1</dt><dd>2 transactional at A, no settings but those of linkflap</dd>"
        in shown
    )
