"""exactly-once: the smallest histories, of one topic that holds inputs and outputs, and of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np
import pytest

from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.model.history import GroupOffset
from linkflap.harness.model.scenario import FaultSpec, MirrorSpec, WorkloadSpec
from linkflap.harness.model.verdict import Anomaly
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.base import Found, PartialFinding
from linkflap.spark_verify.checks.finding_rows import FindingRow, combined, examine
from linkflap.spark_verify.facts.partition_facts import LogPromotion, Window
from linkflap.spark_verify.facts.sends_and_reads import Read, Send, Sends
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.verdict.allowances import why_allowed
from tests.oracles import agreement
from tests.scenarios import scenario_of
from tests.traced import peak
from tests.unit.checks.histories import (
    SECOND,
    Log,
    Sent,
    commit,
    ints,
    poll,
    promoted,
    samples,
    uid,
    view,
)
from tests.unit.checks.verdicts import Rejected, examined, findings, found_in, unjudged

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
    "input-lost": Rejected(view([log().txn(13, 14, pid=7)], sends=[ACKED[1]], reads=READ), "A", 0),
    "output-duplicated": Rejected(
        view([BOTH.txn(15, pid=7)], sends=[*ACKED, made(15, 3)], reads=READ), "A", 3
    ),
    "output-without-input": Rejected(
        view(
            [ABORTED.txn(11, 12, pid=7)],
            sends=[replace(made(11, 0, 2), input_uids=ints(1, 2))],
            reads=[began(), committed(3)],
        ),
        "A",
        0,
    ),
    "offset-behind": Rejected(
        view([BOTH], sends=ACKED, reads=READ, groups=[sampled(1, seconds=50)]), "A", 1
    ),
    "output-repeated-by-failover": Rejected(
        over(
            on_b=log("B").data(11, 12, 13, 14).txn(21, pid=9),
            began_at=3,
            inputs=8,
            sends=[*ACKED, AGAIN],
        ),
        "B",
        3,
    ),
    "output-lost-by-failover": Rejected(
        over(on_b=log("B").data(11, 12), began_at=4, inputs=6, sends=ACKED), "B", 2
    ),
}


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


def test_exactly_once_is_due_only_on_clusters_where_relays_begin() -> None:
    scenario = scenario_of(
        mirror=declared(MirrorSpec(kind="shadow")),
        workloads=(
            WorkloadSpec(kind="transactional", home="A"),
            WorkloadSpec(kind="relay", home="A"),
        ),
    )
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


def test_input_mirrored_twice_counts_only_the_copy_that_was_used_again() -> None:
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


def apart(
    inputs: list[Log],
    outputs: list[Log],
    sends: list[Send],
    reads: list[Read],
    promotions: Sequence[LogPromotion] = (),
    windows: Sequence[Window] = (),
) -> list[tuple[str, str, str, int, bool]]:
    """(kind, cluster, topic, offset, allowed) of the findings when inputs are in one topic and
    outputs in another."""
    seen = [
        view(inputs, reads=reads, promotions=promotions, windows=windows),
        view(outputs, topic="A.u", sends=sends, promotions=promotions, windows=windows),
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


def test_an_input_that_the_group_passed_at_the_failover_unused_is_lost() -> None:
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


@pytest.mark.parametrize(
    ("fault", "target", "seconds", "may"),
    [
        ("", "", 0, False),
        ("broker-kill", "B/1", 610, True),
        ("broker-kill", "B/1", 690, False),
        ("broker-kill", "A/1", 610, False),
        ("link-cut", "A->B", 610, False),
    ],
    ids=["no fault", "a coordinator reloaded", "a later fault", "another cluster", "a link"],
)
def test_outputs_may_be_made_again_only_from_where_the_group_was_first(
    fault: str, target: str, seconds: int, may: bool
) -> None:
    """The group begins at 5 on B, and is given the partition again at 3."""
    reads = [
        *READ,
        began(5, "B", seconds=600),
        began(3, "B", seconds=650),
        committed(5, "B", seconds=700),
    ]
    again = replace(made(21, 3, cluster="B", invoked=660 * SECOND, returned=670 * SECOND))
    on_b = [log("B").data(5), Log("B").txn(11, 12, pid=7).txn(13, 14, pid=7).txn(21, pid=9)]
    at = seconds * SECOND
    windows = [Window(id="f", fault=fault, target=target, start=at, end=at + 1)] if fault else []
    found = apart(
        [log(), on_b[0]],
        [ON_A, on_b[1]],
        [*ACKED, again],
        reads,
        promotions=[promoted(4)],
        windows=windows,
    )
    repeats = [each for each in found if each[0] == "output-repeated-by-failover"]
    assert repeats == [("output-repeated-by-failover", "B", "A.t", 3, may)]


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
