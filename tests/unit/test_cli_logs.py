"""The options of logs on the command line, and errors with their fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.cli.log_options import live_logs_request, logs_request
from linkflap.harness.capture.live.record import LiveLogsRequest
from linkflap.harness.capture.logs_named import LogsRequest
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import LinkSpec

NOTHING: dict[str, Any] = {"logs": (), "links": (), "promotions": (), "topics": ".*",
"preset": None, "settings": (),
    "producer_ids": None, "leader_epochs": None,
    "bootstrap": (), "properties": (), "rate": None,
}  # fmt: skip


def asked(**said: Any) -> LogsRequest | None:
    return logs_request(**{**NOTHING, **said})


def test_logs_links_and_promotions_are_read() -> None:
    arguments = asked(
        logs=("A=a/b=c", "B=d"), links=("A->B",),
        promotions=("B:my-topic-0=12", "B:my-topic-0=30", "A:x-1=0"),
        producer_ids="negate", topics="my.*",
    )  # fmt: skip
    assert arguments is not None
    assert arguments.logs == {"A": Path("a/b=c"), "B": Path("d")}
    assert arguments.links == [LinkSpec(source="A", destination="B")]
    assert arguments.promotions == {("B", "my-topic", 0): [12, 30], ("A", "x", 1): [0]}
    assert arguments.options == {"producer_ids": "negate"}
    assert arguments.topics == "my.*"


def test_without_logs_there_is_nothing_to_ask() -> None:
    assert asked() is None
    for rest in (
        {"links": ("A->B",)},
        {"promotions": ("B:t-0=1",)},
        {"preset": "cluster-mirroring"},
        {"producer_ids": "negate"},
    ):
        with pytest.raises(InputError, match="add --logs"):
            asked(**rest)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({}, {}),
        ({"preset": "shadow"}, {}),
        ({"preset": "cluster-mirroring"}, {"leader_epochs": "keep"}),
        ({"leader_epochs": "keep"}, {"leader_epochs": "keep"}),
        ({"preset": "cluster-mirroring", "leader_epochs": "any"}, {}),
        (
            {"preset": "cluster-mirroring", "producer_ids": "negate"},
            {"leader_epochs": "keep", "producer_ids": "negate"},
        ),
        ({"producer_ids": "keep"}, {}),
    ],
)
def test_a_mirror_is_said_by_its_name_or_by_what_it_keeps(
    said: dict[str, str], options: dict[str, str]
) -> None:
    arguments = asked(logs=("A=a", "B=b"), links=("A->B",), **said)
    assert arguments is not None
    assert arguments.options == options


def live(**said: Any) -> LiveLogsRequest | None:
    return live_logs_request(**{**NOTHING, **said})


def test_live_clusters_are_read(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    file.write_text("client.id=auditor\n")
    arguments = live(
        bootstrap=("A=one:9092,two:9093", "B=[::1]:9092"), properties=(f"B={file}",),
        links=("A->B",), topics="my.*", rate=0.5,
        promotions=("B:my-0=3",),
    )  # fmt: skip
    assert arguments is not None
    assert arguments.bootstrap == {"A": ["one:9092", "two:9093"], "B": ["[::1]:9092"]}
    assert {name: each.client for name, each in arguments.access.items()} == {"B": "auditor"}
    assert arguments.rate == 500_000
    assert (arguments.request.links, arguments.request.topics) == (
        [LinkSpec(source="A", destination="B")],
        "my.*",
    )
    assert arguments.request.promotions == {("B", "my", 0): [3]}
    plain = live(bootstrap=("A=one:9092",))
    assert plain is not None
    assert plain.rate == 20_000_000


def test_without_live_clusters_there_is_nothing_to_fetch() -> None:
    assert live() is None
    assert live(logs=("A=x",)) is None
    for rest in ({"properties": ("A=x",)}, {"rate": 1.0}):
        with pytest.raises(InputError, match="add --bootstrap"):
            live(**rest)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"bootstrap": ("A",)}, "is not CLUSTER=HOST:PORT"),
        ({"bootstrap": ("A=x:1", "A=y:1")}, "name of its own"),
        ({"bootstrap": ("A=x",)}, "'x' is not HOST:PORT"),
        ({"bootstrap": ("A=x:0",)}, "'x:0' is not HOST:PORT"),
        ({"bootstrap": ("A=x:1,",)}, "'' is not HOST:PORT"),
        ({"bootstrap": ("A=x:1",), "logs": ("A=y",)}, "give one of them"),
        (
            {"bootstrap": ("A=x:1",), "properties": ("B=y",)},
            "names B, of which there is no --bootstrap",
        ),
    ],
)
def test_live_clusters_that_cannot_be_meant_are_refused(
    said: dict[str, tuple[str]] | dict[str, tuple[str, str]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        live(**said)


@pytest.mark.parametrize("text", ["A", "=x", "A="])
def test_logs_that_name_no_cluster_or_folder_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not CLUSTER=DIR"):
        asked(logs=(text,))


def test_a_cluster_has_one_folder() -> None:
    with pytest.raises(InputError, match="name of its own"):
        asked(logs=("A=x", "A=y"))


@pytest.mark.parametrize("text", ["A", "A->", "->B", "A->A", "A->B->C"])
def test_a_link_has_two_ends(text: str) -> None:
    with pytest.raises(InputError, match="is not one link"):
        asked(logs=("A=x", "B=y"), links=(text,))


@pytest.mark.parametrize("text", ["B:t=1", "t-0=1", "B:t-0", "B:t-0=-1", "B:t-x=1"])
def test_a_promotion_has_a_partition_and_an_offset(text: str) -> None:
    with pytest.raises(InputError, match="is not CLUSTER:TOPIC-PARTITION=OFFSET"):
        asked(logs=("A=x", "B=y"), promotions=(text,))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give run directories to judge, or logs"),
        (("--logs", "A=.", "somewhere"), "only one of these"),
        (("--logs", "A=nowhere"), "there is no folder nowhere"),
    ],
)
def test_the_command_asks_for_one_or_the_other(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(linkflap, ["verify", *arguments], standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert list(tmp_path.iterdir()) == []
