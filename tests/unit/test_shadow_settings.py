"""The options of the shadow mirror in a scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.mirrors.shadow import settings
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from tests.shadows import config


def test_defaults_are_the_first_choices() -> None:
    made = settings.options({})
    assert [getattr(made, name) for name in settings.CHOICES] == [
        values[0] for values in settings.CHOICES.values()
    ]
    assert made == settings.ShadowOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"delivery": "x"},
            "mirror shadow has no option 'delivery'; it has producer_ids, bound, open_transactions",
        ),
        ({"bound": "leo"}, "option bound of mirror shadow is 'leo'; it must be hw or lso"),
        (
            {"groups": "("},
            r"option groups of mirror shadow is '\(', which is not a valid regular expression",
        ),
    ],
)
def test_an_unknown_option_or_value_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings.options(given)


def test_a_configuration_survives_the_file(tmp_path: Path) -> None:
    settings.write(config(), tmp_path)
    assert settings.read(tmp_path) == config()


def test_a_folder_without_one_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a shadow configuration"):
        settings.read(tmp_path)


def test_data_topics_of_the_homes_are_mirrored_and_the_canary() -> None:
    topics = [
        "A.orders",
        "A.linkflap-canary",
        "B.orders",
        "A.checkpoints.internal",
        "__consumer_offsets",
    ]
    assert [t for t in topics if config().mirrors(t)] == ["A.orders", "A.linkflap-canary"]


def test_a_journal_is_found_again_and_a_torn_one_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.fresh
    journal.partition("t", 3).epochs = [(0, 0), (2, 7)]
    journal.notes.phase = "ending"
    journal.save()
    again = Journal(tmp_path)
    assert not again.fresh
    assert again.notes == journal.notes
    (tmp_path / settings.JOURNAL).write_bytes(b'{"directory_id"')
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        Journal(tmp_path)
