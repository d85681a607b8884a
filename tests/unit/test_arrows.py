"""The notation: its meaning, writing and reading it back, and the error for each malformed text.

Drawings are read by people, so the tests compare whole drawings.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA, ClusterSpec, LinkSpec, Topology
from linkflap.topologies import TOPOLOGIES
from linkflap.topologies.drawing import draw
from linkflap.topologies.legal import check
from linkflap.topologies.named import chain, fan_in
from linkflap.topologies.notation import arrows, parse


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
    ("text", "column", "says"),
    [
        ("", "", "the topology is empty"),
        (" \n", "", "the topology is empty"),
        ("A", "character 1", "A stands alone, without a link"),
        ("A:3, B->C", "character 1", "A stands alone, without a link"),
        ("A->", "character 4", "a cluster is missing at the end of the arrow -> after A"),
        ("A->,B->C", "character 4", "a cluster is missing at the end of the arrow -> after A"),
        ("->B", "character 1", "a cluster is missing before '->B'"),
        ("A-->B", "character 2", "'-->' is not an arrow; write ->"),
        ("A=>B", "character 2", "'=>' is not an arrow; write ->"),
        ("A→B", "character 2", "'→' is not an arrow; write ->"),
        ("A>B", "character 2", "'>' is not an arrow; write ->"),
        ("A-B", "character 1", "A-B stands alone, without a link"),
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
            "there is no topology named 'star'; write links like A->B, or one of chain, ",
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
    clusters = [
        ClusterSpec(name=n, brokers=draw(st.sampled_from([1, 3, 4, 9])), kafka=draw(kafkas))
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
    with pytest.raises(InputError, match="it has no link"):
        chain(clusters=1)
    with pytest.raises(InputError, match="it has no link"):
        fan_in(sources=0)
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
    ("text", "drawing"),
    [
        (
            "A:3->B@3.9.2",
            """
            ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │
            │ 3 brokers   ├────────▶│ 1 broker    │
            │ Kafka 4.3.1 │         │ Kafka 3.9.2 │
            └─────────────┘         └─────────────┘
            """,
        ),
        (
            "chain",
            """
            ┌─────────────┐         ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │         │ C           │
            │ 1 broker    ├────────▶│ 1 broker    ├────────▶│ 1 broker    │
            │ Kafka 4.3.1 │         │ Kafka 4.3.1 │         │ Kafka 4.3.1 │
            └─────────────┘         └─────────────┘         └─────────────┘
            """,
        ),
        (
            "fan_in",
            """
            ┌─────────────┐         ┌─────────────┐
            │ A           │         │ C           │
            │ 1 broker    ├────┬───▶│ 1 broker    │
            │ Kafka 4.3.1 │    │    │ Kafka 4.3.1 │
            └─────────────┘    │    └─────────────┘
                               │
            ┌─────────────┐    │
            │ B           │    │
            │ 1 broker    ├────┘
            │ Kafka 4.3.1 │
            └─────────────┘
            """,
        ),
        (
            "fan_out",
            """
            ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │
            │ 1 broker    ├────┬───▶│ 1 broker    │
            │ Kafka 4.3.1 │    │    │ Kafka 4.3.1 │
            └─────────────┘    │    └─────────────┘
                               │
                               │    ┌─────────────┐
                               │    │ C           │
                               └───▶│ 1 broker    │
                                    │ Kafka 4.3.1 │
                                    └─────────────┘
            """,
        ),
        (
            "round_trip",
            """
            ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │
            │ 1 broker    │◀───────▶│ 1 broker    │
            │ Kafka 4.3.1 │         │ Kafka 4.3.1 │
            └─────────────┘         └─────────────┘
            """,
        ),
        (
            "ring",
            """
            ┌─────────────┐         ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │         │ C           │
            │ 1 broker    ├────────▶│ 1 broker    ├────────▶│ 1 broker    │
            │ Kafka 4.3.1 │         │ Kafka 4.3.1 │         │ Kafka 4.3.1 │
            └─────────────┘         └─────────────┘         └──────┬──────┘
                   ▲                                               │
                   └───────────────────────────────────────────────┘
            """,
        ),
        (
            "A->B->C, D->C",
            """
            ┌─────────────┐         ┌─────────────┐         ┌─────────────┐
            │ A           │         │ B           │         │ C           │
            │ 1 broker    ├────────▶│ 1 broker    ├────┬───▶│ 1 broker    │
            │ Kafka 4.3.1 │         │ Kafka 4.3.1 │    │    │ Kafka 4.3.1 │
            └─────────────┘         └─────────────┘    │    └─────────────┘
                                                       │
                                    ┌─────────────┐    │
                                    │ D           │    │
                                    │ 1 broker    ├────┘
                                    │ Kafka 4.3.1 │
                                    └─────────────┘
            """,
        ),
        (
            "A<->B, A->C",
            """
            A  1 broker  Kafka 4.3.1  ─▶ B, C
            B  1 broker  Kafka 4.3.1  ─▶ A
            C  1 broker  Kafka 4.3.1
            """,
        ),
        (
            "A->C, A->D, B->E, B->F",
            """
            A  1 broker  Kafka 4.3.1  ─▶ C, D
            C  1 broker  Kafka 4.3.1
            D  1 broker  Kafka 4.3.1
            B  1 broker  Kafka 4.3.1  ─▶ E, F
            E  1 broker  Kafka 4.3.1
            F  1 broker  Kafka 4.3.1
            """,
        ),
    ],
)
def test_drawing(text: str, drawing: str) -> None:
    assert draw(parse(text)) == dedent(drawing).strip("\n")


def test_ascii() -> None:
    expected = """
    +-------------+         +-------------+
    | A           |         | B           |
    | 1 broker    +----+--->| 1 broker    |
    | Kafka 4.3.1 |    |    | Kafka 4.3.1 |
    +-------------+    |    +-------------+
                       |
                       |    +-------------+
                       |    | C           |
                       +--->| 1 broker    |
                            | Kafka 4.3.1 |
                            +-------------+
    """
    assert draw(parse("fan_out"), ascii_only=True) == dedent(expected).strip("\n")


@given(legal())
def test_every_cluster_and_link_is_in_the_drawing(topology: Topology) -> None:
    plain = replace(
        topology, clusters=tuple(replace(c, kafka=DEFAULT_KAFKA) for c in topology.clusters)
    )
    drawing = draw(plain, ascii_only=True)
    for cluster in topology.clusters:
        assert cluster.name in drawing
        assert f"{cluster.brokers} broker" in drawing
    if "+---" in drawing:
        heads = sum(drawing.count(head) for head in (">", "<", "^"))
        assert heads >= len({link.destination for link in topology.links})
    else:
        rows = {
            line.split()[0]: line.partition(" -> ")[2].split(", ") for line in drawing.splitlines()
        }
        assert all(link.destination in rows[link.source] for link in topology.links)


def test_long_paths_are_shortened_from_the_left() -> None:
    assert (
        "…of/some/kafka/build/dist "
        not in draw(parse("A@/a/long/path/of/some/kafka/build/dist->B")).splitlines()[0]
    )
    assert "/some/kafka/build/dist" in draw(parse("A@/a/long/path/of/some/kafka/build/dist->B"))


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (
            replace(parse("A->B"), clusters=parse("A->B").clusters[:1]),
            "link A->B names B, which is no cluster",
        ),
        (Topology(clusters=(), links=()), "has no cluster"),
    ],
)
def test_an_invalid_topology_is_refused(topology: Topology, said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw(topology)
