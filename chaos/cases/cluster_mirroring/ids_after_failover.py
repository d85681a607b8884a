"""What mirrored producer ids do to the destination's own producers after a failover, on the shadow
mirror (Redpanda PR 31659)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.record_batch import record_batch


@case("kept-ids", PAIR, claim={"ids": "keep"}, control={"ids": "jump"})
@case("reset-on-stock-brokers", PAIR, claim={"ids": "reset"}, control={"ids": "jump"})
def ids_after_failover(bench: Bench, ids: str) -> Observation:
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
