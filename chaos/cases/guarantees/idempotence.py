"""KIP-98: a batch that an idempotent producer retries is in the log once, and the answer has its
first offset."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import record_batch


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


_EXPECTED = (Expected(shows=False, basis="runs"),)

CASES = [
    Case(
        name="KIP-98-repeat",
        title="A retried batch is in the log once",
        kind="guarantee",
        claim_text=(
            "Anomaly: a batch of an idempotent producer whose answer was lost, and that is "
            "retried, is in the log twice."
        ),
        sources=("KIP-98, idempotent producer guarantees",),
        expected=_EXPECTED,
        schedule=(
            "1. a batch with producer id and sequence 0 is appended; 2. the same batch is sent "
            "again"
        ),
        reproduced="the high watermark is 6 instead of 3",
        control_text="the same without idempotence: the batch is in the log twice",
        refuted="a second copy in the log",
        topology=ONE,
        claim=lambda bench: _sent_twice(bench, idempotent=True),
        control=lambda bench: _sent_twice(bench, idempotent=False),
        control_shows=True,
        clients=("wire",),
    ),
    Case(
        name="KIP-98-old-repeat",
        title="A batch that is retried after seven later ones is not appended again",
        kind="guarantee",
        claim_text=(
            "Anomaly: a retry that is older than the five batches that a broker keeps of a "
            "producer is appended again."
        ),
        sources=(
            "KIP-98; KAFKA-5494: five batches in flight",
            "ProducerStateEntry.NUM_BATCHES_TO_RETAIN",
        ),
        expected=_EXPECTED,
        schedule=(
            "1. eight batches with sequences 0 to 7 are appended; 2. the first one is sent again"
        ),
        reproduced="the high watermark is 9 instead of 8",
        control_text="the same without idempotence: the batch is appended again",
        refuted="a second copy in the log",
        topology=ONE,
        claim=lambda bench: _older(bench, idempotent=True),
        control=lambda bench: _older(bench, idempotent=False),
        control_shows=True,
        clients=("wire",),
    ),
]
