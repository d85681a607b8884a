"""The library of a workload's clients: from the file, the options, or the clusters' release."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.chaos import scenario_file
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.harness.model.clients import Library, libraries
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.recording.run import check
from linkflap.harness.workloads import jvms
from linkflap.harness.workloads.make_crew import PER_PROCESS, _shared_out
from linkflap.harness.workloads.protocol import Hosted
from linkflap.topologies import parse


@pytest.mark.parametrize(
    ("text", "libraries_"),
    [
        ("librdkafka", [Library(name="librdkafka")]),
        ("java", [Library(name="java")]),
        (
            "java@3.9.2, librdkafka",
            [Library(name="java", release="3.9.2"), Library(name="librdkafka")],
        ),
    ],
)
def test_whose_clients(text: str, libraries_: list[Library]) -> None:
    assert list(libraries(text)) == libraries_
    assert [str(one) for one in libraries(text)] == [word.strip() for word in text.split(",")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "jave",
            (
                r"there are no clients 'jave' \(did you mean 'java'\?\); known: librdkafka,"
                r" java, and java@3\.9\.2"
            ),
        ),
        ("java@", "clients 'java@' name no release"),
        ("librdkafka@2.0", "clients 'librdkafka@2.0' name no release"),
        ("java@1.0", r"no list of jars is kept for Kafka '1\.0'"),
        ("java@/nowhere", "there is no directory /nowhere"),
        ("java,", "there are no clients ''"),
    ],
)
def test_clients_that_there_are_not(text: str, sentence: str) -> None:
    made = scenario("baseline", ScenarioRequest(seed=1, clients=text))
    with pytest.raises(InputError, match=sentence):
        check(made, "process")


def test_several_libraries_take_turns_and_share_no_process() -> None:
    hosted = [Hosted(name=f"c-{number}", cluster="A") for number in range(8)]
    shared = [
        (str(library), [each.name for each in some])
        for library, some in _shared_out(hosted, libraries("java,librdkafka"))
    ]
    assert shared == [
        ("java", ["c-0", "c-2", "c-4"]),
        ("java", ["c-6"]),
        ("librdkafka", ["c-1", "c-3", "c-5"]),
        ("librdkafka", ["c-7"]),
    ]
    assert max(len(some) for _, some in shared) <= PER_PROCESS


def test_a_workload_with_one_client_has_the_first_library() -> None:
    hosted = [Hosted(name="c-0", cluster="A")]
    assert [
        (str(library), len(some))
        for library, some in _shared_out(hosted, libraries("java,librdkafka"))
    ] == [("java", 1)]


def test_java_is_the_newest_release_of_the_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(jvms, "_installed", fetched.append)
    specs = [
        WorkloadSpec(kind="relay", home="A", library=text)
        for text in ("java", "java@3.9.1,librdkafka", "librdkafka")
    ]
    topology = parse("A@3.9.2->B@3.8.1")
    assert [spec.library for spec in jvms.resolve(specs, topology)] == [
        "java@3.9.2",
        "java@3.9.1,librdkafka",
        "librdkafka",
    ]
    assert fetched == ["3.9.2", "3.9.1"]


def test_a_built_in_scenario_has_the_clients_that_were_asked_for(tmp_path: Path) -> None:
    made = scenario("relay", ScenarioRequest(seed=3, clients="java@3.9.2"))
    assert {spec.library for spec in made.workloads} == {"java@3.9.2"}
    path = tmp_path / "saved.toml"
    scenario_file.save(made, path)
    assert 'clients = "java@3.9.2"' in path.read_text()
    assert scenario_file.read(path, seed=0) == made


def test_a_file_names_clients_for_all_and_for_one(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(
        'schema = 1\nname = "mixed"\ntopology = "A->B"\nclients = "java"\n'
        '[[workload]]\nkind = "transactional"\nhome = "A"\n'
        '[[workload]]\nkind = "readers"\nhome = "A"\nlibrary = "librdkafka"\n'
        '[[workload]]\ncommand = ["/bin/true"]\nhome = "A"\n'
    )
    read = scenario_file.read(path, seed=1)
    assert [spec.library for spec in read.workloads] == ["java", "librdkafka", "librdkafka"]
    again = tmp_path / "again.toml"
    scenario_file.save(read, again)
    assert scenario_file.read(again, seed=1).workloads == read.workloads
    path.write_text(path.read_text().replace('clients = "java"', 'clients = "jave"'))
    with pytest.raises(InputError, match=r"mixed\.toml, line 4: there are no clients 'jave'"):
        scenario_file.read(path, seed=1)
    path.write_text(
        path.read_text().replace('"jave"', '"java"').replace('"librdkafka"', '"java@1.0"')
    )
    with pytest.raises(
        InputError, match=r"mixed\.toml, line 11: no list of jars is kept for Kafka '1\.0'"
    ):
        scenario_file.read(path, seed=1)
