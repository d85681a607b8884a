"""Effects of an idempotent producer's state that expired on brokers after
`producer.id.expiration.ms` (KIP-360, KIP-854)."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
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

CASES = [
    Case(
        name="expired-producer-repeats",
        title="A retry after the producer's state has expired is appended a second time",
        kind="limit",
        claim_text=(
            "An idempotent batch whose answer was lost, and that is retried after "
            "producer.id.expiration.ms, is in the log twice."
        ),
        sources=_SOURCES,
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            "1. a batch is appended, its answer is lost; 2. the producer's state expires; 3. the "
            "batch is retried"
        ),
        reproduced="both are acknowledged, and the log has four records instead of two",
        control_text=(
            "the retry comes before the state expires: acknowledged with the first offset, not "
            "appended"
        ),
        refuted="a retry after the expiry is refused or recognised",
        topology=ONE,
        claim=lambda bench: _retried(bench, expire=True),
        control=lambda bench: _retried(bench, expire=False),
        clients=("wire",),
    ),
    Case(
        name="expired-producer-gap",
        title="A gap in a producer's sequence numbers is accepted once its state has expired",
        kind="limit",
        claim_text=(
            "After producer.id.expiration.ms a broker accepts any sequence of the producer, so "
            "the loss of records in between stays unnoticed."
        ),
        sources=_SOURCES,
        expected=(Expected(shows=True, basis="runs"),),
        schedule=(
            "1. sequence 0 is appended; 2. the producer's state expires; 3. sequence 9 is sent"
        ),
        reproduced="sequence 9 is acknowledged",
        control_text="the same before the state expires: OUT_OF_ORDER_SEQUENCE_NUMBER",
        refuted="sequence 9 is refused",
        topology=ONE,
        claim=lambda bench: _gap(bench, expire=True),
        control=lambda bench: _gap(bench, expire=False),
        clients=("wire",),
    ),
]
