"""A broker's configuration: listeners, advertised addresses, and replication factors."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from linkflap.harness.machine.java import properties_file
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.runtimes import RUNTIMES, runtime
from linkflap.harness.runtimes.kraft.configuration import BrokerPorts, paths_into, server_properties
from linkflap.harness.runtimes.kraft.installation import expected_features, fresh_id


def chain(*names: str) -> Topology:
    links = tuple(LinkSpec(source=a, destination=b) for a, b in itertools.pairwise(names))
    return Topology(clusters=tuple(ClusterSpec(name=name) for name in names), links=links)


def properties(text: str) -> dict[str, str]:
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    assert len(dict(pairs)) == len(pairs), "a setting that is given twice hides one"
    return dict(pairs)


def test_every_joined_pair_has_listeners_in_both_directions() -> None:
    topology = chain("A", "B", "C")
    assert paths_into(topology, "A") == {"A->B": "LINK_B", "*->A": "ACCESS"}
    assert paths_into(topology, "B") == {"B->A": "LINK_A", "B->C": "LINK_C", "*->B": "ACCESS"}
    assert paths_into(topology, "C") == {"C->B": "LINK_B", "*->C": "ACCESS"}


def test_a_round_trip_has_one_listener_for_both_of_its_links() -> None:
    topology = Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")),
        links=(LinkSpec(source="A", destination="B"), LinkSpec(source="B", destination="A")),
    )
    assert paths_into(topology, "A") == {"A->B": "LINK_B", "*->A": "ACCESS"}


def test_names_that_kafka_cannot_tell_apart_are_refused() -> None:
    topology = Topology(
        clusters=tuple(ClusterSpec(name=name) for name in ("A", "b", "B")),
        links=(LinkSpec(source="A", destination="b"), LinkSpec(source="A", destination="B")),
    )
    with pytest.raises(InputError, match="upper and lower case"):
        paths_into(topology, "A")


def nodes(count: int) -> dict[int, BrokerPorts]:
    return {
        node: BrokerPorts(
            listens={
                "INTERNAL": node * 10,
                "CLIENT": node * 10 + 1,
                "CONTROLLER": node * 10 + 2,
                "LINK_B": node * 10 + 3,
            },
            advertised={"LINK_B": f"127.0.0.1:{9000 + node}"},
        )
        for node in range(1, count + 1)
    }


def test_only_the_link_is_advertised_elsewhere_and_everything_is_on_loopback() -> None:
    found = properties(server_properties(2, nodes(3), Path("/data"), {}))
    assert "LINK_B://127.0.0.1:23" in found["listeners"].split(",")
    assert found["advertised.listeners"].split(",") == [
        "INTERNAL://127.0.0.1:20",
        "CLIENT://127.0.0.1:21",
        "LINK_B://127.0.0.1:9002",
    ]
    assert found["controller.quorum.voters"] == "1@127.0.0.1:12,2@127.0.0.1:22,3@127.0.0.1:32"


@pytest.mark.parametrize(
    ("count", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_have_three_replicas_as_far_as_there_are_brokers(
    count: int, replicas: str, in_sync: str
) -> None:
    found = properties(server_properties(1, nodes(count), Path("/data"), {}))
    assert (
        found["transaction.state.log.replication.factor"]
        == found["offsets.topic.replication.factor"]
        == replicas
    )
    assert found["transaction.state.log.min.isr"] == in_sync


def test_ids_do_not_start_with_a_dash() -> None:
    ids = {fresh_id() for _ in range(500)}
    assert len(ids) == 500
    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)


def test_a_template_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no readable bootstrap checkpoint"):
        expected_features(tmp_path)


def test_an_unknown_runtime_names_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=f"there is no runtime 'cloud'; known: {', '.join(RUNTIMES)}"
    ):
        runtime("cloud")


def test_values_of_properties_files_are_escaped_as_java_reads_them() -> None:
    # java.util.Properties: a backslash begins an escape, and bytes are Latin-1
    values = {"a": "C:\\x", "b": "jürgen 🚀", "c": "x=#!: y", "d": "two\nlines\r"}
    assert properties_file(values) == (
        "a=C:\\\\x\nb=j\\u00fcrgen \\ud83d\\ude80\nc=x=#!: y\nd=two\\u000alines\\u000d\n"
    )


def test_a_folder_with_a_comma_is_refused() -> None:
    with pytest.raises(InputError, match="/runs/a,b/data has a comma"):
        server_properties(1, nodes(1), Path("/runs/a,b/data"), {})
