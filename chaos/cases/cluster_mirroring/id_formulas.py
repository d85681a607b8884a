"""Every mapping of producer ids that was proposed for mirrored records, on a chain A->B->C: which
producers have one id on C.

A broker's view of a producer is what its log says. So what two hops of mirroring leave behind is
written to one stock broker: a batch of A's producer by way of B and one of B's own, each under the
id that the formula gives it, and then one of C's own first producer, with the id that a fresh
cluster hands out.
"""

from __future__ import annotations

from collections.abc import Callable

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.harness.mirrors.shadow.log.producer_ids import complement, negate, region

Formula = Callable[[int], int]
FIRST_HOP, SECOND_HOP = "cluster-of-A", "cluster-of-B"


def _ids(formula: str, own: int) -> dict[str, int]:
    """Who -> id on C, where A's, B's and C's own producer each drew `own` from their own
    cluster."""
    hops: dict[str, tuple[Formula, Formula]] = {
        "keep": (lambda pid: pid, lambda pid: pid),
        "negate": (negate, negate),
        "complement": (complement, complement),
        "region": (region(FIRST_HOP), region(SECOND_HOP)),
        "advance": (lambda pid: pid, lambda pid: pid),
    }
    first, second = hops[formula]
    # `advance` keeps ids, and each destination's own allocation begins past those that were
    # mirrored.
    step = 1000 if formula == "advance" else 0
    return {"A": second(first(own)), "B": second(own + step), "C": own + 2 * step}


@case("RS12-keep-ids-on-a-chain", ONE, claim={"formula": "keep"}, control={"formula": "advance"})
@case(
    "RS12-negate-ids-on-a-chain", ONE, claim={"formula": "negate"}, control={"formula": "advance"}
)
@case(
    "RS12-complement-ids-on-a-chain",
    ONE,
    claim={"formula": "complement"},
    control={"formula": "advance"},
)
@case(
    "RS12-region-ids-on-a-chain", ONE, claim={"formula": "region"}, control={"formula": "advance"}
)
def ids_on_a_chain(bench: Bench, formula: str) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    drawn = asked.init_producer_id().id
    ids = _ids(formula, drawn)
    answers, lost = {}, []
    for who, pid in ids.items():
        before = bench.bound("high", topic)
        batch = record_batch(
            [f"of {who}".encode()] * 2, producer=ProducerIdentity(id=pid, epoch=0), sequence=0
        )
        error, offset = asked.produce((topic, 0), batch)
        grown = bench.bound("high", topic) - before
        answers[who] = f"id {pid}: {error}, offset {offset}, {grown} records appended"
        if error == "none" and not grown:
            lost.append(who)
    log = bench.log(topic)
    untracked = [who for who, pid in ids.items() if pid < 0]
    same = sorted({f"{a}={b}" for a in ids for b in ids if a < b and ids[a] == ids[b]})
    facts = {
        "ids_on_C": ids,
        "same_id": same,
        "answers": answers,
        "acknowledged_and_not_appended": lost,
        "tracked_by_no_broker": untracked,
        "log": [f"{one.base_offset}-{one.last_offset} producer {one.producer_id}" for one in log],
    }
    return Observation(shown=bool(same and (lost or untracked)), facts=facts)
