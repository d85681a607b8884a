"""KIP-1279 itself: a replica that rebuilds its producer state from the log has the mirrored
producers again, reset or not."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.wait import until


@case("KIP-1279-reset-forgotten", PAIR, claim={"rebuilt": True}, control={"rebuilt": False})
def reset_forgotten(bench: Bench, *, rebuilt: bool) -> Observation:
    """A's producer and B's have one id; B's writes first to the topic after the promotion."""
    topic = bench.topic()
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        source, destination = bench.ask(bench.up("A")), bench.ask(bench.up("B"))
        of_a, of_b = _of_one_id(source, destination)
        source.produce((topic, 0), record_batch([b"of A"] * 2, producer=of_a, sequence=0))
        until(
            lambda: bench.bound("high", topic, cluster="B") == 2,
            within=WITHIN,
            what="A's records to be on B",
            every=0.2,
        )
        mirror.stop()
        stopped = {"STOPPED": 1}
        until(
            lambda: mirror.states() == stopped,
            within=WITHIN,
            what=f"{topic} to be STOPPED",
            every=0.2,
            state=mirror.states,
        )
    if rebuilt:
        broker = bench.up("B")
        broker.kill()
        broker.start()
        bench.led(topic, cluster="B")
    resets = [marker.kind for marker in markers(bench.log(topic, cluster="B"))].count("other")
    before = bench.bound("high", topic, cluster="B")
    error, offset = bench.ask(bench.up("B")).produce(
        (topic, 0), record_batch([b"of B"] * 2, producer=of_b, sequence=0)
    )
    after = bench.bound("high", topic, cluster="B")
    read = [value.decode() for _, value in bench.read(topic, cluster="B")]
    facts = {
        "producer_id": of_b.id,
        "resets_in_the_log": resets,
        "produce_on_B": [error, offset],
        "high_watermark_before_and_after": [before, after],
        "records_on_B": read,
    }
    return Observation(shown=error == "none" and "of B" not in read, facts=facts)


def _of_one_id(source: Wire, destination: Wire) -> tuple[ProducerIdentity, ProducerIdentity]:
    """A producer of each cluster, with the same producer id: both hand them out from 0 on."""
    of_a, of_b = source.init_producer_id(), destination.init_producer_id()
    while of_a.id != of_b.id:
        if of_a.id < of_b.id:
            of_a = source.init_producer_id()
        else:
            of_b = destination.init_producer_id()
    return of_a, of_b
