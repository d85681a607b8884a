"""Topics have a home, and no link carries one back to it: a ring of mirrors under one topic cannot be asked for."""

from __future__ import annotations

import itertools

import pytest

from linkflap.chaos.scenarios.base import Wish
from linkflap.chaos.scenarios.chain_flap import build, homes
from linkflap.chaos.schedule import check
from linkflap.chaos.triggers import after
from linkflap.topologies import parse

EVERY = ("A->B", "A->B->C", "A<->B", "A->C, B->C", "A->B, A->C", "A->B->C->A", "A<->B<->C", "A->B->C->D->A")


@pytest.mark.parametrize("arrows", EVERY)
def test_no_link_carries_a_topic_back_to_its_home_or_twice_to_a_cluster(arrows):
    topology = parse(arrows)
    for cluster in topology.clusters:
        carried = [home for link in topology.links if link.destination == cluster.name for home in topology.homes_over(link)]
        assert cluster.name not in carried
        assert len(carried) == len(set(carried))


def test_a_ring_carries_each_topic_once_round():
    ring = parse("A->B->C->A")
    assert {link.name: ring.homes_over(link) for link in ring.links} == {
        "A->B": ("A", "C"),
        "B->C": ("A", "B"),
        "C->A": ("B", "C"),
    }


@pytest.mark.parametrize(
    ("arrows", "begin"), [("A->B->C", "A"), ("A<->B", "AB"), ("A->C, B->C", "AB"), ("A->B, A->C", "A"), ("A->B->C->A", "ABC")]
)
def test_chain_flap_has_clients_wherever_topics_begin_and_breaks_every_hop(arrows, begin):
    topology = parse(arrows)
    assert "".join(homes(topology)) == begin
    chosen = build(Wish(seed=5, topology=topology))
    assert chosen == build(Wish(seed=5, topology=topology)) != build(Wish(seed=6, topology=topology))
    check(chosen.schedule, topology)
    for link in topology.links:
        of_link = [fault for fault in chosen.schedule if fault.target == link.name and fault.duration]
        kinds = ["link-flap", "link-half-open", "link-half-open", "link-latency"]
        assert sorted(fault.fault for fault in of_link) == kinds
        assert of_link[0].when == "always"
        assert all(other.when == after(one.id) for one, other in itertools.pairwise(of_link))
    failovers = {"A<->B": ["failover-planned"], "A->B->C->A": []}.get(arrows, ["failover-forced"])
    assert [fault.fault for fault in chosen.schedule if not fault.duration] == failovers
    groups = {w.home: w.options["group"] for w in chosen.workloads if "group" in w.options}
    assert len(set(groups.values())) == len(begin)
