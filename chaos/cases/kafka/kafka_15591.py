"""KAFKA-15591 (14312, 19880): a new partition accepts a first batch whose sequence is not 0, and so
loses the batch before it."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import record_batch


@case("KAFKA-15591", ONE, claim={"swapped": True}, control={"swapped": False})
def kafka_15591(bench: Bench, *, swapped: bool) -> Observation:
    """Two batches in flight. When the first is refused because the broker does not know the
    partition yet, the second arrives first."""
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = record_batch([b"first"] * 3, producer=producer, sequence=0)
    second = record_batch([b"second"] * 3, producer=producer, sequence=3)
    order = (
        [("second", second), ("first", first)]
        if swapped
        else [("first", first), ("second", second)]
    )
    answers = {name: asked.produce((topic, 0), batch) for name, batch in order}
    read = [value.decode() for _, value in bench.read(topic, "read_uncommitted")]
    facts = {"answers": answers, "records": read}
    return Observation(shown=answers["second"][0] == "none" and "first" not in read, facts=facts)
