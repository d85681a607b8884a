"""exactly-once: the smallest histories, of one topic that holds inputs and outputs, and of two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from linkflap.harness.guarantees import declared
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, Scenario, WorkloadSpec
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.facts.partition_facts import Window
from linkflap.topologies import parse
from tests.oracles import agreement
from tests.unit.checks.clients import commit, poll
from tests.unit.checks.histories import promoted, samples, view
from tests.unit.checks.logs import SECOND, Log, ints
from tests.unit.checks.relays import ACKED, BOTH, READ, began, committed, log, made, over, sampled
from tests.unit.checks.verdicts import (
    Rejected,
    assert_accepted,
    assert_rejected,
    findings,
    unjudged,
)

NAME = "exactly-once"


ABORTED = Log("A").txn(1, pid=5, end="abort").data(2)


AGAIN = made(21, 3, cluster="B", invoked=610 * SECOND, returned=620 * SECOND)
ACCEPTED = {
    "each once": (view([BOTH], sends=ACKED, reads=READ), {"A/native": 4}),
    "no relay": (view([log()], sends=[commit(1, 2, acked=0)], reads=[poll((0, 1), group="g")]), {}),
    "begun later": (
        view([log().txn(13, 14, pid=7)], sends=[ACKED[1]], reads=[began(2), committed(4)]),
        {"A/native": 2},
    ),
    "not passed yet": (
        view([log().txn(11, 12, pid=7)], sends=[ACKED[0]], reads=[began(), committed(2)]),
        {"A/native": 2},
    ),
    "an attempt that was aborted": (
        view(
            [log().txn(11, 12, pid=7, end="abort").txn(13, 14, pid=7).txn(15, 16, pid=7)],
            sends=[made(11, 0, 1, ending="abort"), made(13, 0, 1), made(15, 2, 3)],
            reads=READ,
        ),
        {"A/native": 4},
    ),
    "an aborted input": (
        view(
            [ABORTED.txn(11, pid=7)],
            sends=[replace(made(11, 2), input_uids=ints(2))],
            reads=[began(), committed(3)],
        ),
        {"A/native": 1},
    ),
    "nobody knows, and it was aborted": (
        view(
            [log().txn(11, 12, pid=7, end="abort")],
            sends=[made(11, 0, 1, outcome="info", returned=-1)],
            reads=[began()],
        ),
        {},
    ),
    "acknowledged, and given up before the marker": (
        view([log().txn(11, 12, pid=7).txn(13, 14, pid=7, end=None)], sends=ACKED, reads=READ),
        {"A/native": 4},
    ),
    "an output that retention has deleted": (
        view([Log("A", start=2).data(3)], sends=[made(11, 2)], reads=[began(2), committed(3)]),
        {"A/native": 1},
    ),
    "an input that retention has deleted": (
        view([Log("A", start=4).txn(11, 12, pid=7).txn(13, 14, pid=7)], sends=ACKED, reads=READ),
        {},
    ),
    "an output that was compacted away": (
        view(
            [Log("A").skip(2).data(3)],
            sends=[made(11, 2)],
            reads=[began(2), committed(3)],
            compacted={"A": 2},
        ),
        {"A/native": 1},
    ),
    "inputs that were compacted away": (
        view(
            [Log("A").skip(4).txn(11, 12, pid=7).txn(13, 14, pid=7)],
            sends=ACKED,
            reads=READ,
            compacted={"A": 4},
        ),
        {},
    ),
    "fewer acknowledgements than inputs": (
        view(
            [log().txn(11, 12, pid=7)],
            sends=[replace(ACKED[0], offsets=ints(4), refused=np.zeros(1, np.bool_))],
            reads=[began(), committed(2)],
        ),
        {"A/native": 2},
    ),
    "sampled while the next is open": (
        view(
            [BOTH], sends=ACKED, reads=READ, groups=[sampled(0, seconds=25), sampled(2, seconds=35)]
        ),
        {"A/native": 4, "A/checkpoints": 2},
    ),
}
REJECTS = {
    "input-lost": Rejected(
        view=view([log().txn(13, 14, pid=7)], sends=[ACKED[1]], reads=READ), cluster="A", offset=0
    ),
    "output-duplicated": Rejected(
        view=view([BOTH.txn(15, pid=7)], sends=[*ACKED, made(15, 3)], reads=READ),
        cluster="A",
        offset=3,
    ),
    "output-without-input": Rejected(
        view=view(
            [ABORTED.txn(11, 12, pid=7)],
            sends=[replace(made(11, 0, 2), input_uids=ints(1, 2))],
            reads=[began(), committed(3)],
        ),
        cluster="A",
        offset=0,
    ),
    "offset-behind": Rejected(
        view=view([BOTH], sends=ACKED, reads=READ, groups=[sampled(1, seconds=50)]),
        cluster="A",
        offset=1,
    ),
    "output-repeated-by-failover": Rejected(
        view=over(
            on_b=log("B").data(11, 12, 13, 14).txn(21, pid=9),
            began_at=3,
            inputs=8,
            sends=[*ACKED, AGAIN],
        ),
        cluster="B",
        offset=3,
    ),
    "output-lost-by-failover": Rejected(
        view=over(on_b=log("B").data(11, 12), began_at=4, inputs=6, sends=ACKED),
        cluster="B",
        offset=2,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str) -> None:
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind: str) -> None:
    assert_rejected(NAME, kind, REJECTS[kind])


def test_an_impossible_sample_before_any_transaction_is_behind_nothing() -> None:
    assert (
        findings(NAME, view([BOTH], sends=ACKED, reads=READ, groups=[sampled(-2, seconds=5)])) == []
    )


@pytest.mark.parametrize(
    ("offset", "struck_at", "found"),
    [(0, 45, []), (1, 45, ["offset-behind"]), (0, 55, ["offset-behind"])],
    ids=["where it began", "no commit of the group", "before the fault"],
)
def test_a_coordinator_that_loads_anew_may_answer_with_an_earlier_commit(
    offset: int, struck_at: int, found: list[str]
) -> None:
    kill = Window(
        id="f", fault="broker-kill", target="A/1", start=struck_at * SECOND, end=struck_at * SECOND
    )
    seen = view(
        [BOTH], sends=ACKED, reads=READ, groups=[sampled(offset, seconds=50)], windows=[kill]
    )
    rows = agreement.findings(REGISTRY[NAME], [seen])
    assert [row.kind for row in rows if row.finding == "found"] == found
    assert agreement.disagreement(NAME, rows, [seen]) == ""


def test_it_is_due_where_relays_begin_and_nowhere_else() -> None:
    scenario = Scenario(
        name="s", about="", seed=1, topology=parse("A->B"),
        mirror=declared(MirrorSpec(kind="shadow")), schedule=(),
        workloads=(WorkloadSpec(kind="transactional", home="A"),
            WorkloadSpec(kind="relay", home="A")),
    )  # fmt: skip
    due = REGISTRY[NAME].due_at
    assert due is not None
    assert due(scenario, ()) == {("A", "native"), ("A", "checkpoints")}
    assert due(scenario, [promoted(4)]) == {
        ("A", "native"),
        ("A", "checkpoints"),
        ("B", "checkpoints"),
    }
    assert due(scenario, [promoted(4, source="B", cluster="C")]) == {
        ("A", "native"),
        ("A", "checkpoints"),
    }
    assert due(replace(scenario, workloads=scenario.workloads[:1]), ()) == set()
    back = FaultSpec(id="back", fault="mirror-reverse", target="A->B", at=1.0, duration=0.0)
    assert due(replace(scenario, schedule=(back,)), [promoted(4)]) == {
        ("A", "checkpoints"),
        ("B", "checkpoints"),
    }


def test_a_group_that_committed_and_was_never_sampled_is_unknown() -> None:
    def reasons(*groups: GroupOffset, seconds: int = 20) -> list[str]:
        marks = {"A": samples(*[(4, 4)] * seconds)}
        return unjudged(
            NAME, view([BOTH], sends=ACKED, reads=READ, groups=groups, watermarks=marks)
        )

    committed_at = max(r.returned for r in READ if r.kind == "commit") // SECOND
    reason = (
        "no committed offset of group g was ever sampled on A, so how far it was there is unknown"
    )
    assert reasons(seconds=committed_at + 10) == [reason]
    assert reasons(seconds=1) == [], "nobody had the time to ask"
    assert reasons(sampled(2, seconds=35), seconds=committed_at + 10) == []


def test_of_an_input_that_a_mirror_wrote_twice_only_the_copy_that_was_used_again_counts() -> None:
    """The output of the first copy was mirrored; the group on B had reached the second copy, and
    made another output from it."""
    a, b = Log("A").data(1).txn(11, pid=7), Log("B").data(1).data(1).data(11).txn(21, pid=9)
    again = replace(
        made(21, 1, cluster="B", invoked=610 * SECOND, returned=620 * SECOND), input_uids=ints(1)
    )
    seen = over(on_b=b, began_at=1, inputs=3, sends=[made(11, 0), again], source=a)
    found_here = [
        (f.kind, f.offset, f.evidence["records"]) for f in findings(NAME, seen) if f.cluster == "B"
    ]
    assert found_here == [("output-repeated-by-failover", 1, 1)]
