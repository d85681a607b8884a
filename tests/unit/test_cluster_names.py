"""Clusters have the names that people use (us-east, eu_west), by one rule wherever a name is read
or becomes part of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.chaos import scenario_file
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.chaos.schedule import check as check_schedule
from linkflap.cli.log_options import _link, _named
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import LinkSpec, hyphen_free, is_data_topic, topic_name
from linkflap.harness.runtimes.docker.cluster import host_name
from linkflap.harness.runtimes.kraft import configuration
from linkflap.topologies import draw, parse
from linkflap.topologies.notation import arrows

NAMES = ["us-east", "eu_west", "A", "prod-us-east-1", "b2"]
WRONG = ["us.east", "-us", "us-", "us__east", "2us", "us east", "ü", "run", "SERVICES", "clients"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_everywhere(name: str, tmp_path: Path) -> None:
    text = f"{name}:3->Other"
    topology = parse(text)
    assert (topology.clusters[0].name, topology.clusters[0].brokers) == (name, 3)
    assert arrows(topology) == text
    assert name in draw(topology)
    assert _named("--logs", [f"{name}=/x"], "DIR", "x") == [(name, "/x")]
    assert _link(f"{name}->Other") == topology.links[0]
    wished = scenario("link-flap", ScenarioRequest(seed=1, topology=topology))
    scenario_file.save(wished, tmp_path / "it.toml")
    assert scenario_file.read(tmp_path / "it.toml", seed=1) == wished
    assert is_data_topic(topic_name(name, "orders"), (name,))


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_name_is_invalid_everywhere(name: str) -> None:
    for read in (
        lambda: parse(f"Other->{name}"),
        lambda: _named("--logs", [f"{name}=/x"], "DIR", "x"),
        lambda: _link(f"{name}->Other"),
    ):
        with pytest.raises(InputError):
            read()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_played_with_such_names(name: str) -> None:
    own = scenario(name, ScenarioRequest(seed=3)).topology
    called = {
        cluster.name: f"{('us-east', 'eu_west', 'ap-south_1')[n]}"
        for n, cluster in enumerate(own.clusters)
    }
    text = arrows(own)
    for old, new in called.items():
        text = text.replace(old, new)
    wished = scenario(name, ScenarioRequest(seed=3, topology=parse(text)))
    check_schedule(wished.schedule, wished.topology)


def test_mirror_maker_has_them_as_aliases() -> None:
    link = LinkSpec(source="us-east", destination="eu_west")
    values = mm2_config.properties(
        mm2_config.options({"delivery": "exactly-once"}),
        link,
        source="a:1",
        destination="b:1",
        topics="x",
        replicas=1,
        port=1,
    )
    assert values["clusters"] == "us-east,eu_west"
    assert values["us-east->eu_west.enabled"] == "true"
    assert values["eu_west.exactly.once.source.support"] == "enabled"


def test_made_names_can_be_read_in_one_way() -> None:
    assert host_name("us-east", 1) == "us.east-1" != host_name("us", 1)
    assert hyphen_free("a-b") + "-" + hyphen_free("c") != hyphen_free("a") + "-" + hyphen_free(
        "b-c"
    )
    assert configuration.link_listener("us-east") != configuration.link_listener("us_east")
