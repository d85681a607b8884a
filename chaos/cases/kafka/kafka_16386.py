"""KAFKA-16386: a produce fails with NETWORK_EXCEPTION when its leader cannot reach the transaction
coordinator."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools.record_batch import record_batch
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _produced(bench: Bench, *, dead: bool) -> Observation:
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


CASE = Case(
    name="KAFKA-16386",
    title="A produce fails with NETWORK_EXCEPTION because its leader cannot reach the coordinator",
    kind="defect",
    claim_text=(
        "The verification of KIP-890 passes its own network error to the client. For a produce, "
        "NETWORK_EXCEPTION means that the batch may have been written, so clients drop the "
        "connection to a healthy leader."
    ),
    sources=("KAFKA-16386 (Apache JIRA): 3.7.0; fixed in 3.7.1 and 3.8.0",),
    expected=(
        Expected(shows=True, since="3.7.0", until="3.7.0", basis="runs"),
        Expected(shows=False, since="3.7.1", basis="runs"),
    ),
    schedule=(
        "1. three nodes; the coordinator is not the leader; 2. AddPartitionsToTxn; 3. kill -9 of "
        "the coordinator; 4. Produce"
    ),
    reproduced="the answer is NETWORK_EXCEPTION",
    control_text="the same with the coordinator alive: the produce is accepted",
    refuted="another retriable error in every run",
    topology=THREE,
    claim=lambda bench: _produced(bench, dead=True),
    control=lambda bench: _produced(bench, dead=False),
    clients=("wire",),
)
