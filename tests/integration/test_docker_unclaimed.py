"""Leftovers of dead owners in the engine, which no ledger lists, are removed by label, owner and
age."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.harness.machine import engine_leftovers, process_identity
from linkflap.harness.machine.process_identity import Identity
from tests.on_runtimes import skip_without

DAY = 24 * 3600


def identity() -> process_identity.Identity:
    mine = process_identity.identify(os.getpid())
    assert mine is not None
    return mine


def dead() -> process_identity.Identity:
    """This pid, with another start time."""
    mine = identity()
    return replace(mine, born=f"{mine.born.rpartition('/')[0]}/1")


def elsewhere() -> process_identity.Identity:
    boot, _, start = identity().born.split("/")
    return replace(identity(), born=f"{boot}/pid:[1]/{start}")


def earlier() -> process_identity.Identity:
    return replace(identity(), born=f"another-boot/{identity().born.partition('/')[2]}")


@pytest.mark.parametrize(
    ("owner", "age", "stale"),
    [
        (identity, DAY + 1, False),
        (dead, 0, True),
        (earlier, 0, True),
        (elsewhere, DAY - 1, False),
        (elsewhere, DAY + 1, True),
    ],
)
def test_who_is_alive_or_cannot_be_judged_is_left_alone(
    owner: Callable[[], Identity], age: int, stale: bool
) -> None:
    assert engine_leftovers._is_stale(engine_leftovers.owner_label(owner()), age) is stale


@pytest.mark.xdist_group("leftovers")  # of dead owners, which other processes remove too
def test_a_dead_owners_network_is_removed_without_a_ledger_and_a_living_ones_is_not() -> None:
    skip_without("docker")
    from linkflap.harness.runtimes.docker import engine

    name = f"linkflap-unclaimed-{secrets.token_hex(4)}"
    client = engine.client()
    for owner in (dead, identity):
        client.networks.create(
            f"{name}-{owner.__name__}",
            labels={engine_leftovers.OWNER: engine_leftovers.owner_label(owner())},
        )
    try:
        engine_leftovers.unclaimed()
        assert [network.name for network in client.networks.list(names=[name])] == [
            f"{name}-identity"
        ]
    finally:
        for network in client.networks.list(names=[name]):
            network.remove()


def test_an_engine_that_dies_while_it_is_looked_through_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without("docker")

    def dies(_: object) -> set[str]:
        raise ConnectionResetError("gone")

    monkeypatch.setattr(engine_leftovers, "_stale", dies)
    swept = engine_leftovers.unclaimed()
    assert swept.removed == []
    assert swept.left == [
        f"the Docker engine does not answer any more (gone); {engine_leftovers.FIX}"
    ]


def test_where_no_engine_answers_there_is_nothing_to_look_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert engine_leftovers.unclaimed() == engine_leftovers.Removed()
