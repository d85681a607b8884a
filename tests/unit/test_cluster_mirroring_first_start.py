"""What a start waits for, on recorded answers: the log of the mirrors' states on every broker that
runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.mirrors.cluster_mirroring import first_start, settings
from linkflap.harness.mirrors.cluster_mirroring.answers import Refused
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES, await_loaded, lacking
from linkflap.harness.model.errors import DeadlineExceeded, InputError

REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1]}
BOTH = {(STATES, 0), (STATES, 1)}


class Destination:
    """Three brokers, whose answers are `held`, one after the other and the last for ever; broker 3
    has ended."""

    def __init__(
        self, *held: dict[int, set[tuple[str, int]]], leader: int = 1, topic: bool = True
    ) -> None:
        self.held, self.leader, self.topic, self.asked = list(held), leader, topic, 0

    def replicas(self, brokers: list[int]) -> dict[int, set[tuple[str, int]]]:
        assert brokers == [1, 2], "the third has ended"
        self.asked += 1
        if not self.held:
            raise Refused("describe-log-dirs", "NO_ANSWER", -1, "nobody answered")
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        partitions = (
            {n: SimpleNamespace(leader=self.leader, replicas=r) for n, r in REPLICAS.items()}
            if self.topic
            else {}
        )
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def wait(self, **how: bool) -> None:
        states = {1: "running", 2: "running", 3: "killed"}
        cluster = SimpleNamespace(
            brokers={number: SimpleNamespace(state=state) for number, state in states.items()}
        )
        await_loaded(cast(Any, self), cast(Any, self), cast(Any, cluster), **how)


def test_a_broker_lacks_what_it_replicates_and_does_not_hold() -> None:
    assert lacking(REPLICAS, {1: BOTH, 2: {(STATES, 1), ("A.orders", 0)}}) == [
        f"broker 2 lacks {STATES}-0"
    ]
    assert lacking(REPLICAS, {1: BOTH, 2: BOTH, 3: set()}) == [f"broker 3 lacks {STATES}-0, -1"]


def test_a_start_waits_until_every_running_broker_holds_its_part() -> None:
    destination = Destination({1: set(), 2: set()}, {1: BOTH, 2: {(STATES, 0)}}, {1: BOTH, 2: BOTH})
    destination.wait()
    assert destination.asked == 3


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        (Destination({1: BOTH, 2: {(STATES, 0)}}), f"broker 2 lacks {STATES}-1"),
        (Destination({1: BOTH, 2: BOTH}, leader=-1), f"{STATES}-0 has no leader"),
        (Destination({1: BOTH, 2: BOTH}, topic=False), f"there is no {STATES}"),
        (Destination(), "nobody answered"),
    ],
)
def test_a_log_that_never_gets_there_is_named_but_not_where_it_is_awaited_in_vain(
    monkeypatch: pytest.MonkeyPatch, destination: Destination, said: str
) -> None:
    monkeypatch.setattr(first_start, "LOADED_SECONDS", 0.1)
    with pytest.raises(
        DeadlineExceeded,
        match=rf"log of the mirrors' states \({STATES}\) on brokers 1, 2; last seen: .*{said}",
    ):
        destination.wait()
    destination.wait(in_vain=True)


def test_a_start_at_once_is_an_option_and_another_word_is_none() -> None:
    assert settings.options({}).first_start == "loaded"
    assert settings.options({"first_start": "at-once"}).first_start == "at-once"
    with pytest.raises(
        InputError,
        match=(
            r"option first_start of mirror cluster-mirroring is 'later'; it must be loaded or"
            r" at-once"
        ),
    ):
        settings.options({"first_start": "later"})
