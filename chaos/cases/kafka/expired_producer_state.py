"""Effects of an idempotent producer's state that expired on brokers after
`producer.id.expiration.ms` (KIP-360, KIP-854)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages

SETTING = "producer.id.expiration.ms"


def _known(asked: Wire, topic: str) -> int:
    """The number of producers that the partition's leader knows (DescribeProducers, KIP-664)."""
    m = messages.request("describe_producers", 0)
    body = m.DescribeProducersRequest(topics=(m.TopicRequest(name=topic, partition_indexes=(0,)),))
    (answer,) = asked.call("describe_producers", 0, body).topics
    return len(answer.partitions[0].active_producers)


def _expire(bench: Bench, asked: Wire, topic: str, *, expire: bool) -> None:
    if expire:
        bench.setting(SETTING, "1")
        until(
            lambda: _known(asked, topic) == 0,
            within=WITHIN,
            what="the broker to forget the producer",
            every=0.1,
        )


@case("expired-producer-repeats", ONE, claim={"expire": True}, control={"expire": False})
def _retried(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    batch = record_batch([b"once"] * 2, producer=asked.init_producer_id(), sequence=0)
    first = asked.produce((topic, 0), batch)
    _expire(bench, asked, topic, expire=expire)
    second = asked.produce((topic, 0), batch)
    high = bench.bound("high", topic)
    return Observation(
        shown=second[0] == "none" and high == 4,
        facts={"first": first, "retry": second, "high_watermark": high},
    )


@case("expired-producer-gap", ONE, claim={"expire": True}, control={"expire": False})
def _gap(bench: Bench, *, expire: bool) -> Observation:
    topic = bench.topic()
    asked = bench.ask(bench.up())
    producer = asked.init_producer_id()
    first = asked.produce((topic, 0), record_batch([b"first"], producer=producer, sequence=0))
    _expire(bench, asked, topic, expire=expire)
    later = asked.produce((topic, 0), record_batch([b"later"], producer=producer, sequence=9))
    return Observation(shown=later[0] == "none", facts={"sequence 0": first, "sequence 9": later})


_SOURCES = (
    "KIP-360, KIP-854 (producer.id.expiration.ms)",
    "ProducerStateManager.removeExpiredProducers",
)
