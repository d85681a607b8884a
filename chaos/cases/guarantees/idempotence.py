"""KIP-98: a batch that an idempotent producer retries is in the log once, and the answer has its
first offset."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import record_batch


@case("KIP-98-repeat", ONE, claim={"idempotent": True}, control={"idempotent": False})
def _sent_twice(bench: Bench, *, idempotent: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch(
        [b"once"] * 3,
        producer=asked.init_producer_id() if idempotent else None,
        sequence=0 if idempotent else -1,
    )
    answers = [asked.produce((topic, 0), batch) for _ in range(2)]
    high = bench.bound("high", topic)
    return Observation(shown=high != 3, facts={"answers": answers, "high_watermark": high})


@case("KIP-98-old-repeat", ONE, claim={"idempotent": True}, control={"idempotent": False})
def _older(bench: Bench, *, idempotent: bool) -> Observation:
    """Repeats the first of eight batches: a broker keeps the last five of a producer."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id() if idempotent else None
    batches = [
        record_batch([b"%d" % n], producer=producer, sequence=n if idempotent else -1)
        for n in range(8)
    ]
    for batch in batches:
        asked.produce((topic, 0), batch)
    answer = asked.produce((topic, 0), batches[0])
    high = bench.bound("high", topic)
    return Observation(shown=high != 8, facts={"repeat": answer, "high_watermark": high})
