"""KIP-1279 itself: a replica that rebuilds its producer state from the log has the mirrored
producers again, reset or not."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BUILD, branch_mirror
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity, record_batch
from linkflap.chaos.cases.tools.wire import Wire
from linkflap.harness.model.wait import until


def _promoted(bench: Bench, *, rebuilt: bool) -> Observation:
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


CASE = Case(
    name="KIP-1279-reset-forgotten",
    title=(
        "A build of the KIP-1279 branch acknowledges and drops writes after a promotion once "
        "producer state is rebuilt"
    ),
    kind="proposal",
    claim_text=(
        "A stop appends a reset, so that producers of the source are forgotten. A broker that "
        "rebuilds its producer state from the log, after a crash or a truncation, has them again: "
        "a producer of the destination with the id of one of them is taken for it, and its first "
        "writes are acknowledged with offsets of the source's and not appended."
    ),
    sources=(
        "docs/findings/cluster-mirroring-reset-forgotten.md",
        "KIP-1279: MIRROR_PID_RESET",
        "Redpanda PR 31659",
    ),
    expected=(Expected(shows=True, since="4.2.0", basis="runs"),),
    schedule=(
        "1. A's producer writes two records; 2. they are mirrored; 3. stop; 4. kill -9 of B's "
        "broker, and its start; 5. B's producer, with the id of A's, writes two records"
    ),
    reproduced=(
        "the write is acknowledged with an offset below the promotion, and nothing is appended"
    ),
    control_text="the same without the broker's death: the records are appended behind the reset",
    refuted="B's records in its log, or an error",
    topology=PAIR,
    claim=partial(_promoted, rebuilt=True),
    control=partial(_promoted, rebuilt=False),
    clients=("wire",),
    needs=BUILD,
    apart=True,
)
