"""The notation of topologies and its rows, the names of clusters and topics, and the homes of
topics."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.chaos import scenario_file
from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.chaos.scenarios.coded import broker_loss, chain_flap, link_flap
from linkflap.chaos.schedule import check as check_schedule
from linkflap.chaos.schedule import untouched_links
from linkflap.chaos.triggers import after
from linkflap.cli.log_options import _link, _named
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import (
    DEFAULT_KAFKA,
    ClusterSpec,
    LinkSpec,
    Topology,
    hyphen_free,
    is_data_topic,
    topic_name,
)
from linkflap.harness.runtimes.docker.cluster import host_name
from linkflap.harness.runtimes.kraft import cluster as kraft_cluster
from linkflap.harness.runtimes.kraft import configuration
from linkflap.topologies import TOPOLOGIES
from linkflap.topologies.named import chain, check, fan_in
from linkflap.topologies.notation import arrows, parse, rows

# The notation: its meaning, writing and reading it back, and the error for each malformed text.


def links(topology: Topology) -> list[str]:
    return [link.name for link in topology.links]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A->B", ["A->B"]),
        ("  A -> B ", ["A->B"]),
        ("A->B->C", ["A->B", "B->C"]),
        ("A<->B", ["A->B", "B->A"]),
        ("A->B, A->C", ["A->B", "A->C"]),
        ("A->C;B->C", ["A->C", "B->C"]),
        ("A->B->C->A", ["A->B", "B->C", "C->A"]),
        ("A<->B->C", ["A->B", "B->A", "B->C"]),
        ("pair", ["A->B"]),
        ("chain", ["A->B", "B->C"]),
        ("round_trip", ["A->B", "B->A"]),
        ("round-trip", ["A->B", "B->A"]),
        ("fan_in", ["A->C", "B->C"]),
        ("fan_out", ["A->B", "A->C"]),
        ("ring", ["A->B", "B->C", "C->A"]),
    ],
)
def test_links(text: str, expected: list[str]) -> None:
    assert links(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "name", "brokers", "kafka"),
    [
        ("A->B", "B", 1, DEFAULT_KAFKA),
        ("A:3->B", "A", 3, DEFAULT_KAFKA),
        ("A@3.9.2->B", "A", 1, "3.9.2"),
        ("A@3.9.2:3->B", "A", 3, "3.9.2"),
        ("A@./dist->B", "A", 1, "./dist"),
        ("A@./my-dist-1.0/libs-:3<->B", "A", 3, "./my-dist-1.0/libs-"),
        ('A@"./my dist"->B', "A", 1, "./my dist"),
        ('A@"./a->b, ""c"":9":3->B', "A", 3, './a->b, "c":9'),
        ('A@"apache/kafka:4.3.1"->B', "A", 1, "apache/kafka:4.3.1"),
        ("A@~/kafka->B", "A", 1, "~/kafka"),
        ("A->B, A:3->C", "A", 3, DEFAULT_KAFKA),
        ("A:3->B, A:3->C", "A", 3, DEFAULT_KAFKA),
        ("pair:3", "B", 3, DEFAULT_KAFKA),
        ("ring@./my-dist:3", "C", 3, "./my-dist"),
    ],
)
def test_clusters(text: str, name: str, brokers: int, kafka: str) -> None:
    assert parse(text).cluster(name) == ClusterSpec(name=name, brokers=brokers, kafka=kafka)


@pytest.mark.parametrize(
    ("text", "bootstrap"),
    [
        ("A@bootstrap:localhost:9092->B@bootstrap:b:1", "localhost:9092"),
        ('A@"bootstrap:one:9092,two:9093"->B@bootstrap:b:1', "one:9092,two:9093"),
        ("A@bootstrap:[::1]:9092<->B@bootstrap:b-1:1", "[::1]:9092"),
    ],
)
def test_clusters_that_run_already(text: str, bootstrap: str) -> None:
    topology = parse(text)
    assert topology.attached
    assert topology.cluster("A") == ClusterSpec(name="A", bootstrap=bootstrap)
    assert arrows(topology) == text


@pytest.mark.parametrize("source", ["secret/east.properties", "env:EAST", "a path, with->spaces"])
@pytest.mark.parametrize("address", ["bootstrap:one:1", '"bootstrap:one:1,two:2"'])
def test_how_a_cluster_that_runs_already_is_entered(source: str, address: str) -> None:
    text = f"A@{address}{{{source}}}->B@bootstrap:b:1, A->C@bootstrap:c:1"
    topology = parse(text)
    assert (topology.cluster("A").properties, topology.cluster("A").security) == (source, "")
    assert topology.cluster("B").properties == ""
    assert arrows(topology) == text


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ("A", ClusterSpec(name="A")),
        ("A-B", ClusterSpec(name="A-B")),
        ("A:3{tls}", ClusterSpec(name="A", brokers=3, security="tls")),
        ("A@3.9.2:5", ClusterSpec(name="A", kafka="3.9.2", brokers=5)),
        ('A@"./some libs"', ClusterSpec(name="A", kafka="./some libs")),
        ("A@bootstrap:localhost:9092", ClusterSpec(name="A", bootstrap="localhost:9092")),
    ],
)
def test_topology_of_one_cluster_is_parsed_and_written(text: str, cluster: ClusterSpec) -> None:
    topology = parse(text)
    assert topology == Topology(clusters=(cluster,), links=())
    assert arrows(topology) == text
    assert topology.homes == (cluster.name,)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", "", "the topology is empty"),
        (" \n", "", "the topology is empty"),
        ("A:3, B->C", "character 1", "A stands alone beside other clusters"),
        ("B->C, A", "character 7", "A stands alone beside other clusters"),
        ("A, B", "character 1", "A stands alone beside other clusters"),
        ("A,", "character 1", "A stands alone beside other clusters"),
        ("east", "character 1", "or one cluster whose name begins with a capital letter"),
        ("A->", "character 4", "a cluster is missing at the end of the arrow -> after A"),
        ("A->,B->C", "character 4", "a cluster is missing at the end of the arrow -> after A"),
        ("->B", "character 1", "a cluster is missing before '->B'"),
        ("A-->B", "character 2", "'-->' is not an arrow; write ->"),
        ("A=>B", "character 2", "'=>' is not an arrow; write ->"),
        ("A→B", "character 2", "'→' is not an arrow; write ->"),
        ("A>B", "character 2", "'>' is not an arrow; write ->"),
        ("A->->B", "character 2", "'->->' is not an arrow; write ->"),
        ("A<-B", "character 2", "the arrow '<-' points backwards; write B->A"),
        ("A<>B", "character 2", "for links in both directions write <->"),
        ("A<=>B", "character 2", "for links in both directions write <->"),
        ("A->B->B", "character 5", "the link B->B leads from a cluster to itself"),
        ("A->B, A->B", "character 8", "the link A->B is there twice"),
        ("A<->B, B->A", "character 9", "the link B->A is there twice"),
        (
            "A:3->B, A:1->C",
            "character 9",
            "cluster A is given twice with different brokers (1 and 3)",
        ),
        (
            "A@3.9.2->B, A@4.0.0->C",
            "character 13",
            "cluster A is given twice with different Kafka (3.9.2 and 4.0.0)",
        ),
        ("9A->B", "character 1", "'9A' is not a cluster's name"),
        ("A->É", "character 4", "'É' is not a cluster's name"),
        ("A->" + "B" * 33, "character 4", "has 33 characters, and 32 are the most"),
        ("A->B:0", "character 6", "cluster B has 0 brokers; it needs at least 1"),
        ("A->B:-3", "character 6", "cluster B has -3 brokers; it needs at least 1"),
        ("A->B:10", "character 6", "cluster B has 10 brokers, and 9 are the most"),
        ("A->B:2", "character 6", "a quorum that the death of either one stops; use B:1 or B:3"),
        ("A->B:x", "character 6", "the brokers of B are 'x', which is no number"),
        ("A->B:", "character 6", "the brokers of B are '', which is no number"),
        ("A->B:1.5", "character 6", "the brokers of B are '1.5', which is no number"),
        ("A:->B", "character 3", "the brokers of A are '', which is no number"),
        ("A@apache/kafka:4.3.1->B", "character 16", 'in double quotes: A@"apache/kafka:4.3.1"'),
        ("A@->B", "character 3", "the Kafka version of A is empty"),
        ("A->B@4.3", "character 6", "'4.3' is not a Kafka for B"),
        ("A->B@latest", "character 6", "'latest' is not a Kafka for B"),
        ('A@"./x\ny"->B', "character 3", "holds an unprintable character"),
        ('A@"x->B', "character 3", "has no closing double quote"),
        ("A->B C", "character 6", "'C' after B is neither an arrow nor a comma"),
        ("A->B!", "character 4", "'B!' is not a cluster's name"),
        ("A->B,", "character 6", "a path is missing here"),
        ("A->B,;C->D", "character 6", "a path is missing here"),
        (",A->B", "character 1", "a path is missing here"),
        ("Ab->AB", "", "clusters Ab and AB differ only in case, or in - and _; rename one"),
        (",".join(f"A->B{n}" for n in range(9)), "", "it has 10 clusters, and 9 are the most"),
        ("A->B->C, A->C", "", "the topics of A reach C by two ways, over B->C and over A->C"),
        ("A->B, A->C, B->D, C->D", "", "the topics of A reach D by two ways"),
        (
            "star",
            "character 1",
            "there is no topology named 'star'; write links like A->B, one of chain, ",
        ),
        (
            "round-trap",
            "character 1",
            "no topology named 'round-trap' (did you mean 'round_trip'?)",
        ),
        ("us-east eu-west", "character 1", "there is no topology named 'us-east'"),
        ("us--east->B", "character 3", "'--' is not an arrow"),
        ("us- ->B", "character 3", "'-' is not an arrow"),
        ("us__east->B", "character 1", "'us__east' is not a cluster's name"),
        ("us_->B", "character 1", "'us_' is not a cluster's name"),
        ("2us->B", "character 1", "'2us' is not a cluster's name"),
        ("us.east->B", "character 1", "'us.east' is not a cluster's name"),
        (
            "us-east->us_east",
            "",
            "clusters us-east and us_east differ only in case, or in - and _; rename one",
        ),
        ("A->run", "character 4", "'run' cannot be a cluster's name"),
        ("chain:3 x", "character 9", "'x' after chain:3 has no meaning"),
        ("pair:2", "character 6", "cluster pair has 2 brokers"),
        ("A@bootstrap:one->B", "character 3", "'one' is not an address of cluster A"),
        ("A@bootstrap:one:0->B", "character 3", "'one:0' is not an address of cluster A"),
        ("A@bootstrap:one:1:3->B", "character 3", "'one:1:3' is not an address of cluster A"),
        ("A@bootstrap:one:1->B", "", "A runs already, and linkflap would have to start B"),
        (
            "A@bootstrap:one:1{tls}->B@bootstrap:two:2",
            "",
            "client properties say how it is secured",
        ),
        ("A->B, A@bootstrap:one:1->B", "", "A->B is there twice"),
        ("A->B@bootstrap:b:1, A->C@bootstrap:c:1", "", "would have to start A"),
        ("pair@bootstrap:one:1", "character 1", "cannot be that of all clusters of pair"),
    ],
)
def test_malformed(text: str, column: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    message = str(error.value)
    assert column in message
    assert says in message
    assert "\n" not in message.replace(repr(text), "")


names = st.lists(
    st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,5}([-_][a-z0-9]{1,3}){0,2}", fullmatch=True),
    min_size=2,
    max_size=6,
    unique_by=lambda name: name.upper().replace("-", "_"),
)
kafkas = st.one_of(
    st.just(DEFAULT_KAFKA),
    st.from_regex(r"[0-9]{1,2}\.[0-9]\.[0-9]", fullmatch=True),
    st.text(st.characters(exclude_categories=("C", "Z")), max_size=12).map(
        lambda tail: "./" + tail
    ),
    st.sampled_from(["./x<", "./x-", './"', "kafka:4.0", "a/b->c"]),
)

addresses = st.lists(
    st.sampled_from(["localhost:9092", "kafka-1.example:9093", "[::1]:9092", "10.0.0.1:65535"]),
    min_size=1,
    max_size=3,
).map(",".join)


@st.composite
def legal(draw: st.DrawFn) -> Topology:
    """Any legal topology whose clusters are in the order in which its links name them."""
    known = draw(names)
    pairs = [(a, b) for a in known for b in known if a != b]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=6, unique=True))
    kept: list[LinkSpec] = []
    for a, b in chosen:
        kept.append(LinkSpec(source=a, destination=b))
        mentioned = dict.fromkeys(name for link in kept for name in (link.source, link.destination))
        try:
            check(
                Topology(clusters=tuple(ClusterSpec(name=n) for n in mentioned), links=tuple(kept))
            )
        except InputError:
            kept.pop()
    mentioned = dict.fromkeys(name for link in kept for name in (link.source, link.destination))
    run_already = draw(st.booleans())
    clusters = [
        ClusterSpec(
            name=n, bootstrap=draw(addresses), properties=draw(st.sampled_from(["", "env:EAST"]))
        )
        if run_already
        else ClusterSpec(name=n, brokers=draw(st.sampled_from([1, 3, 4, 9])), kafka=draw(kafkas))
        for n in mentioned
    ]
    return Topology(clusters=tuple(clusters), links=tuple(kept))


@given(legal())
def test_written_notation_reads_the_same(topology: Topology) -> None:
    assert parse(arrows(topology)) == topology


@given(st.text(alphabet='AB1a->< ,;:@"./=\n', max_size=20))
def test_any_text_is_read_or_its_error_is_named(text: str) -> None:
    try:
        topology = parse(text)
    except InputError:
        return
    assert parse(arrows(topology)) == topology


def test_written_as_a_person_would() -> None:
    assert arrows(parse("A@3.9.2:3->B, B->A, B->C")) == "A@3.9.2:3<->B->C"
    assert arrows(parse("A->B; A->C")) == "A->B, A->C"


def test_the_hand_made_order_gives_way_to_that_of_the_links() -> None:
    clusters = (ClusterSpec(name="B"), ClusterSpec(name="A"))
    topology = Topology(clusters=clusters, links=(LinkSpec(source="A", destination="B"),))
    assert [c.name for c in parse(arrows(topology)).clusters] == ["A", "B"]


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_named_topologies_are_legal(name: str) -> None:
    topology = TOPOLOGIES[name](brokers=3, kafka="3.9.2")
    assert check(topology) is topology
    assert parse(f"{name}@3.9.2:3") == topology


def test_sizes() -> None:
    assert links(chain(clusters=4)) == ["A->B", "B->C", "C->D"]
    assert links(fan_in(sources=3)) == ["A->D", "B->D", "C->D"]
    assert chain(clusters=1) == fan_in(sources=0) == parse("A")
    with pytest.raises(InputError, match="it has no cluster"):
        chain(clusters=0)
    with pytest.raises(InputError, match="10 clusters, and 9 are the most"):
        chain(clusters=10)


def test_by_hand() -> None:
    a, b, c = (ClusterSpec(name=name) for name in "ABC")
    ab = LinkSpec(source="A", destination="B")
    with pytest.raises(InputError, match="cluster C has no link"):
        check(Topology(clusters=(a, b, c), links=(ab,)))
    with pytest.raises(InputError, match="names a cluster that is not there"):
        check(Topology(clusters=(a,), links=(ab,)))
    with pytest.raises(InputError, match="a cluster is in it twice"):
        check(Topology(clusters=(a, b, b), links=(ab,)))
    with pytest.raises(InputError, match="a link is in it twice"):
        check(Topology(clusters=(a, b), links=(ab, ab)))
    with pytest.raises(InputError, match="leads from a cluster to itself"):
        check(Topology(clusters=(a, b), links=(ab, LinkSpec(source="B", destination="B"))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "A:3->B@3.9.2",
            """
            A  3 brokers  Kafka 4.3.1  -> B
            B  1 broker  Kafka 3.9.2
            """,
        ),
        (
            "A{tls}<->B, A->C",
            """
            A  1 broker, tls  Kafka 4.3.1  -> B, C
            B  1 broker  Kafka 4.3.1       -> A
            C  1 broker  Kafka 4.3.1
            """,
        ),
        (
            "A@/a/long/path/of/some/kafka/build/dist->B",
            """
            A  1 broker  …f/some/kafka/build/dist  -> B
            B  1 broker  Kafka 4.3.1
            """,
        ),
    ],
)
def test_rows_of_a_topology(text: str, expected: str) -> None:
    assert rows(parse(text)) == dedent(expected).strip("\n")


@given(legal())
def test_every_cluster_and_link_is_in_the_rows(topology: Topology) -> None:
    plain = replace(
        topology, clusters=tuple(replace(c, kafka=DEFAULT_KAFKA) for c in topology.clusters)
    )
    leads = {
        line.split()[0]: line.partition(" -> ")[2].split(", ") for line in rows(plain).splitlines()
    }
    assert list(leads) == [cluster.name for cluster in topology.clusters]
    assert all(link.destination in leads[link.source] for link in topology.links)


# Clusters have the names that people use (us-east, eu_west), by one rule wherever a name is
# read or becomes part of another.


NAMES = ["us-east", "eu_west", "A", "prod-us-east-1", "b2"]
WRONG = ["us.east", "-us", "us-", "us__east", "2us", "us east", "ü", "run", "SERVICES", "clients"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_everywhere(name: str, tmp_path: Path) -> None:
    text = f"{name}:3->Other"
    topology = parse(text)
    assert (topology.clusters[0].name, topology.clusters[0].brokers) == (name, 3)
    assert arrows(topology) == text
    assert rows(topology).startswith(f"{name}  3 brokers")
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


def test_mirror_maker_has_cluster_names_as_aliases() -> None:
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


# Topics have a home, and no link mirrors them back to it: a ring of mirrors with one topic
# cannot be requested.


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
    assert "".join(topology.homes) == begin
    chosen = chain_flap(ScenarioRequest(seed=5, topology=topology))
    assert (
        chosen
        == chain_flap(ScenarioRequest(seed=5, topology=topology))
        != chain_flap(ScenarioRequest(seed=6, topology=topology))
    )
    check_schedule(chosen.schedule, topology)
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
    check_schedule(chosen.schedule, topology)
    for link in topology.links:
        of_link = [
            fault.fault for fault in chosen.schedule if fault.target == link.name and fault.duration
        ]
        assert of_link == ["link-flap", "link-latency"]
    assert {workload.home for workload in chosen.workloads} == set(topology.homes)
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
    check_schedule(chosen.schedule, topology)
    assert [(f.fault, f.target) for f in chosen.schedule] == [
        ("failover-forced", topology.links[0].name)
    ]
    assert {workload.home for workload in chosen.workloads} == set(topology.homes)


@pytest.mark.parametrize("name", ["baseline", "planned-failover", "mirror-crash", "half-open"])
@pytest.mark.parametrize("arrows", EVERY)
def test_faults_of_links_or_mirrors_target_every_one(name: str, arrows: str) -> None:
    topology = parse(arrows)
    chosen = SCENARIOS[name](ScenarioRequest(seed=5, topology=topology))
    check_schedule(chosen.schedule, topology)
    assert {workload.home for workload in chosen.workloads} == set(topology.homes)
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
    assert untouched_links(chosen) == {}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_about_text_of_a_scenario_names_its_clusters(name: str) -> None:
    said = SCENARIOS[name](ScenarioRequest(seed=5, topology=parse("us-east:3->eu_west:3"))).about
    assert not re.search(r"\b[ABC]\b|[{}]", said), said


def test_links_that_a_schedule_does_nothing_to_are_named() -> None:
    fan_in = SCENARIOS["failover-open-transactions"](
        ScenarioRequest(seed=5, topology=parse("A->C, B->C"))
    )
    assert untouched_links(fan_in) == {"B->C": False}
    chain = SCENARIOS["round-trip"](ScenarioRequest(seed=5, topology=parse("A->B->C")))
    assert untouched_links(chain) == {"B->C": True}


def test_broker_loss_says_what_it_needs() -> None:
    with pytest.raises(
        InputError, match="A needs 3 or more and has 1; write --topology 'A:3->B:3'"
    ):
        broker_loss(ScenarioRequest(seed=5, topology=parse("A->B")))
    with pytest.raises(InputError, match="B needs 3 or more and has 1"):
        broker_loss(ScenarioRequest(seed=5, topology=parse("A:3->B")))


# Invalid topics are refused before a request is sent.


@pytest.mark.parametrize("name", ["orders", "A.orders", "us-east.orders_1", "x" * 249])
def test_legal_names(name: str) -> None:
    kraft_cluster.check_topic(name, 1, 3)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
def test_illegal_names(name: str) -> None:
    with pytest.raises(InputError, match="is not a topic's name"):
        kraft_cluster.check_topic(name, 1, 1)


@pytest.mark.parametrize(("partitions", "replicas"), [(0, 1), (-1, 1), (1, 0), (10_001, 1)])
def test_illegal_sizes(partitions: int, replicas: int) -> None:
    with pytest.raises(InputError, match="give 1 to 10000 partitions and 1 replica or more"):
        kraft_cluster.check_topic("orders", partitions, replicas)
