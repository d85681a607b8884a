"""Transactions that nothing ends: the smallest histories."""

from __future__ import annotations

import pytest

from linkflap.spark_verify.facts.partition_facts import Refusal
from tests.unit.checks.histories import promoted, samples, view
from tests.unit.checks.logs import ENDED, Log
from tests.unit.checks.verdicts import anomalies, findings

NAME = "last-stable-offset"


@pytest.mark.parametrize(
    ("kind", "found"), [("shadow", [("hanging-transaction", "B", 1)]), ("mm2", [])]
)
def test_a_transaction_left_open_by_an_offset_keeping_mirror_hangs(
    kind: str, found: list[tuple[str, str, int]]
) -> None:
    """MirrorMaker 2 writes its own transactions, which a coordinator on B ends."""
    b = Log("B").data(1).txn(2, pid=7, end=None)
    seen = view([b], promotions=[promoted(2)], watermarks={"B": samples((1, 2))}, mirror_kind=kind)
    assert anomalies(NAME, seen) == found


@pytest.mark.parametrize(
    ("kind", "mirror", "dead", "found"),
    [
        ("forced", "shadow", "A", [("hanging-transaction", "B", 0)]),
        ("planned", "shadow", "", []),
        ("forced", "shadow", "", []),
        ("forced", "mm2", "A", []),
    ],
    ids=["source dead", "source alive", "source alive again", "the transaction is the mirror's"],
)
def test_a_refused_failover_leaves_the_dead_sources_transactions_open(
    kind: str, mirror: str, dead: str, found: list[tuple[str, str, int]]
) -> None:
    """At once, not only after the timeout: no coordinator is left that could end it."""
    refusal = Refusal(link="A->B", kind=kind, error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), Log("B").txn(1, pid=7, end=None)]
    seen = view(
        logs,
        watermarks={"B": samples((0, 1))},
        mirror_kind=mirror,
        refusals=[refusal],
        deaths={dead: ENDED} if dead else {},
    )
    assert anomalies(NAME, seen) == found
    for each in findings(NAME, seen):
        assert each.evidence["refused_over"] == "A->B"
        assert each.evidence["mirrored"]


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("A->B", [("hanging-transaction", "B", 0), ("hanging-transaction", "C", 0)]),
        ("B->C", [("hanging-transaction", "C", 0)]),
        ("C->D", []),
    ],
)
def test_down_the_chain_nothing_ends_it_either(
    link: str, found: list[tuple[str, str, int]]
) -> None:
    refusal = Refusal(link=link, kind="forced", error="NOT_STOPPED", code=145, seconds=60.0)
    logs = [Log("A").txn(1, pid=7), *(Log(name).txn(1, pid=7, end=None) for name in "BC")]
    marks = {name: samples((0, 1)) for name in "BC"}
    seen = view(
        logs,
        watermarks=marks,
        mirror_kind="shadow",
        refusals=[refusal],
        deaths={link[0]: ENDED},
        topology="A->B->C",
    )
    assert sorted(anomalies(NAME, seen)) == found
