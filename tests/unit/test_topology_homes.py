"""Topics have a home, and no link mirrors them back to it: a ring of mirrors with one topic cannot
be requested."""

from __future__ import annotations

import itertools
import re

import pytest

from linkflap.chaos.scenarios import SCENARIOS
from linkflap.chaos.scenarios.base import ScenarioRequest, homes
from linkflap.chaos.scenarios.clusters import broker_loss
from linkflap.chaos.scenarios.links import chain_flap, link_flap
from linkflap.chaos.schedule import check, spared
from linkflap.chaos.triggers import after
from linkflap.harness.model.errors import InputError
from linkflap.topologies import parse

EVERY = (
    "A->B",
    "A->B->C",
    "A<->B",
    "A->C, B->C",
    "A->B, A->C",
    "A->B->C->A",
    "A<->B<->C",
    "A->B->C->D->A",
)


@pytest.mark.parametrize("arrows", EVERY)
def test_no_link_carries_a_topic_back_to_its_home_or_twice_to_a_cluster(arrows: str) -> None:
    topology = parse(arrows)
    for cluster in topology.clusters:
        carried = [
            home
            for link in topology.links
            if link.destination == cluster.name
            for home in topology.homes_over(link)
        ]
        assert cluster.name not in carried
        assert len(carried) == len(set(carried))


def test_a_ring_carries_each_topic_once_round() -> None:
    ring = parse("A->B->C->A")
    assert {link.name: ring.homes_over(link) for link in ring.links} == {
        "A->B": ("A", "C"),
        "B->C": ("A", "B"),
        "C->A": ("B", "C"),
    }


@pytest.mark.parametrize(
    ("arrows", "begin"),
    [
        ("A->B->C", "A"),
        ("A<->B", "AB"),
        ("A->C, B->C", "AB"),
        ("A->B, A->C", "A"),
        ("A->B->C->A", "ABC"),
    ],
)
def test_chain_flap_has_clients_wherever_topics_begin_and_breaks_every_hop(
    arrows: str, begin: str
) -> None:
    topology = parse(arrows)
    assert "".join(homes(topology)) == begin
    chosen = chain_flap(ScenarioRequest(seed=5, topology=topology))
    assert (
        chosen
        == chain_flap(ScenarioRequest(seed=5, topology=topology))
        != chain_flap(ScenarioRequest(seed=6, topology=topology))
    )
    check(chosen.schedule, topology)
    for link in topology.links:
        of_link = [
            fault for fault in chosen.schedule if fault.target == link.name and fault.duration
        ]
        kinds = ["link-flap", "link-half-open", "link-half-open", "link-latency"]
        assert sorted(fault.fault for fault in of_link) == kinds
        assert of_link[0].when == "always"
        assert all(other.when == after(one.id) for one, other in itertools.pairwise(of_link))
    failovers = [] if arrows == "A->B->C->A" else ["failover-forced"]
    assert [fault.fault for fault in chosen.schedule if not fault.duration] == failovers
    groups = {w.home: w.options["group"] for w in chosen.workloads if "group" in w.options}
    assert len(set(groups.values())) == len(begin)


@pytest.mark.parametrize("arrows", [each for each in EVERY if each != "A->B"])
def test_link_flap_breaks_every_link_and_has_clients_wherever_topics_begin(arrows: str) -> None:
    topology = parse(arrows)
    chosen = link_flap(ScenarioRequest(seed=5, topology=topology))
    check(chosen.schedule, topology)
    for link in topology.links:
        of_link = [
            fault.fault for fault in chosen.schedule if fault.target == link.name and fault.duration
        ]
        assert of_link == ["link-flap", "link-latency"]
    assert {workload.home for workload in chosen.workloads} == set(homes(topology))
    failovers = [] if arrows in ("A->B->C->A", "A->B->C->D->A") else ["failover-forced"]
    assert [fault.fault for fault in chosen.schedule if not fault.duration] == failovers


@pytest.mark.parametrize("arrows", EVERY)
def test_region_loss_kills_the_first_source_and_refuses_rings(arrows: str) -> None:
    topology = parse(arrows)
    request = ScenarioRequest(seed=5, topology=topology)
    if arrows in ("A->B->C->A", "A->B->C->D->A"):
        with pytest.raises(InputError, match="carries topics of A, C"):
            SCENARIOS["region-loss"](request)
        return
    chosen = SCENARIOS["region-loss"](request)
    check(chosen.schedule, topology)
    assert [(f.fault, f.target) for f in chosen.schedule] == [
        ("failover-forced", topology.links[0].name)
    ]
    assert {workload.home for workload in chosen.workloads} == set(homes(topology))


@pytest.mark.parametrize("name", ["baseline", "planned-failover", "mirror-crash", "half-open"])
@pytest.mark.parametrize("arrows", EVERY)
def test_faults_of_links_or_mirrors_target_every_one(name: str, arrows: str) -> None:
    topology = parse(arrows)
    chosen = SCENARIOS[name](ScenarioRequest(seed=5, topology=topology))
    check(chosen.schedule, topology)
    assert {workload.home for workload in chosen.workloads} == set(homes(topology))
    kinds = {
        link.name: [
            fault.fault
            for fault in chosen.schedule
            if fault.target == link.name and fault.fault != "failover-planned"
        ]
        for link in topology.links
    }
    expected = {
        "planned-failover": ["link-latency"],
        "mirror-crash": ["mirror-kill"],
        "half-open": ["link-half-open"] * 2,
    }
    assert set(map(tuple, kinds.values())) == {tuple(expected.get(name, []))}
    assert spared(chosen) == {}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_about_text_of_a_scenario_names_its_clusters(name: str) -> None:
    said = SCENARIOS[name](ScenarioRequest(seed=5, topology=parse("us-east:3->eu_west:3"))).about
    assert not re.search(r"\b[ABC]\b|[{}]", said), said


def test_links_that_a_schedule_does_nothing_to_are_named() -> None:
    fan_in = SCENARIOS["failover-open-transactions"](
        ScenarioRequest(seed=5, topology=parse("A->C, B->C"))
    )
    assert spared(fan_in) == {"B->C": False}
    chain = SCENARIOS["round-trip"](ScenarioRequest(seed=5, topology=parse("A->B->C")))
    assert spared(chain) == {"B->C": True}


def test_broker_loss_says_what_it_needs() -> None:
    with pytest.raises(
        InputError, match="A needs 3 or more and has 1; write --topology 'A:3->B:3'"
    ):
        broker_loss(ScenarioRequest(seed=5, topology=parse("A->B")))
    with pytest.raises(InputError, match="B needs 3 or more and has 1"):
        broker_loss(ScenarioRequest(seed=5, topology=parse("A:3->B")))
