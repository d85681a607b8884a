"""KAFKA-15591 (14312, 19880): a new partition accepts a first batch whose sequence is not 0, and so
loses the batch before it."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import record_batch


def _sent(bench: Bench, *, swapped: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-15591",
    title=(
        "A new partition accepts the second batch of an idempotent producer first, and then "
        "refuses the first one"
    ),
    kind="defect",
    claim_text=(
        "A broker without state of a producer accepts any sequence. Suppose several requests for "
        "a new partition are in flight. The first is refused, because the broker does not know "
        "the partition yet. The second is appended, and the retry of the first is out of order: "
        "the producer's first records are lost in spite of idempotence."
    ),
    sources=(
        "KAFKA-15591, KAFKA-14312, KAFKA-19880 (Apache JIRA); fixed for 4.5",
        "ProducerAppendInfo.checkSequence; KIP-360",
    ),
    expected=(Expected(shows=True, until="4.4.0", basis="runs"),),
    schedule=(
        "1. a new topic; 2. a batch with sequence 3 arrives; 3. the batch with sequence 0 arrives "
        "(its retry)"
    ),
    reproduced="sequence 3 is accepted, sequence 0 is refused, and its records are not in the log",
    control_text="the same two batches in order: both are in the log",
    refuted="the batch with sequence 3 is refused on an empty partition",
    topology=ONE,
    claim=lambda bench: _sent(bench, swapped=True),
    control=lambda bench: _sent(bench, swapped=False),
    clients=("wire",),
)
