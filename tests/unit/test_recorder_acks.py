"""Acknowledgements by the leader alone (acks=1) on the wire: what the recorder writes of them, and
where checks take them for promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read.payload_ids import named_on_the_wire
from tests.recorder_rig import TOPIC, Wire, batch, wire
from tests.unit.checks.histories import SECOND, Log, but, promoted, samples, view
from tests.unit.checks.verdicts import anomalies

__all__ = ["wire"]
JUDGING = ("lost-write", "ghost-ack", "duplicate", "provenance", "sequence-continuity")
WROTE = (2.5, 2.75)
"""When a batch was asked for and acknowledged, in seconds; samples come once a second."""
STEADY = (0, 0, 0, 0, 0)
ELECTED = (0, 0, 0, 0, 1)
"""Leader epochs of samples; the second one after the write may be of another leader."""


def wrote(wire: Wire, *offsets: int, acks: int = 1, known: bool = True) -> Sequence[Send]:
    """Batches of one record and their acknowledgements; `known`: they have a producer id."""
    program = wire.connection()
    for sequence, offset in enumerate(offsets):
        who = {} if known else {"who": None}
        asked = wire.produce(program, batch(b"%d" % sequence, sequence=sequence, **who), acks=acks)
        wire.written(program, asked, offset)
    invoked, returned = (round(at * SECOND) for at in WROTE)
    return [replace(send, invoked=invoked, returned=returned) for send in wire.sends()]


def found(
    sends: Sequence[Send], *logs: Log, epochs: Sequence[int] = STEADY, on: str = "A", **rest: Any
) -> list[tuple[str, str, int]]:
    """The anomalies, by kind, cluster and offset."""
    named = named_on_the_wire(history_of(sends, *logs, epochs=epochs, on=on, **rest))
    return [each for check in JUDGING for each in anomalies(check, named)]


def history_of(
    sends: Sequence[Send], *logs: Log, epochs: Sequence[int] = STEADY, on: str = "A", **rest: Any
) -> PartitionView:
    """What the recorder, the samples and the captures have of a program."""
    marks = {on: samples(*[(0, 0)] * len(epochs), epochs=epochs)} if epochs else None
    given = {"watermarks": marks, "mirror_kind": "shadow", "mirror": {}, **rest}
    seen = view(logs, sends=sends, **given)
    return but(seen, programs=frozenset({TOPIC}), wired=frozenset({TOPIC}))


def a(
    *batches: tuple[int, int], skip: Sequence[int] = (), died: bool = False, broker: int = 1
) -> Log:
    """A's log: number and leader epoch of batches of one record; nothing at offsets `skip`. The
    third one is of another producer, which does not miss the second."""
    made = Log("A", leader=not died, broker=broker)
    for number, epoch in batches:
        pid, sequence = divmod(number, 2)
        made.skip(1 if made.end in skip else 0).data(
            -1, pid=7 + pid, sequence=sequence, leader_epoch=epoch
        )
    return made


@pytest.mark.parametrize("acks", [-1, 1])
def test_an_acknowledgement_by_the_leader_alone_is_marked(wire: Wire, acks: int) -> None:
    (send,) = wrote(wire, 5, acks=acks)
    alone = int(acks == 1)
    assert (send.outcome, send.by_leader, send.offsets.tolist()) == ("ok", alone, [5])
    assert (wire.report.by_leader, wire.report.acknowledged) == (alone, 1 - alone)


def test_without_acks_there_is_no_acknowledgement(wire: Wire) -> None:
    wire.produce(wire.connection(), batch(b"1"), acks=0)
    (send,) = wire.sends()
    assert (send.outcome, send.by_leader, send.offsets.tolist()) == ("info", 0, [-1])
    assert wire.report.unpromised == 1
    assert found([replace(send, invoked=SECOND, returned=-1)], Log("A")) == []


@pytest.mark.parametrize(
    ("log", "epochs", "rest"),
    [
        pytest.param(a((0, 0), (1, 0)), ELECTED, {}, id="it is there"),
        pytest.param(a((0, 0)), ELECTED, {}, id="lost with its leader"),
        pytest.param(a((0, 0), (2, 1)), ELECTED, {}, id="overwritten by the next leader"),
        pytest.param(a((0, 0), (2, 1), skip=[1]), ELECTED, {}, id="below records of the next"),
        pytest.param(a((0, 0)), (0, 0, 1, 1), {}, id="an election right after the answer"),
        pytest.param(a((0, 0)), (1, 0, 0), {}, id="an election before"),
        pytest.param(a((0, 0), (2, 1), skip=[1]), (0, 1, 1, 1, 1), {}, id="a deposed leader"),
        pytest.param(a((0, 0)), (), {}, id="no samples"),
        pytest.param(a((0, 0)), (0, 0), {}, id="no sample after the answer"),
        pytest.param(a((0, 0)), (-1, -1, -1, 0), {}, id="no sample before the request"),
        pytest.param(a((0, 0)), STEADY, {"deaths": {"A": 9 * SECOND}}, id="its cluster died"),
        pytest.param(a((0, 0), died=True), STEADY, {}, id="its leader died"),
        pytest.param(a((0, 0), broker=2), STEADY, {}, id="a deposed leader to the end"),
    ],
)
def test_what_its_leader_may_have_lost_is_not_lost(
    wire: Wire, log: Log, epochs: Sequence[int], rest: Any
) -> None:
    assert found(wrote(wire, 0, 1), log, epochs=epochs, **rest) == []


@pytest.mark.parametrize(
    ("log", "epochs"),
    [
        pytest.param(a((0, 0)), STEADY, id="no leader was elected"),
        pytest.param(a((0, 0), (2, 0), skip=[1]), ELECTED, id="its leader went on writing"),
        pytest.param(
            a((0, 0), (2, 0), (3, 1), skip=[1]), ELECTED, id="its leader went on, and then the next"
        ),
    ],
)
def test_what_its_leader_must_have_is_lost(wire: Wire, log: Log, epochs: Sequence[int]) -> None:
    assert ("lost-write", "A", 1) in found(wrote(wire, 0, 1), log, epochs=epochs)


def test_a_promoted_cluster_is_judged_from_its_promotion_on(wire: Wire) -> None:
    invoked, returned = 503 * SECOND, 504 * SECOND
    sends = [
        replace(send, cluster="B", invoked=invoked, returned=returned) for send in wrote(wire, 0, 1)
    ]
    before, after = [3] * 500, [5] * 20
    judged: dict[str, Any] = {"on": "B", "promotions": [promoted(0)]}
    b = Log("B").data(-1, pid=7, sequence=0, leader_epoch=5)
    assert ("lost-write", "B", 1) in found(sends, Log("A"), b, epochs=[*before, *after], **judged)
    assert found(sends, Log("A"), b, epochs=[*before, 3, 3, *after], **judged) == []


def test_batches_without_an_id_that_two_leaders_acknowledged_at_one_offset(wire: Wire) -> None:
    first, second = wrote(wire, 0, 0, known=False)
    log = Log("A").data(-1, crc=second.crc, leader_epoch=1)
    assert found([first, second], log, epochs=ELECTED) == []
    assert found([second, first], log, epochs=ELECTED) == []
    assert {each[0] for each in found([first, second], log)} == {"lost-write", "ghost-ack"}


@pytest.mark.parametrize("high", [1, 2])
def test_a_cluster_that_runs_already_gives_what_is_below_its_high_watermark(
    wire: Wire, high: int
) -> None:
    """While a follower that is in sync does not fetch, the last record is above it."""
    log = a((0, 0))
    log.high_watermark = high
    seen = history_of(wrote(wire, 0, 1), log)
    topology = seen.topology
    running = [replace(cluster, bootstrap="a:9092") for cluster in topology.clusters]
    seen = but(seen, topology=replace(topology, clusters=tuple(running)))
    lost = [("lost-write", "A", 1)] if high == 2 else []
    assert anomalies("lost-write", named_on_the_wire(seen)) == lost
