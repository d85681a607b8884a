"""A shadow's process: settings, journal, control, and failpoints."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.failpoints import PAUSE_AT, STEPS, Step, Steps
from linkflap.harness.mirrors.shadow.journal import Journal, PartitionNote
from linkflap.harness.mirrors.shadow.partition import Lineage, Partition
from linkflap.harness.mirrors.shadow.shadow import Shadow
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


MARKER = "ABORT of producer 7, epoch 0"


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ({}, -1),
        ({"mirrored": 9, "promoted": 9}, 9),
        ({"mirrored": 9, "promoted": 11, "appended": [(9, MARKER), (10, "reset")]}, 9),
        ({"mirrored": 9, "promoted": 4, "truncated": [(9, 4)]}, 4),
        ({"mirrored": 9, "promoted": 5, "truncated": [(9, 4)], "appended": [(4, "reset")]}, 4),
        ({"mirrored": 9, "promoted": 9, "appended": [(12, MARKER)]}, 9),
    ],
    ids=[
        "not ended",
        "nothing to do",
        "markers",
        "truncated",
        "truncated, and reset there",
        "markers of the brokers that lead then",
    ],
)
def test_the_mirrored_part_ends_before_appended_markers_and_at_the_lowest_truncation(
    lengths: dict[str, Any], kept: int
) -> None:
    assert PartitionNote(**lengths).kept == kept


class _Shadow:
    """Stands in for the mirror behind the port, and counts its commands."""

    def __init__(self) -> None:
        self.failovers = 0
        self.journal = SimpleNamespace(notes=SimpleNamespace(phase="mirroring", topics={}))
        self.membership = SimpleNamespace(fenced=False, longest_silence=0.0)
        self.source = SimpleNamespace(lost=False)
        self.log = SimpleNamespace(held=0, steps=SimpleNamespace(at=""), partitions={})
        self.groups = SimpleNamespace(synced=True)

    def fail_over(self) -> None:
        self.failovers += 1


def sent(folder: Path, *lines: bytes, own: control.Verb | None = None) -> tuple[int, list[bytes]]:
    """How many failovers a shadow makes for these lines, and its answers; or for the harness's own
    command."""
    settings.write(config(), folder)
    shadow = _Shadow()
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]

    def stranger() -> list[bytes]:
        if own is not None:
            return [b"" if control.ask(number, own, folder=folder, within=5) is None else b"answer"]
        answers = []
        for line in lines:
            with socket.create_connection(("127.0.0.1", number), timeout=5) as connection:
                connection.sendall(line + b"\n")
                connection.shutdown(socket.SHUT_WR)
                answers.append(connection.recv(1000))
        return answers

    async def serve() -> list[bytes]:
        served = control.Control(cast("Shadow", shadow), port, settings.new_token(folder))
        await served.start()
        try:
            return await asyncio.to_thread(stranger)
        finally:
            served.close()

    answers = asyncio.run(serve())
    return shadow.failovers, answers


def test_the_harness_is_obeyed(tmp_path: Path) -> None:
    assert sent(tmp_path, own="fail-over") == (1, [b"answer"])
    assert sent(tmp_path, own="status") == (0, [b"answer"])


@pytest.mark.parametrize("token", [None, "", "x", "0" * 64, 1, ["a"], "\u00e9"])
def test_without_the_token_nothing_is_done_or_answered(tmp_path: Path, token: object) -> None:
    command = {"do": "fail-over"} | ({} if token is None else {"token": token})
    assert sent(tmp_path, json.dumps(command).encode()) == (0, [b""])


def test_other_lines_end_a_connection(tmp_path: Path) -> None:
    deep = b"[" * 30_000
    assert sent(tmp_path, b"", b"[]", b"{}", b"\xff", deep)[1] == [b""] * 5


def test_the_token_is_this_users_alone_and_of_one_process(tmp_path: Path) -> None:
    settings.write(config(), tmp_path)
    path = tmp_path / settings.TOKEN
    token = settings.new_token(tmp_path)
    assert settings.control_token(tmp_path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) == 64
    assert token not in (tmp_path / settings.CONFIG).read_text()
    assert settings.new_token(tmp_path) != token
    assert settings.control_token(tmp_path) != token


async def returns(steps: Steps, step: Step) -> bool:
    try:
        await asyncio.wait_for(steps.reach(step), 0.05)
    except TimeoutError:
        return False
    return True


def test_it_stops_nowhere_unless_it_is_asked_to() -> None:
    async def play() -> None:
        steps = Steps.of({})
        assert [step for step in STEPS if not await returns(steps, step)] == []

    asyncio.run(play())


@pytest.mark.parametrize("wanted", STEPS)
def test_whoever_comes_there_stops_until_it_is_released_and_not_again(wanted: Step) -> None:
    async def play() -> None:
        steps = Steps.of({PAUSE_AT: wanted})
        standing = [asyncio.create_task(steps.reach(wanted)) for _ in range(2)]
        await asyncio.sleep(0)
        assert steps.at == wanted
        assert await returns(steps, STEPS[STEPS.index(wanted) - 1])
        steps.go_on()
        await asyncio.wait_for(asyncio.gather(*standing), 1)
        assert not steps.at
        assert await returns(steps, wanted)

    asyncio.run(play())


def test_a_step_that_there_is_not_is_named() -> None:
    with pytest.raises(
        InputError,
        match=f"{PAUSE_AT} is 'settle', which is not a step of a shadow; set it to one of",
    ):
        Steps.of({PAUSE_AT: "settle"})


@pytest.mark.parametrize(
    ("offset", "last_epoch", "agreed"),
    [
        (7, 3, 7),
        (12, 3, 12),  # more of the same log: the follower with most of it is read
        (12, 1, 5),  # of a log that ended at 5 here
        (12, 2, 5),
        (4, 1, 4),
        (12, 9, 12),  # an epoch that is unknown here proves nothing yet
        (0, -1, 0),
    ],
)
def test_a_follower_counts_up_to_where_its_log_is_this_one(
    offset: int, last_epoch: int, agreed: int
) -> None:
    partition = Partition(
        topic="t",
        number=0,
        note=PartitionNote(),
        epochs=Lineage([(1, 0), (3, 5)]),
        source_epochs=Lineage(),
        leader_epoch=3,
    )
    assert partition.agreed(partition.heard(1, offset, 3, last_epoch)) == agreed
    assert partition.agreed(None) == -1
