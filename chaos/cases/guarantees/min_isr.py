"""min.insync.replicas: with acks=all, nothing is acknowledged that fewer replicas have."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.harness.model.wait import until


def _produced(bench: Bench, *, acks: int) -> Observation:
    leader, follower = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[leader.id, follower.id], config={"min.insync.replicas": "2"})
    asked = bench.ask(leader)
    follower.kill()
    until(
        lambda: asked.leadership(topic)[0].in_sync == (leader.id,),
        within=WITHIN,
        what="the follower to leave the ISR",
    )
    answer = asked.produce((topic, 0), record_batch([b"record"]), acks=acks)
    return Observation(
        shown=answer[0] == "none",
        facts={"acks": acks, "in_sync": list(asked.leadership(topic)[0].in_sync), "answer": answer},
    )


CASE = Case(
    name="min-isr",
    title="A write with acks=all is refused while fewer than min.insync.replicas are in sync",
    kind="guarantee",
    claim_text=(
        "Anomaly: a write with acks=all is acknowledged while only one replica has it, although "
        "min.insync.replicas is 2."
    ),
    sources=("Kafka documentation, min.insync.replicas", "KIP-966"),
    expected=(Expected(shows=False, basis="runs"),),
    schedule=(
        "1. two replicas, min.insync.replicas=2; 2. kill -9 of the follower; 3. only the leader "
        "is in the ISR; 4. a write, acks=all"
    ),
    reproduced="the write is acknowledged",
    control_text="the same with acks=1: it is acknowledged",
    refuted="a write with acks=all is acknowledged",
    topology=THREE,
    claim=lambda bench: _produced(bench, acks=-1),
    control=lambda bench: _produced(bench, acks=1),
    control_shows=True,
    clients=("wire",),
)
