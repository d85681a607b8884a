"""What a run records of its machine: in run.json, as text for a person, and left out where the
machine does not report it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import confluent_kafka
import msgspec
import pytest

from linkflap.harness.machine import java, wheels
from linkflap.harness.machine.java import Java
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import RunReader, RunWriter
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.kraft.deployment import KraftDeployment
from linkflap.harness.runtimes.kraft.installation import Installation
from linkflap.recording import surroundings as module
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.report import html
from tests.unit.recorded_run import Recorded, run
from tests.unit.recorded_verdict import document

TWO = Topology(
    clusters=(ClusterSpec(name="A", kafka="3.9.2"), ClusterSpec(name="B", kafka="4.3.1")), links=()
)


@pytest.fixture(autouse=True)
def one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def test_clients_python_processors_and_the_java_of_every_kafka() -> None:
    said = surroundings(TWO, "process")
    assert said["Python"] == platform.python_version()
    assert said["librdkafka"] == confluent_kafka.libversion()[0]
    assert said["confluent-kafka"] == str(confluent_kafka.__version__)
    assert int(said["processors"].split(" ")[0]) == len(os.sched_getaffinity(0))
    assert (said["Java for Kafka 3.9.2"], said["Java for Kafka 4.3.1"]) == ("21.0.8", "21.0.8")


def test_what_linkflap_sets_on_brokers_is_said_by_size_of_cluster() -> None:
    three = replace(TWO.clusters[0], brokers=3)
    said = surroundings(replace(TWO, clusters=(three, TWO.clusters[1])), "docker")
    assert "min.insync.replicas=2, " in said["set by linkflap on A"]
    assert "min.insync.replicas=1, " in said["set by linkflap on B"]
    assert "broker.session.timeout.ms=3000" in said["set by linkflap on B"]
    assert "set by linkflap on A, B" in surroundings(TWO, "docker")


class InContainers:
    """A deployment whose brokers run in images with a Java of their own."""

    javas: Mapping[str, str] = {"4.3.1": "21", "3.9.2": "17"}


def test_brokers_in_containers_have_the_java_of_their_image() -> None:
    assert not [name for name in surroundings(TWO, "docker") if name.startswith("Java")], (
        "this machine's says nothing"
    )
    assert java_inside(cast(Deployment, InContainers())) == {
        "Java for Kafka 3.9.2": "17",
        "Java for Kafka 4.3.1": "21",
    }


def test_what_the_runtime_knows_of_java_is_added_where_nothing_is_said(tmp_path: Path) -> None:
    writer = RunWriter(
        tmp_path / "run",
        replace(run(), environment={"system": "x", "Java for Kafka 4.3.1": "21.0.8"}),
    )
    writer.describe(java_inside(cast(Deployment, InContainers())))
    said = {"Java for Kafka 3.9.2": "17", "Java for Kafka 4.3.1": "21.0.8", "system": "x"}
    assert RunReader(writer.root).run.environment == said
    writer.close("finished")
    assert RunReader(writer.root).run.environment == said


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
    javas = vars(KraftDeployment)["javas"].fget
    assert javas(SimpleNamespace(_installations=installed)) == {"3.9.2": "17", "4.3.1": "21"}


def test_where_no_java_will_do_the_package_is_named_and_not_installed(
    one_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one_java / "release").write_text('JAVA_VERSION="11.0.1"\n')
    monkeypatch.setenv("PATH", str(one_java))
    assert java.described("4.3.1") == wheels.JAVA
    assert java.described("3.9.2") == wheels.JAVA_FOR_KAFKA_3


def test_a_machine_that_does_not_name_its_processors_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROCESSORS", tmp_path / "none")
    assert surroundings(TWO, "docker")["processors"].isdigit()


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
