"""exactly-once over a failover, inputs in one topic and outputs in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from linkflap.harness.guarantees import DECLARATIONS
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.sends_and_reads import Read, Send
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.unit.checks.histories import promoted, view
from tests.unit.checks.logs import SECOND, Log, ints
from tests.unit.checks.relays import ACKED, READ, began, committed, log, made
from tests.unit.checks.verdicts import (
    examined,
    findings,
    found_in,
    unjudged,
)

NAME = "exactly-once"


def apart(
    inputs: list[Log],
    outputs: list[Log],
    sends: list[Send],
    reads: list[Read],
    promotions: Sequence[Promotion] = (),
) -> list[tuple[str, str, str, int, bool]]:
    """(kind, cluster, topic, offset, allowed) of the findings when inputs are in one topic and
    outputs in another."""
    seen = [
        view(inputs, reads=reads, promotions=promotions),
        view(outputs, topic="A.u", sends=sends, promotions=promotions),
    ]
    partials = [
        PartialFinding(
            cluster=f.cluster, offset=f.offset, data=f.data, topic=each.topic, partition=0
        )
        for each in seen
        for f in REGISTRY[NAME].kernel(each)
        if isinstance(f, PartialFinding)
    ]
    combine = REGISTRY[NAME].combine
    assert combine is not None
    combined = [(c.topic, found_in(c)) for c in combine(partials)]
    return [(f.kind, f.cluster, topic, f.offset, allowed(f)) for topic, f in combined]


def allowed(found: Found) -> bool:
    anomaly = Anomaly(
        check=NAME,
        kind=found.kind,
        cluster=found.cluster,
        topic="A.t",
        partition=0,
        offset=found.offset,
        evidence=found.evidence,
    )
    return all(
        why_allowed(anomaly, DECLARATIONS[kind]({}), "A->B", ()) is not None
        for kind in ("shadow", "mm2")
    )


ON_A = Log("A").txn(11, 12, pid=7).txn(13, 14, pid=7)


MOVED = [*READ, began(4, "B", seconds=600), committed(5, "B", seconds=700)]


NEXT = replace(
    made(21, 4, cluster="B", invoked=610 * SECOND, returned=620 * SECOND), input_uids=ints(5)
)


def test_a_relay_that_continues_at_its_offset_is_accepted() -> None:
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(13, 14, pid=7).txn(21, pid=9)]
    assert (
        apart([log(), on_b[0]], [ON_A, on_b[1]], [*ACKED, NEXT], MOVED, promotions=[promoted(6)])
        == []
    )


@pytest.mark.parametrize(("kind", "may"), [("forced", True), ("planned", False)])
def test_outputs_that_did_not_arrive_are_allowed_where_the_source_was_given_up(
    kind: str, may: bool
) -> None:
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(21, pid=9)]
    promotions = [promoted(4, kind=kind)]
    found = apart([log(), on_b[0]], [ON_A, on_b[1]], [*ACKED, NEXT], MOVED, promotions=promotions)
    assert found == [("output-lost-by-failover", "B", "A.t", 2, may)]


def test_outputs_that_are_made_again_are_allowed_once_from_where_the_group_began() -> None:
    reads = [*READ, began(3, "B", seconds=600), committed(5, "B", seconds=700)]
    again = replace(made(21, 3, 4, cluster="B", invoked=610 * SECOND, returned=620 * SECOND))
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(13, 14, pid=7).txn(21, 22, pid=9)]
    found = apart(
        [log(), on_b[0]], [ON_A, on_b[1]], [*ACKED, again], reads, promotions=[promoted(4)]
    )
    assert found == [("output-repeated-by-failover", "B", "A.t", 3, True)]
    twice = replace(made(23, 4, cluster="B", invoked=630 * SECOND, returned=640 * SECOND))
    on_b[1] = Log("B").txn(11, 12, pid=7).txn(13, 14, pid=7).txn(21, 22, pid=9).txn(23, pid=9)
    found = apart(
        [log(), on_b[0]], [ON_A, on_b[1]], [*ACKED, again, twice], reads, promotions=[promoted(4)]
    )
    assert ("output-duplicated", "B", "A.t", 4, False) in found


def test_an_input_that_the_group_passed_at_the_failover_and_nobody_used_is_lost() -> None:
    on_a = Log("A").txn(11, 12, pid=7)
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(21, pid=9)]
    reads = [began(), committed(2), *MOVED[2:]]
    found = apart(
        [log(), on_b[0]], [on_a, on_b[1]], [ACKED[0], NEXT], reads, promotions=[promoted(4)]
    )
    assert found == [("input-lost", "B", "A.t", 2, False)]


def test_findings_in_a_torn_log_are_reasons() -> None:
    seen = view([log().txn(13, 14, pid=7).torn()], sends=[ACKED[1]], reads=READ)
    assert findings(NAME, seen) == []
    assert unjudged(NAME, seen)
    assert examined(NAME, seen) == {}
    assert apart([log()], [Log("A").txn(13, 14, pid=7).torn()], ACKED, READ) == []


def test_outputs_of_inputs_below_where_the_group_began_may_not_be_made_again() -> None:
    again = replace(made(21, 3, 4, cluster="B", invoked=610 * SECOND, returned=620 * SECOND))
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(13, 14, pid=7).txn(21, 22, pid=9)]
    found = apart(
        [log(), on_b[0]], [ON_A, on_b[1]], [*ACKED, again], MOVED, promotions=[promoted(4)]
    )
    assert found == [("output-repeated-by-failover", "B", "A.t", 3, False)]
