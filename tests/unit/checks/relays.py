"""A relay's transactions in the histories of exactly-once: which outputs it made from which
inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from linkflap.harness.model.history import GroupOffset
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.clients import Sent, commit, poll
from tests.unit.checks.histories import promoted, view
from tests.unit.checks.logs import SECOND, Log, ints

INPUTS = 4
"""Offsets 0 to 3 are inputs here, with payload ids 1 to 4."""


class Output(Sent, total=False):
    """The optional fields of a transaction with outputs."""

    ending: str


def made(uid: int, *inputs: int, position: int = -1, **rest: Unpack[Output]) -> Send:
    """Outputs, from `uid` on, of the inputs at these offsets, and the group's committed offset."""
    outputs = commit(*(uid + n for n in range(len(inputs))), acked=0, **rest)
    return replace(
        outputs, group="g", input_topic="A.t", input_partition=0,
        position=position if position >= 0 else inputs[-1] + 1,
        inputs=ints(*inputs), input_uids=ints(*(i + 1 for i in inputs)),
    )  # fmt: skip


def began(at: int = 0, cluster: str = "A", seconds: int = 1) -> Read:
    return poll(
        kind="assign",
        group="g",
        reader="relay-1",
        position=at,
        cluster=cluster,
        at=seconds * SECOND,
    )


def sampled(offset: int, cluster: str = "A", seconds: int = 300) -> GroupOffset:
    return GroupOffset(
        time=seconds * SECOND, cluster=cluster, group="g", topic="A.t", partition=0, offset=offset
    )


def committed(position: int, cluster: str = "A", seconds: int = 20) -> Read:
    return poll(
        kind="commit",
        group="g",
        reader="relay-1",
        position=position,
        cluster=cluster,
        at=seconds * SECOND,
    )


def log(name: str = "A", inputs: int = INPUTS) -> Log:
    return Log(name).data(*range(1, inputs + 1))


BOTH = log().txn(11, 12, pid=7).txn(13, 14, pid=7)


ACKED = [made(11, 0, 1), made(13, 2, 3, invoked=30 * SECOND, returned=40 * SECOND)]


READ = [began(), committed(4)]


def over(
    *,
    on_b: Log,
    began_at: int,
    sends: list[Send],
    kind: str = "forced",
    inputs: int = INPUTS,
    source: Log = BOTH,
) -> PartitionView:
    """A is given up, and the group continues on B."""
    reads = [*READ, began(began_at, "B", seconds=600)]
    return view([source, on_b], sends=sends, reads=reads, promotions=[promoted(inputs, kind=kind)])
