"""Drawings are read by people, so the tests compare whole drawings."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA, Topology
from linkflap.topologies.drawing import draw
from linkflap.topologies.notation import parse
from tests.unit.test_arrows import legal


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
