"""min.insync.replicas: with acks=all, nothing is acknowledged that fewer replicas have."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.harness.model.wait import until


@case("min-isr", THREE, claim={"acks": -1}, control={"acks": 1})
def min_isr(bench: Bench, *, acks: int) -> Observation:
    """min.insync.replicas: with acks=all, nothing is acknowledged that fewer replicas have."""
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
