"""Every registered runtime obeys the registry's protocol, and its objects have exactly the methods
of their protocols."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from linkflap.harness.model import protocols
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.runtimes import RUNTIMES, check, runtime
from linkflap.harness.runtimes.attached import AttachedBroker, AttachedCluster, AttachedDeployment
from linkflap.harness.runtimes.kraft.broker import KafkaService, KraftBroker
from linkflap.harness.runtimes.kraft.cluster import KraftCluster
from linkflap.harness.runtimes.kraft.deployment import KraftDeployment
from linkflap.harness.runtimes.toxiproxy.link import ToxiproxyLink

PROMISED = {
    KraftBroker: protocols.Broker,
    KraftCluster: protocols.Cluster,
    KafkaService: protocols.Service,
    KraftDeployment: protocols.Deployment,
    ToxiproxyLink: protocols.Link,
    AttachedBroker: protocols.Broker,
    AttachedCluster: protocols.Cluster,
    AttachedDeployment: protocols.Deployment,
}


def public(kind: type) -> dict[str, object]:
    return {
        name: member for name, member in inspect.getmembers_static(kind) if not name.startswith("_")
    }


def parameters(member: object) -> list[str]:
    return (
        list(inspect.signature(member).parameters) if inspect.isfunction(member) else ["a property"]
    )


def obeys(kind: type, protocol: type) -> None:
    for name, member in public(protocol).items():
        assert name in public(kind), f"{kind.__name__} has no {name}"
        wanted, found = parameters(member), parameters(public(kind)[name])
        assert found[: len(wanted)] == wanted, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", PROMISED)
def test_objects_of_a_runtime_obey_their_protocol(kind: type) -> None:
    obeys(kind, PROMISED[kind])


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_has_one_way_to_deploy(name: str) -> None:
    assert list(inspect.signature(runtime(name)).parameters) == [
        "topology",
        "folder",
        "recorder",
        "wire",
    ]
    made = inspect.signature(runtime(name), eval_str=True).return_annotation
    assert issubclass(made, KraftDeployment)
    assert not inspect.isabstract(made)


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("asked", ["9.9.9", "/nonexistent/libs"])
def test_a_kafka_that_there_is_not_is_refused_before_anything_starts(name: str, asked: str) -> None:
    with pytest.raises(InputError):
        check(name, Topology(clusters=(ClusterSpec(name="A", kafka=asked),), links=()))


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("linkflap.harness.machine.children", "Child"),
        ("linkflap.harness.runtimes.docker.container", "ContainerRun"),
    ],
)
def test_process_and_container_can_be_broken_in_the_same_ways(module: str, kind: str) -> None:
    obeys(getattr(import_module(module), kind), protocols.Running)


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("linkflap.harness.runtimes.process", "ChildSidecar"),
        ("linkflap.harness.runtimes.docker.deployment", "ContainerSidecar"),
    ],
)
def test_a_mirror_of_ours_finds_the_same_surroundings_wherever_it_runs(
    module: str, kind: str
) -> None:
    made = getattr(import_module(module), kind)
    assert {name for name in public(protocols.Sidecar) if name != "address"} <= set(public(made))


def test_containers_allow_what_faults_do_to_them() -> None:
    obeys(
        import_module("linkflap.harness.runtimes.docker.container").ContainerConfinement,
        protocols.Confines,
    )
