"""Partial findings of relays, before they are combined: bytes per record, and the memory that
combining takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.spark.finding_rows import FindingRow
from linkflap.spark_verify.spark.job import combined, examine
from tests.traced import peak
from tests.unit.checks.clients import commit, poll
from tests.unit.checks.histories import promoted, view
from tests.unit.checks.logs import SECOND, Log, ints, uid

FEW, MANY, RECORDS = 300, 1200, 10
MORE = (MANY - FEW) * RECORDS
PASSED_ON, WHILE_COMBINED = 3, 200
"""Bytes per record: of exactly-once and write-cycles, measured 1.0 and 0.04 before, and 120 and 23
while they are combined."""
RELAY = 9
"""The relay's incarnation; inputs are of 1 and 2, alternating."""


def history(transactions: int) -> list[PartitionView]:
    """Inputs and outputs on a pair: every transaction of the relay makes as many outputs from one
    producer's records."""
    sends = []
    logs = {(cluster, topic): Log(cluster) for cluster in "AB" for topic in "tu"}
    for number in range(transactions):
        first, nth = uid(1 + number % 2, number // 2 * RECORDS), uid(RELAY, number * RECORDS)
        inputs, outputs = list(range(first, first + RECORDS)), list(range(nth, nth + RECORDS))
        begins, ends = logs["A", "t"].end, logs["A", "u"].end
        for cluster in "AB":
            logs[cluster, "t"].txn(*inputs, pid=number % 2)
            logs[cluster, "u"].txn(*outputs, pid=RELAY)
        output = commit(
            *outputs,
            acked=ends,
            process=RELAY,
            invoked=(number + 1) * 1000,
            returned=(number + 1) * 1000 + 500,
        )
        read = range(begins, begins + RECORDS)
        made = replace(
            output, inputs=ints(*read), input_uids=ints(*inputs), position=begins + RECORDS
        )
        sends.append(replace(made, group="g", input_topic="A.t", input_partition=0))
    end = logs["A", "t"].end
    reads = [
        poll(
            kind=kind,
            group="g",
            reader="relay-1",
            position=at,
            cluster=cluster,
            at=seconds * SECOND,
        )
        for kind, cluster, at, seconds in (
            ("assign", "A", 0, 1),
            ("commit", "A", end, 400),
            ("assign", "B", end, 600),
        )
    ]
    promotions = [promoted(end)]
    of = {topic: [logs[cluster, topic] for cluster in "AB"] for topic in "tu"}
    return [
        view(of["t"], reads=reads, promotions=promotions, mirror_kind="shadow"),
        view(
            of["u"], topic="A.u", sends=Sends.of(sends), promotions=promotions, mirror_kind="shadow"
        ),
    ]


@pytest.fixture(scope="module")
def histories() -> tuple[list[PartitionView], list[PartitionView]]:
    return history(FEW), history(MANY)


def partials(name: str, seen: list[PartitionView]) -> list[FindingRow]:
    rows = [row for each in seen for row in examine(REGISTRY[name], each)]
    assert {row.finding for row in rows} == {"partial", "examined"}
    return [row for row in rows if row.finding == "partial"]


def size(rows: list[FindingRow]) -> int:
    return sum(len(repr(row.data)) for row in rows)


@pytest.mark.parametrize("name", ["exactly-once", "write-cycles"])
def test_partial_findings_of_relays_are_small(
    histories: tuple[list[PartitionView], list[PartitionView]], name: str
) -> None:
    few, many = (size(partials(name, seen)) for seen in histories)
    assert (many - few) / MORE < PASSED_ON


@pytest.mark.parametrize("name", ["exactly-once", "write-cycles"])
def test_combining_holds_columns(
    histories: tuple[list[PartitionView], list[PartitionView]], name: str
) -> None:
    few, many = (partials(name, seen) for seen in histories)
    assert combined(REGISTRY[name], "run", many) == []
    peaks = [peak(partial(combined, REGISTRY[name], "run", rows)) for rows in (few, many)]
    assert (peaks[1] - peaks[0]) / MORE < WHILE_COMBINED


def test_each_combination_is_of_one_input_partition(
    histories: tuple[list[PartitionView], list[PartitionView]],
) -> None:
    assert {row.together for row in partials("exactly-once", histories[0])} == {"A.t-0 g"}
    assert {row.together for row in partials("write-cycles", histories[0])} == {""}
