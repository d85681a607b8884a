"""KAFKA-16386: a produce fails with NETWORK_EXCEPTION when its leader cannot reach the transaction
coordinator."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KAFKA-16386", THREE, claim={"dead": True}, control={"dead": False})
def kafka_16386(bench: Bench, *, dead: bool) -> Observation:
    """KAFKA-16386: a produce fails with NETWORK_EXCEPTION when its leader cannot reach the
    transaction coordinator."""
    writer = WireTransactional(bench)
    home = next(
        broker for broker in bench.cluster().brokers.values() if broker.id != writer.coordinator.id
    )
    topic = bench.topic(replicas=[home.id])
    writer.add((topic, 0))
    leader = bench.ask(home)
    leader.leadership(topic)
    if dead:
        writer.coordinator.kill()
    batch = record_batch([b"record"], producer=writer.producer, sequence=0, transactional=True)
    answers = []
    for _ in range(20):
        error, _ = leader.produce((topic, 0), batch, transactional_id=writer.id)
        answers.append(error)
        if error in ("none", "network_exception"):
            break
    return Observation(shown="network_exception" in answers, facts={"answers": answers})
