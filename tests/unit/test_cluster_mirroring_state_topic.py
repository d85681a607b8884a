"""The topic `__mirror_state`: the wait for its replicas, and its records against describe."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.mirrors.cluster_mirroring import settings, state_topic
from linkflap.harness.mirrors.cluster_mirroring.admin import DescribeRow, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.state_topic import (
    STATES,
    LeftAligning,
    await_loaded,
    differing,
    lacking,
    latest,
)
from linkflap.harness.model.errors import DeadlineExceeded, InputError

REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1]}
BOTH = {(STATES, 0), (STATES, 1)}


class Destination:
    """Three brokers that answer `held` one after the other, and the last one forever; broker 3 has
    ended."""

    def __init__(
        self, *held: dict[int, set[tuple[str, int]]], leader: int = 1, topic: bool = True
    ) -> None:
        self.held, self.leader, self.topic, self.asked = list(held), leader, topic, 0

    def replicas(self, brokers: list[int]) -> dict[int, set[tuple[str, int]]]:
        assert brokers == [1, 2], "the third has ended"
        self.asked += 1
        if not self.held:
            raise VerbRefused("describe-log-dirs", "NO_ANSWER", -1, "nobody answered")
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


def test_a_broker_lacks_its_replicas_without_a_log() -> None:
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
    monkeypatch.setattr(state_topic, "LOADED_SECONDS", 0.1)
    with pytest.raises(
        DeadlineExceeded,
        match=rf"replicas of {STATES} on brokers 1, 2; last seen: .*{said}",
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


class Brokers:
    """A destination whose leaders can be moved; the first request is not answered."""

    def __init__(self) -> None:
        self.moved: list[dict[tuple[str, int], list[int]]] = []
        self.unanswered = 1

    def list_topics(self, timeout: float) -> SimpleNamespace:
        partitions = {n: SimpleNamespace(leader=2, replicas=[2, 3, 1]) for n in range(2)}
        return SimpleNamespace(topics={"A.orders": SimpleNamespace(partitions=partitions)})

    def lead(self, orders: dict[tuple[str, int], list[int]]) -> None:
        if self.unanswered:
            self.unanswered -= 1
            raise VerbRefused("elect-leaders", "NO_ANSWER", -1, "nobody answered")
        self.moved.append(orders)


def rows(*states: str) -> list[DescribeRow]:
    return [
        DescribeRow(
            topic="A.orders",
            partition=number,
            state=state,
            source_offset=-1,
            destination_offset=-1,
            lag=-1,
            retries=0,
            error="",
        )
        for number, state in enumerate(states)
    ]


def test_a_partition_that_is_left_behind_gets_another_leader_once() -> None:
    brokers = Brokers()
    behind = LeftAligning(cast(Any, brokers), cast(Any, brokers), "LOG_TRUNCATION")
    behind.look(rows("LOG_TRUNCATION", "LOG_TRUNCATION"), 0)
    behind.look(rows("MIRRORING", "LOG_TRUNCATION"), 9)
    assert behind.moved == [], "it may still get there"
    for now in (10, 11, 12, 30):
        behind.look(rows("MIRRORING", "LOG_TRUNCATION"), now)
    assert brokers.moved == [{("A.orders", 1): [3, 1, 2]}]
    assert behind.moved == [("A.orders", 1)]


def test_a_partition_that_aligns_again_and_again_is_not_left_behind() -> None:
    brokers = Brokers()
    behind = LeftAligning(cast(Any, brokers), cast(Any, brokers), "LOG_TRUNCATION")
    for now in range(0, 60, 3):
        behind.look(rows("LOG_TRUNCATION" if now % 2 else "FAILED"), now)
    assert (behind.moved, brokers.moved) == ([], [])


TOPIC_ID = bytes(range(16))
SPELLED = "AAECAwQFBgcICQoLDA0ODw"


def key(partition: int, kind: int = 2) -> bytes:
    return struct.pack(">hh", kind, 3) + b"A-B" + TOPIC_ID + struct.pack(">i", partition)


def value(state: int) -> bytes:
    return struct.pack(">hbbh", 0, state, -1, 0) + b"\x00\x00"


def row(partition: int, state: str, topic: str = "A.x") -> DescribeRow:
    return DescribeRow(
        topic=topic,
        partition=partition,
        state=state,
        source_offset=0,
        destination_offset=0,
        lag=0,
        retries=0,
        error="",
    )


def test_the_latest_record_of_a_partition_counts_and_a_tombstone_takes_it_away() -> None:
    records = [
        (key(0), value(0)),
        (key(1), value(2)),
        (key(0), value(2)),
        (key(0, kind=1), b"\x00\x00\x00\x00\x00\x07\x00"),
        (key(1), None),
    ]
    assert latest(records) == {("A-B", SPELLED, 0): "MIRRORING"}


@pytest.mark.parametrize("record", [(b"\x00", b""), (key(0), b"\x00"), (key(0), value(99))])
def test_bytes_of_another_form_are_said(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="__mirror_state has an unknown format"):
        latest([record])


def test_what_describe_says_otherwise_differs_and_other_topics_are_left_out() -> None:
    found = {("A-B", SPELLED, 0): "MIRRORING", ("A-B", SPELLED, 1): "FAILED"}
    ids = {"A.x": SPELLED}
    rows = [row(1, "MIRRORING"), row(0, "MIRRORING"), row(0, "PAUSED", "A.other")]
    assert differing("A-B", found, ids, rows) == {
        "A.x": ("partition 1: FAILED recorded, MIRRORING described",)
    }
    assert differing("A-B", found, ids, [row(2, "MIRRORING")]) == {
        "A.x": ("partition 2: nothing recorded, MIRRORING described",)
    }
