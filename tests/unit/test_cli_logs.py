"""What a person may say of logs on the command line, and what is refused with the mend."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import linkflap
from harness.cli_logs import asked_logs
from harness.model.errors import InputError
from harness.model.topology import LinkSpec

NOTHING = {"logs": (), "links": (), "promotions": (), "topics": ".*", "producer_ids": "keep",
    "bootstrap": (), "properties": (), "rate": None,
}  # fmt: skip


def asked(**said):
    return asked_logs(**{**NOTHING, **said})


def test_logs_links_and_promotions_are_read():
    told = asked(
        logs=("A=a/b=c", "B=d"), links=("A->B",), promotions=("B:my-topic-0=12", "B:my-topic-0=30", "A:x-1=0"),
        producer_ids="negate", topics="my.*",
    )  # fmt: skip
    assert told is not None
    assert told.logs == {"A": Path("a/b=c"), "B": Path("d")}
    assert told.links == [LinkSpec(source="A", destination="B")]
    assert told.promotions == {("B", "my-topic", 0): [12, 30], ("A", "x", 1): [0]}
    assert told.options == {"producer_ids": "negate"}
    assert told.topics == "my.*"


def test_without_logs_there_is_nothing_to_ask():
    assert asked() is None
    for rest in ({"links": ("A->B",)}, {"promotions": ("B:t-0=1",)}):
        with pytest.raises(InputError, match="add --logs"):
            asked(**rest)


@pytest.mark.parametrize("text", ["A", "=x", "A=", "A/1=x", "A B=x"])
def test_logs_that_name_no_cluster_or_folder_are_refused(text):
    with pytest.raises(InputError, match="is not CLUSTER=DIR"):
        asked(logs=(text,))


def test_a_cluster_has_one_folder():
    with pytest.raises(InputError, match="name of its own"):
        asked(logs=("A=x", "A=y"))


@pytest.mark.parametrize("text", ["A", "A->", "->B", "A->A", "A->B->C"])
def test_a_link_has_two_ends(text):
    with pytest.raises(InputError, match="is not one link"):
        asked(logs=("A=x", "B=y"), links=(text,))


@pytest.mark.parametrize("text", ["B:t=1", "t-0=1", "B:t-0", "B:t-0=-1", "B:t-x=1"])
def test_a_promotion_has_a_place_and_an_offset(text):
    with pytest.raises(InputError, match="is not CLUSTER:TOPIC-PARTITION=OFFSET"):
        asked(logs=("A=x", "B=y"), promotions=(text,))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give run directories to judge, or logs"),
        (("--logs", "A=.", "somewhere"), "and not both"),
        (("--logs", "A=nowhere"), "there is no folder nowhere"),
    ],
)
def test_the_command_asks_for_one_or_the_other(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(linkflap, ["verify", *arguments], standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert list(tmp_path.iterdir()) == []
