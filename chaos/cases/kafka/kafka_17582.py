"""KAFKA-17582: a consumer continues after the inputs of an aborted transaction, unless the
application seeks back."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet

INPUTS = 6


@case("KAFKA-17582", ONE, claim={"rewind": False}, control={"rewind": True})
def kafka_17582(bench: Bench, *, rewind: bool) -> Observation:
    """Consume, transform, produce. The transaction of the first inputs is aborted; otherwise
    nothing happens to the group."""
    source, target = bench.topic("input"), bench.topic("output")
    bench.write(source, [b"%d" % n for n in range(INPUTS)])
    consumer = Consumer(
        quiet(bench.bootstrap())
        | {
            "group.id": bench.name("relay"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    bench.closing(consumer)
    producer = Producer(
        quiet(bench.bootstrap()) | {"transactional.id": bench.name("relay"), "linger.ms": 0}
    )
    producer.init_transactions(WITHIN)
    consumer.subscribe([source])
    turn = read = 0

    def done() -> bool:
        nonlocal turn, read
        found = [message for message in consumer.consume(2, 0.5) if message.error() is None]
        if not found:
            return read >= INPUTS
        read += len(found)
        producer.begin_transaction()
        for message in found:
            producer.produce(target, message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN
        )
        turn += 1
        if turn == 1:
            producer.abort_transaction(WITHIN)
            if rewind:
                consumer.seek(TopicPartition(source, 0, 0))
                read = 0
        else:
            producer.commit_transaction(WITHIN)
        return False

    until(done, within=WITHIN, what="the relay to read its inputs", state=lambda: read)
    outputs = [value.decode() for _, value in bench.read(target)]
    (committed,) = consumer.committed([TopicPartition(source, 0)], timeout=30)
    missing = [str(n) for n in range(INPUTS) if str(n) not in outputs]
    facts = {
        "outputs": outputs,
        "inputs_without_output": missing,
        "committed_offset": committed.offset,
    }
    return Observation(shown=bool(missing) and committed.offset == INPUTS, facts=facts)
