"""What mirrored producer ids do to the destination's own producers after a failover, on the shadow
mirror (Redpanda PR 31659)."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.record_batch import record_batch


def _failed_over(bench: Bench, ids: str) -> Observation:
    topic = bench.topic()
    mirror = bench.mirror("shadow", producer_ids=ids)
    mirror.start()
    source = bench.ask(bench.up("A"))
    drawn = source.init_producer_id()
    source.produce((topic, 0), record_batch([b"of A"] * 2, producer=drawn, sequence=0))
    bench.drained(mirror)
    mirror.stop()
    bench.led(topic, cluster="B")
    destination = bench.ask(bench.up("B"))
    before = bench.bound("high", topic, cluster="B")
    own = destination.init_producer_id()
    error, offset = destination.produce(
        (topic, 0), record_batch([b"of B"] * 2, producer=own, sequence=0)
    )
    after = bench.bound("high", topic, cluster="B")
    read = [value.decode() for _, value in bench.read(topic, cluster="B")]
    facts = {
        "id_on_A": drawn.id,
        "id_on_B": own.id,
        "promoted_at": before,
        "produce_on_B": [error, offset],
        "high_watermark_before_and_after": [before, after],
        "records_on_B": read,
    }
    return Observation(shown=error == "none" and "of B" not in read, facts=facts)


def _case(name: str, ids: str, title: str, claim: str) -> Case:
    return Case(
        name=name,
        title=title,
        kind="proposal",
        claim_text=claim,
        sources=(
            "Redpanda PR 31659 (August 2026): the same in its shadow links",
            "KIP-1279 discussion, RS12 and msg155161",
        ),
        expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
        schedule=(
            "1. A's first producer writes; 2. failover; 3. B's first producer, with the id that B "
            "hands out first, writes"
        ),
        reproduced=(
            "the write is acknowledged with an offset below the promotion offset, and nothing is "
            "appended"
        ),
        control_text=(
            "B's allocation advanced past the mirrored ids before the failover: the records are "
            "appended"
        ),
        refuted="B's records in its log, or an error",
        topology=PAIR,
        claim=partial(_failed_over, ids=ids),
        control=partial(_failed_over, ids="jump"),
        clients=("wire",),
        oldest="3.9.1",
        apart=True,
    )


CASES = [
    _case(
        "kept-ids",
        "keep",
        "With kept producer ids the destination's first own write after a failover is acknowledged "
        "and not appended",
        "Both clusters hand out producer ids from zero. The destination's first own producer has "
        "the id, epoch and sequence of a mirrored one: its batch is taken for a repeat, answered "
        "with the mirrored offset, and dropped.",
    ),
    _case(
        "reset-on-stock-brokers",
        "reset",
        "A MIRROR_PID_RESET resets nothing on a stock broker: what it should prevent happens "
        "behind it",
        "Brokers before KIP-1279 skip control records of unknown types. A destination that is "
        "downgraded, or replicas of an older release, keep the mirrored producers' state behind "
        "the reset.",
    ),
]
